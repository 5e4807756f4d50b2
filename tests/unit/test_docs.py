"""The documentation says what is so: links, commands, targets, examples, defaults."""

import dataclasses
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from pre_commit.clientlib import load_config

from engine.cli.main import cli
from engine.lab.tester import Bench, run_test
from engine.load.playbooks import read_playbook
from engine.load.records import schema
from engine.load.rules import load_rules, read_rules
from engine.load.settings import load_settings, read_settings
from engine.model.duration import Duration
from engine.model.playbook import Approval, Playbook, Step, Verify
from engine.model.route import Route
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.settings import (
    EngineAlerts,
    PrometheusSettings,
    RayCluster,
    RaySettings,
    RemediationSettings,
    RemoteWrite,
    Settings,
    StateSettings,
)
from engine.model.testing import TestGroup
from engine.model.verdict import Persist
from engine.registry import action, detector, enricher, guardrail, notifier

ROOT = Path(__file__).parents[2]
SPOKEN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
OWN = ("engine", "rules", "playbooks", "tests", "deploy", "docs", ".ci")
TEXTS = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".json", ".txt", "", ".dockerignore", ".gitignore"}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


PAGES = pytest.mark.parametrize("page", SPOKEN, ids=name_of)


class Example(NamedTuple):
    """A fenced block: its language, where it begins, and what it says, less the indentation of a list."""

    language: str
    line: int
    text: str


def examples(page: Path, *languages: str) -> list[Example]:
    content = page.read_text()
    found = []
    for match in FENCE.finditer(content):
        lines = match[2].splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        text = "\n".join(line[indent:] for line in lines) + "\n"
        found.append(Example(match[1], content[: match.start()].count("\n") + 1, text))
    return [each for each in found if not languages or each.language in languages]


# ── Links ────────────────────────────────────────────────────────────────────


def anchors(page: Path) -> set[str]:
    """The fragments that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@PAGES
def test_every_link_and_image_within_the_project_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, fragment = link.partition("#")
        place = page.parent / target if target else page
        assert place.exists(), f"{name_of(page)}: {link}"
        if fragment:
            assert fragment in anchors(place), f"{name_of(page)}: {link}"


def test_every_shipped_alert_has_a_runbook():
    groups = load_rules([ROOT / "rules", ROOT / "deploy" / "demo" / "rules"]).groups
    rules = [rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule)]
    assert rules
    for rule in rules:
        page = ROOT / "docs" / "runbooks" / f"{rule.annotations['runbook_url'].rpartition('/')[2]}.md"
        assert page.is_file(), f"{rule.origin}: {page.name}"
        assert page.read_text().startswith(f"# {rule.alert}\n")


def test_decisions_are_numbered_without_gaps():
    files = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))
    for file in files:
        text = file.read_text()
        assert text.startswith(f"# {int(file.name[:4])}. "), file.name
        for part in ("Context", "Decision", "Consequences"):
            assert f"\n**{part}.** " in text, f"{file.name} has no {part}"


# ── Commands ─────────────────────────────────────────────────────────────────


def command_lines(page: Path) -> Iterator[str]:
    """Whatever a reader may type: lines of shell blocks, less the prompt, and code within sentences."""
    for block in examples(page, "sh", "console"):
        for line in block.text.splitlines():
            if block.language == "sh" or line.startswith("$ "):
                yield line.removeprefix("$ ").partition(" #")[0].strip()
    yield from SPAN.findall(FENCE.sub("", page.read_text()))


def engine_commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every call of `engine`, also behind `kubectl exec … --`."""
    for line in command_lines(page):
        if match := re.search(r"(?:^|-- |; )engine ((?:[a-z-]+)(?: .*)?)$", line):
            yield shlex.split(match[1])


def read_command(arguments: list[str]) -> list[str]:
    """Return the subcommands that are called; UsageError if there are no such commands or options."""
    group: click.Command = cli
    names, rest = [], arguments
    while isinstance(group, click.Group) and rest:
        command = group.get_command(click.Context(group, help_option_names=["-h", "--help"]), rest[0])
        if command is None:
            raise click.UsageError(f"no command {rest[0]!r}")
        names.append(rest[0])
        group, rest = command, rest[1:]
    if not isinstance(group, click.Group):
        group.make_parser(click.Context(group, help_option_names=["-h", "--help"])).parse_args(rest)
    return names


def every_command() -> Iterator[list[str]]:
    for name in cli.list_commands(click.Context(cli, help_option_names=["-h", "--help"])):
        command = cli.get_command(click.Context(cli, help_option_names=["-h", "--help"]), name)
        if isinstance(command, click.Group):
            yield from (
                [name, each]
                for each in command.list_commands(click.Context(command, help_option_names=["-h", "--help"]))
            )
        else:
            yield [name]


@PAGES
def test_every_command_that_is_named_exists_with_its_options(page):
    for arguments in engine_commands(page):
        read_command(arguments)


