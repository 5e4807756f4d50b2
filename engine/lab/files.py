"""Which tests are meant, and running those of whole files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import LoadError
from engine.lab.tester import LAST_BIT, Bench, OpenGround, Result, Witness, run_test
from engine.load.rules import Loaded, load_rules
from engine.model.playbook import Playbook
from engine.model.rule import RuleGroup
from engine.model.settings import Settings
from engine.model.testing import TestFile, TestGroup

_NOT_A_RULE_FILE = re.compile(r"\.test\.ya?ml$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which tests of a file are run, and on what."""

    wanted: re.Pattern[str] | None = None  # None: all
    stop_at_first: bool = False
    ground: OpenGround | None = None  # None: series in memory
    witnesses: Sequence[Witness] = ()

    def tests(self, file: TestFile) -> Iterator[TestGroup]:
        """Yield the tests whose name is wanted."""
        for test in file.tests:
            if self.wanted is None or self.wanted.search(test.name):
                yield test


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What became of the tests of one file."""

    file: str
    results: tuple[Result, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes its tests weaker than they look."""
        return tuple(f"{result.name}: {text}" for result in self.results for text in result.warnings)

    @property
    def failed(self) -> bool:
        """Whether any expectation did not hold."""
        return any(result.failures for result in self.results)


def find_tests(paths: Iterable[str], settings: Settings) -> Loaded:
    """Return the rules and tests of files and folders, and the test files that lie beside a rule file.

    LoadError with every problem of every file.
    """
    paths = list(paths)
    beside = {str(each): path for path in paths for each in _beside(Path(path))}
    loaded = load_rules([*paths, *beside], interval=settings.evaluation_interval)
    # `tests/spill*.yaml` may find the tests of spillover.yaml as well.
    strangers = [
        file
        for file in loaded.tests
        if file.file in beside and file.file not in paths and not _tests(file, Path(beside[file.file]))
    ]
    return replace(loaded, tests=tuple(file for file in loaded.tests if file not in strangers))


def _beside(path: Path) -> Iterator[Path]:
    """Yield where tests of a rule file may stand: `spill.test.yaml` and `tests/spill*.yaml` for `spill.yaml`."""
    if path.is_file() and not _NOT_A_RULE_FILE.search(path.name):
        yield from sorted(path.parent.glob(f"{path.stem}.test.y*ml"))
        yield from sorted((path.parent / "tests").glob(f"{path.stem}*.y*ml"))


def _tests(file: TestFile, rules: Path) -> bool:
    return any(Path(group.file).resolve() == rules.resolve() for group in file.groups)


def refuse_beyond(files: Iterable[TestFile], choice: Choice) -> None:
    """Raise LoadError for PromQL that the embedded evaluator does not answer, in files that have tests to run."""
    problems = {problem for file in files if any(True for _ in choice.tests(file)) for problem in file.beyond}
    if problems:
        raise LoadError(sorted(problems))


def bench_of(
    file: TestFile, settings: Settings, playbooks: Mapping[str, Playbook], ground: OpenGround | None = None
) -> Bench:
    """Return what a file's tests are run on; in promtool's files all is as in promtool, which reads no settings."""
    if file.evaluation_interval is None:
        return Bench(
            groups=file.groups,
            settings=settings,
            playbooks=playbooks,
            interval=settings.evaluation_interval,
            own_intervals=True,
            ground=ground,
        )
    return Bench(
        groups=_ordered(file),
        settings=replace(settings, external_labels={}, external_url=""),
        playbooks=playbooks,
        interval=file.evaluation_interval,
        own_intervals=False,
        float_tolerance=LAST_BIT if file.fuzzy_compare else 0.0,
        text_tolerance=0.0,
        ground=ground,
    )


def _ordered(file: TestFile) -> tuple[RuleGroup, ...]:
    order = {name: place for place, name in enumerate(file.group_eval_order)}
    return tuple(sorted(file.groups, key=lambda group: order.get(group.name, len(order))))


def run_file(file: TestFile, bench: Bench, choice: Choice) -> FileResult:
    """Run the chosen tests of a file."""
    results: list[Result] = []
    for test in choice.tests(file):
        results.append(run_test(test, bench, choice.witnesses))
        if choice.stop_at_first and results[-1].failures:
            break
    return FileResult(file=file.file, results=tuple(results))
