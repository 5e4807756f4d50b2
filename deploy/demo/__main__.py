"""`make demo`: a spilling Ray cluster is noticed, reported and relieved, on real parts, in about two minutes."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from deploy.demo import parts, web
from deploy.demo.engine_process import HERE, EngineProcess
from deploy.demo.narrator import Narrator
from deploy.demo.parts import PartMissing
from deploy.demo.ports import PortTaken
from deploy.demo.processes import NotReady, exit_on_signals, users_of
from deploy.demo.prometheus import Prometheus
from deploy.demo.ray_cluster import RayCluster
from deploy.demo.slack_render import render, render_html
from deploy.demo.slack_stub import SlackStub

FILL = HERE / "workloads" / "fill_store.py"
STORE_BYTES = 100_000_000
STORY_SECONDS = 170.0


def main() -> None:
    """Run the demo; whatever happens, nothing that it started is left behind."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(".demo"), help="where everything is kept (default .demo)"
    )
    arguments = parser.parse_args()
    exit_on_signals()
    narrator = Narrator()
    try:
        helped = _play(arguments.folder.resolve(), narrator)
    except (NotReady, PartMissing, PortTaken, web.HttpFailure, OSError) as error:
        narrator.end(f"The demo could not go on: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        narrator.end("Interrupted; everything was stopped.")
        sys.exit(130)
    sys.exit(0 if helped else 1)


def _play(folder: Path, narrator: Narrator) -> bool:
    narrator.say(
        "Slack is a stand-in on this machine, rules have seconds where the shipped ones have minutes,"
    )
    narrator.say("and remedies run by themselves (mode auto). Setting up Prometheus and Ray …")
    programs, venv = parts.part("prometheus"), parts.part("ray")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "slack-token").write_text(f"xoxb-{secrets.token_hex(8)}")
    with ExitStack() as stack:
        slack = stack.enter_context(SlackStub(folder=folder / "slack"))
        ray = RayCluster(folder / "ray", workers=1, object_store_memory=STORE_BYTES, venv=venv)
        ray.prepare()
        prometheus = Prometheus(folder / "prometheus", targets=ray.metrics_targets, programs=programs)
        narrator.say(f"Starting Prometheus on {prometheus.url}")
        stack.enter_context(prometheus)
        narrator.say("Starting a Ray cluster: a head and one more node, object stores of 100 MB each …")
        stack.enter_context(ray)
        narrator.say(f"Ray is up: dashboard on {ray.dashboard_url}")
        engine = EngineProcess(
            folder, prometheus_url=prometheus.url, ray_url=ray.dashboard_url, slack_url=slack.url
        )
        stack.enter_context(engine)
        narrator.say(f"The engine is up: {engine.url}/metrics; waiting for the first samples from Ray …")
        prometheus.wait_for("ray_object_store_available_memory", within=60)
        job = ray.submit(
            ["python", str(FILL), "--mb-per-put", "3", "--pause", "0.6", "--total-mb", "260"],
            node=1,
            submission_id="greedy-training-job",
            metadata={"owner": "somebody"},
        )
        narrator.say(f"Submitted {job}: it puts 5 MB/s into the store of {ray.ip(1)} and keeps all of it.")
        helped = narrator.follow(engine.log, within=STORY_SECONDS, alive=lambda: engine.is_running)
        _show(folder, slack, narrator)
    left = users_of(folder)
    narrator.end(
        f"Stopped everything; processes left behind: {', '.join(str(one.pid) for one in left) or 'none'}. "
        f"`make demo-clean` removes {folder.name}/ and what was downloaded."
    )
    return helped and not left


def _show(folder: Path, slack: SlackStub, narrator: Narrator) -> None:
    """Say where to look, and print the Slack message as it stands at the end."""
    time.sleep(1.5)  # the last update of the message is on its way
    messages = slack.messages
    (folder / "slack.html").write_text(render_html(messages, slack.files, title="ray-alerts"))
    thread_starts = [message for message in messages if not message.thread_ts]
    narrator.say("What #ray-alerts shows now:")
    for message in thread_starts:
        narrator.block(render(message))
    charts = sorted((folder / "charts").glob("*.png"))
    engine = Path(sys.executable).parent / "engine"
    narrator.places(
        {
            "the alert's chart": str(charts[-1]) if charts else "none was made",
            "the channel as a page": str(folder / "slack.html"),
            "the messages as JSON": str(folder / "slack"),
            "the engine's log": str(folder / "engine.log"),
            "what was decided, and why": f"{engine} explain RayObjectStoreExhaustion --config {folder}/look.yaml",
            "the run's record": f"{engine} playbook list --config {folder}/look.yaml",
            "the rules and playbook": str(HERE),
        }
    )
    (folder / "look.yaml").write_text(f'state: {{url: "sqlite:///{folder}/engine.db"}}\n')


if __name__ == "__main__":
    main()
