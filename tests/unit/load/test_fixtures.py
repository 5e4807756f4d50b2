"""Files named by outcome. A bad file says at its end, in comments, what must be reported, all of it and in order."""

import re
from pathlib import Path

import pytest

from engine.errors import LoadError
from engine.load.playbooks import load_playbooks
from engine.load.rules import load_rules
from engine.load.settings import load_settings

FILES = Path(__file__).parents[2] / "fixtures" / "load"
LOADERS = {
    "rules": lambda path: load_rules([path]),
    "playbooks": lambda path: load_playbooks([path]),
    "settings": load_settings,
}
EXPECTED = re.compile(r"# ((?:[\w.]+:)?\d+:\d+: .+)")


def files(outcome):
    found = sorted(FILES.glob(f"*/*.{outcome}.yaml"))
    assert found
    return [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in found]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("ENGINE_TEST_HOST", "prometheus")
    monkeypatch.delenv("ENGINE_TEST_UNSET", raising=False)


@pytest.mark.parametrize("path", files("good"))
def test_good_files_load(path):
    assert LOADERS[path.parent.name](path) is not None


@pytest.mark.parametrize("path", files("bad"))
def test_bad_files_are_refused_with_every_problem_at_its_place(path):
    with pytest.raises(LoadError) as refused:
        LOADERS[path.parent.name](path)
    elsewhere = {str(path): ""}
    reported = [
        elsewhere.get(problem.path, f"{Path(problem.path).name}:")
        + f"{problem.line}:{problem.column}: {problem.message}"
        for problem in refused.value.problems
    ]
    expected = [found[1] for line in path.read_text().splitlines() if (found := EXPECTED.fullmatch(line))]
    assert expected
    assert sorted(reported) == sorted(expected)


def test_problems_of_several_files_come_together_sorted_by_file_and_line():
    paths = [
        FILES / "rules" / name for name in ("unknown_field.bad.yaml", "duplicate_keys.bad.yaml", "no.yaml")
    ]
    with pytest.raises(LoadError) as refused:
        load_rules(paths)
    problems = refused.value.problems
    assert list(problems) == sorted(problems)
    assert {Path(problem.path).name for problem in problems} == {path.name for path in paths}