@pytest.mark.parametrize("wrong", [["fly"], ["run", "--colour"], ["playbook", "burn"]])
def test_a_command_that_does_not_exist_would_be_found(wrong):
    with pytest.raises(click.UsageError):
        read_command(wrong)


def test_the_readme_names_every_command():
    named = [read_command(each) for each in engine_commands(ROOT / "README.md")]
    assert [each for each in every_command() if each not in named] == []


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_target_that_is_named_exists():
    named = {
        (name_of(page), target)
        for page in SPOKEN
        for line in command_lines(page)
        if (match := re.match(r"make ([a-z-]+)\b", line))
        for target in [match[1]]
    }
    assert {("README.md", "demo"), ("README.md", "test")} <= named
    assert [each for each in sorted(named) if each[1] not in targets()] == []


def test_the_readme_begins_with_the_two_commands():
    first = examples(ROOT / "README.md")[0]
    assert [line.split("#")[0].strip() for line in first.text.splitlines()] == ["make demo", "make test"]


def test_the_readme_has_a_place_for_the_demo():
    parts = (ROOT / "README.md").read_text().split("<!-- demo -->\n")
    assert len(parts) == 3
    assert parts[1].startswith("```")


def test_the_hooks_call_what_the_environment_has():
    hooks = [
        each for repo in load_config(ROOT / ".pre-commit-config.yaml")["repos"] for each in repo["hooks"]
    ]
    programs = {shlex.split(each["entry"])[0] for each in hooks}
    assert {each for each in programs if not (Path(sys.executable).parent / each).exists()} == set()
    (check,) = [each["entry"] for each in hooks if each["entry"].startswith("engine ")]
    assert read_command(shlex.split(check)[1:]) == ["check"]
    assert all(repo["repo"] == "local" for repo in load_config(ROOT / ".pre-commit-config.yaml")["repos"])


# ── Examples ─────────────────────────────────────────────────────────────────


def yaml_of(page: str, *, of_rules: bool) -> list[Any]:
    """The YAML blocks of a page that are rule files, or those that are not."""
    blocks = [
        each
        for each in examples(ROOT / page, "yaml")
        if re.match(r"(groups|tests):", each.text) is not None or not of_rules
    ]
    assert blocks
    return [pytest.param(each.text, id=f"{page}:{each.line}") for each in blocks]


DETECTORS = [
    name_of(page)
    for page in sorted((ROOT / "docs" / "detectors").glob("*.md"))
    if "```yaml" in page.read_text()
]
RULES = [
    param for page in ("README.md", "docs/rules.md", *DETECTORS) for param in yaml_of(page, of_rules=True)
]


@pytest.mark.parametrize("text", RULES)
def test_examples_of_rules_load(text):
    problems = []
    assert read_rules("example.yaml", text.encode(), problems).groups
    assert problems == []


@pytest.mark.parametrize("text", [each for each in RULES if "\ntests:" in each.values[0]])
def test_examples_of_tests_pass(text):
    (file,) = read_rules("example.yaml", text.encode(), []).tests
    bench = Bench(
        groups=file.groups,
        settings=load_settings(None),
        playbooks={},
        interval=timedelta(minutes=1),
        own_intervals=True,
    )
    for test in file.tests:
        assert run_test(test, bench).failures == ()


def test_examples_of_playbooks_load():
    found = [
        each for each in examples(ROOT / "docs" / "rules.md", "yaml") if each.text.startswith("playbook:")
    ]
    assert found
    for each in found:
        problems = []
        assert read_playbook("example.yaml", each.text.encode(), problems) is not None
        assert problems == []


@pytest.mark.parametrize("text", yaml_of("docs/settings.md", of_rules=False))
def test_examples_of_settings_load(text):
    problems = []
    assert read_settings("engine.yaml", text.encode(), problems) is not None
    assert problems == []


def test_the_slack_receiver_of_the_readme_loads():
    (block,) = [each for each in examples(ROOT / "README.md", "yaml") if each.text.startswith("receivers:")]
    problems = []
    settings = read_settings(
        "engine.yaml", f"route: {{receiver: ray-oncall}}\n{block.text}".encode(), problems
    )
    assert problems == []
    assert [word for word, _ in settings.routing.receivers["ray-oncall"].integrations] == ["slack"]


# ── Reference ────────────────────────────────────────────────────────────────


