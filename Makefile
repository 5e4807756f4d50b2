SHELL := /bin/bash
.DEFAULT_GOAL := help
# Environments and downloads are kept in the user's cache folder: a second run takes seconds.
ENGINE_VENV = $$(deploy/setup.sh engine)

help:          ## Show this
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo:          ## Watch a spilling Ray cluster being noticed, reported and relieved (real Ray, real Prometheus)
	@venv=$(ENGINE_VENV) && exec "$$venv/bin/python" -m deploy.demo $(ARGS)

demo-clean:    ## Remove everything that demo and test have downloaded and made
	@rm -rf .demo && deploy/setup.sh clean

test:          ## Run every test, real parts included
	@venv=$(ENGINE_VENV) && "$$venv/bin/python" -m pytest $(ARGS)

unit:          ## Run the tests that need no real parts (a minute)
	@venv=$(ENGINE_VENV) && "$$venv/bin/python" -m pytest tests/unit tests/flow tests/cli $(ARGS)

check:         ## ruff, mypy, import-linter, and the engine's own check of rules and playbooks
	@venv=$(ENGINE_VENV) && export PATH="$$venv/bin:$$PATH" && set -ex && \
	ruff check . && ruff format --check . && mypy && lint-imports && \
	engine check rules playbooks --config deploy/engine.yaml && engine test-rule rules

bench:         ## Measure detectors, the PromQL evaluator and the probe beside their rivals (half an hour, on a quiet machine)
	@venv=$(ENGINE_VENV) && "$$venv/bin/python" -m tests.bench

format:        ## Format the code
	@venv=$(ENGINE_VENV) && "$$venv/bin/ruff" format . && "$$venv/bin/ruff" check --fix-only .

.PHONY: help demo demo-clean test unit check bench format
