"""What `engine` prints, word for word: each `*.txt` beside this file is a story.

    What it is about.

    -- rules.yaml --
    a file that is there before the first command; any number of them
    -- transcript --
    $ engine test-rule rules.yaml
    what it prints, on stdout and stderr
    [1]

`[1]` is the exit code, left out for 0, and every duration is written as `N s`. A story whose `engine.yaml` speaks of
`engine.db` finds the runs and events of `state.py` in it. To write down what the commands print now:
`python -m tests.cli.test_transcripts FILE`.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import structlog

from engine.cli.main import main
from tests.cli.state import write_state

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.txt"))
_SECTION = re.compile(r"^-- (\S+) --\n", re.MULTILINE)
_DURATION = re.compile(r"\b\d+\.\d\d s\b")


def read(story: Path) -> tuple[str, dict[str, str], str]:
    """Return a story's own words, its files, and its transcript."""
    words, *parts = _SECTION.split(story.read_text())
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return words, sections, sections.pop("transcript")


def run(command: str) -> tuple[str, int]:
    """Return what a command prints and its exit code."""
    program, *arguments = shlex.split(command)
    assert program == "engine"
    out, code, before = io.StringIO(), 0, sys.argv
    sys.argv = ["engine", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(out):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.argv = before
    return out.getvalue(), code


def played(commands: Iterable[str]) -> str:
    """Return the transcript of commands."""
    lines = []
    for command in commands:
        text, code = run(command)
        lines += [f"$ {command}\n", normal(text), f"[{code}]\n" if code else ""]
    return "".join(lines)


def normal(text: str) -> str:
    """Return what a command printed less what is different each time."""
    return _DURATION.sub("N s", text)


def commands_of(transcript: str) -> list[str]:
    return [line.removeprefix("$ ") for line in transcript.splitlines() if line.startswith("$ ")]


def prepare(files: dict[str, str], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    if "engine.db" in files.get("engine.yaml", ""):
        write_state(folder / "engine.db")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield
    structlog.reset_defaults()


def test_there_are_stories() -> None:
    assert len(STORIES) > 10


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_the_command_prints_what_the_story_says(story: Path, tmp_path: Path) -> None:
    _, files, transcript = read(story)
    prepare(files, tmp_path)
    with chdir(tmp_path):
        assert played(commands_of(transcript)) == transcript


def test_the_installed_command_says_and_returns_the_same(tmp_path: Path) -> None:
    story = HERE / "test_rule_fails.txt"
    _, files, transcript = read(story)
    prepare(files, tmp_path)
    command = commands_of(transcript)[0]
    program = Path(sys.executable).with_name("engine")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [program, *shlex.split(command)[1:]],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert f"$ {command}\n{normal(done.stdout)}[{done.returncode}]\n" in transcript


def _write_down(story: Path) -> None:
    words, files, transcript = read(story)
    with tempfile.TemporaryDirectory() as folder:
        prepare(files, Path(folder))
        with chdir(folder):
            text = played(commands_of(transcript))
    parts = [f"-- {name} --\n{content}" for name, content in [*files.items(), ("transcript", text)]]
    story.write_text(words + "".join(parts))


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    for name in sys.argv[1:]:
        _write_down(Path(name).resolve())