def section(page: str, heading: str) -> str:
    """Return what stands below a heading, or below the line that is `heading`, up to the next heading."""
    text = (ROOT / page).read_text()
    start = re.search(rf"^(?:#+ )?{re.escape(heading)}", text, re.MULTILINE)
    assert start, f"{page} has no {heading!r}"
    rest = FENCE.sub("", text[start.end() :])
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, str]:
    """Return the keys of the first table that says defaults, each with its default."""
    table = re.search(r"^\| key \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table, "no table of keys"
    found = {}
    for line in table[1].splitlines():
        keys, default = line.strip("|").split("|")[:2]
        found |= dict.fromkeys(SPAN.findall(keys), default.strip())
    return found


def written(default: object) -> str:
    """A default as the tables write it."""
    if default is None or (isinstance(default, tuple | Mapping | str) and not default):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, Duration):
        return str(default)
    if isinstance(default, Enum):
        return str(default.value)
    return f"{default:g}" if isinstance(default, float) else str(default)


def defaults_of(cls: type) -> dict[str, str]:
    """Return the keys of a dataclass with their defaults as they are written; "" for records of their own."""
    fields = {each.name: each for each in dataclasses.fields(cls)}
    found = {}
    for key, read in schema(cls).items():
        field = fields[read.name]
        if read.required:
            found[key] = "required"
        elif field.default is dataclasses.MISSING:
            found[key] = written(field.default_factory())
        elif isinstance(field.default, Persist):
            found[key] = f"{{m: {field.default.m}, n: {field.default.n}}}"
        else:
            found[key] = "" if dataclasses.is_dataclass(field.default) else written(field.default)
    return found


class Documented(NamedTuple):
    """A dataclass, where its table is, and what the table says otherwise than the fields do."""

    page: str
    heading: str
    cls: type
    otherwise: Mapping[str, str] = {}


RECORDS = [
    Documented("docs/rules.md", "At the top:", RuleGroup),
    Documented("docs/rules.md", "An alerting rule:", AlertingRule, {"detect": "present"}),
    Documented("docs/rules.md", "A test group:", TestGroup, {"start_timestamp": "0"}),
    Documented("docs/rules.md", "Playbooks", Playbook),
    Documented(
        "docs/rules.md",
        "A step:",
        Step,
        {"action": "required", "with": "none", "retry": "{attempts: 1, backoff: 10s}"},
    ),
    Documented("docs/rules.md", "`verify`:", Verify),
    Documented("docs/rules.md", "`approval` belongs", Approval),
    Documented("docs/settings.md", "engine.yaml", Settings),
    Documented("docs/settings.md", "prometheus", PrometheusSettings),
    Documented("docs/settings.md", "remote_write", RemoteWrite),
    Documented(
        "docs/settings.md", "ray", RayCluster, {**defaults_of(RaySettings), "version": "the newest known"}
    ),
    Documented("docs/settings.md", "state", StateSettings),
    Documented("docs/settings.md", "remediation", RemediationSettings),
    Documented("docs/settings.md", "engine_alerts", EngineAlerts),
    Documented(
        "docs/settings.md",
        "`route`, and each",
        Route,
        {"group_wait": "30s", "group_interval": "5m", "repeat_interval": "4h"},
    ),
]
OTHERWISE = {
    "forecast": {"urgent": "{horizon: horizon / 4, probability: 0.5}"},
    "burn_rate": {"windows": "three pairs"},
    "seasonal": {"seasons": "[1d, 1w]"},
}
PLUGINS = [
    Documented(page, f"`{name}`", registry.get(name), OTHERWISE.get(name, {}))
    for registry, page in (
        (detector, "docs/rules.md"),
        (enricher, "docs/rules.md"),
        (action, "docs/rules.md"),
        (guardrail, "docs/rules.md"),
        (notifier, "docs/settings.md"),
    )
    for name in registry
    if registry.get(name).__module__.startswith("engine.")  # a test may register its own
]


@pytest.mark.parametrize("it", [*RECORDS, *PLUGINS], ids=lambda it: it.cls.__name__)
def test_every_key_is_documented_with_its_default(it):
    expected = {**defaults_of(it.cls), **it.otherwise}
    if expected:
        assert rows(section(it.page, it.heading)) == expected
    else:
        section(it.page, it.heading)


def test_every_detail_of_a_detector_is_documented():
    for name in detector:
        for detail in detector.get(name).details:
            assert f"$detect.{detail}" in section("docs/rules.md", f"`{name}`"), f"{name}: {detail}"


# ── The repository ───────────────────────────────────────────────────────────


def own_files() -> list[Path]:
    folders = [file for name in OWN for file in (ROOT / name).rglob("*") if "__pycache__" not in file.parts]
    return [
        file
        for file in [*folders, *ROOT.glob("*")]
        if file.is_file() and file.suffix in TEXTS and file.name != ".git"
    ]


def test_nothing_is_left_to_do_and_nothing_names_the_place_it_was_written_in():
    place, words = "/" + "work", ("TO" + "DO", "FIX" + "ME", "X" + "XX")
    unwanted = re.compile(rf"(?<![\w.]){place}(?![\w-])|\b(?:{'|'.join(words)})\b")
    files = own_files()
    assert Path(__file__) in files
    found = [
        f"{name_of(file)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if unwanted.search(line)
    ]
    assert found == []
