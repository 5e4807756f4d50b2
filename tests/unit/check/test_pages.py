"""Every check has a page, and what the page calls a fault is one, and what it calls right is not."""

import re
from datetime import date
from pathlib import Path

import pytest

from engine.check.files import check_files
from engine.check.registering import names
from engine.check.subject import Severity

DOCS = Path(__file__).parents[3] / "docs" / "checks"
TODAY = date(2026, 1, 1)


def blocks(check: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / f"{check}.md").read_text(), re.DOTALL)


def findings(text: str, folder: Path):
    """What is found in a list of rules, or in files one after the other."""
    if text.startswith("- "):
        text = "groups:\n  - name: g\n    rules:\n" + re.sub(r"^", "      ", text, flags=re.MULTILINE)
    for number, document in enumerate(text.split("---\n")):
        (folder / f"{number}.yaml").write_text(document)
    checked = check_files([str(folder)], today=TODAY)
    assert checked.problems == []
    return checked.findings


@pytest.mark.parametrize("check", names())
def test_what_a_page_calls_a_fault_is_found(check, tmp_path):
    assert check in {each.check for each in findings(blocks(check)[0], tmp_path)}


@pytest.mark.parametrize("check", names())
def test_what_a_page_calls_right_is_left_alone(check, tmp_path):
    found = findings(blocks(check)[1], tmp_path)
    assert [each for each in found if each.check == check or each.severity is not Severity.ADVICE] == []


def test_every_page_is_that_of_a_check_and_in_the_table():
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.glob("*/*.md")}
    assert pages == set(names())
    assert set(re.findall(r"\| \[(.+?)\]", (DOCS / "README.md").read_text())) == pages


@pytest.mark.parametrize("check", names())
def test_a_page_begins_with_the_name_of_its_check(check):
    assert (DOCS / f"{check}.md").read_text().startswith(f"# {check}\n")


DETECTORS = sorted((DOCS.parent / "detectors").glob("*.md"))


@pytest.mark.parametrize("page", DETECTORS, ids=lambda page: page.stem)
def test_the_rules_on_the_pages_of_detectors_are_right(page, tmp_path):
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if block.startswith("groups:"):
            found = findings(block, tmp_path)
            assert [each for each in found if each.severity is not Severity.ADVICE] == []
