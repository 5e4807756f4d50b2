"""Findings as text for people, JSON, SARIF for code scanning, and annotations of GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine.check.run import Finding
from engine.check.subject import Severity
from engine.errors import Problem

FORMATS = ("text", "json", "sarif", "github")
_SARIF = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "note"}
_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "notice"}
_LOAD = "load"  # the name of what is wrong with a file before any check looks at it


def as_text(finding: Finding) -> Iterator[str]:
    """Yield the lines of a finding: what and where, the line of the file with a mark below it, the way out."""
    yield f"{finding.path}:{finding.line}:{finding.column}: {finding.severity}: {finding.message} ({finding.check})"
    number = f"{finding.line:>5}"
    yield f"{number} | {finding.source.rstrip()}"
    last = finding.end_column if finding.end_line == finding.line else len(finding.source.rstrip())
    before = "".join("\t" if char == "\t" else " " for char in finding.source[: finding.column - 1])
    yield f"{' ' * len(number)} | {before}{'^' * max(1, last - finding.column + 1)}"
    if finding.rewrite:
        yield f"{' ' * len(number)} = write: {' '.join(finding.rewrite.split())}"


def as_json(problems: Iterable[Problem], findings: Iterable[Finding]) -> str:
    """Return everything as one JSON object."""
    rows = [_of_problem(each) for each in problems] + [_row(each) for each in findings]
    return json.dumps({"version": 1, "findings": rows}, indent=2, ensure_ascii=False)


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "check": finding.check,
        "severity": str(finding.severity),
        "message": finding.message,
        "rewrite": finding.rewrite,
        "page": finding.page,
    }


def _of_problem(problem: Problem) -> dict[str, Any]:
    place = {"line": problem.line, "column": problem.column}
    ends = {"end_line": problem.line, "end_column": problem.column}
    said = {"check": _LOAD, "severity": str(Severity.ERROR), "message": problem.message}
    return {"path": problem.path, **place, **ends, **said, "rewrite": "", "page": "docs/rules.md"}


def as_sarif(problems: Sequence[Problem], findings: Sequence[Finding]) -> str:
    """Return everything as SARIF 2.1.0, which code hosts show beside the lines of a change."""
    rules = sorted({each.check for each in findings} | ({_LOAD} if problems else set()))
    results = [_result(row["check"], "error", row["message"], row) for row in map(_of_problem, problems)] + [
        _result(each.check, _SARIF[each.severity], _advised(each), _row(each)) for each in findings
    ]
    driver = {"name": "engine check", "rules": [{"id": each} for each in rules]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _result(check: str, level: str, message: str, row: dict[str, Any]) -> dict[str, Any]:
    region = {
        "startLine": row["line"],
        "startColumn": row["column"],
        "endLine": row["end_line"],
        "endColumn": row["end_column"] + 1,  # SARIF's end is the character after
    }
    location = {"artifactLocation": {"uri": row["path"]}, "region": region}
    return {
        "ruleId": check,
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": location}],
    }


def as_github(problems: Iterable[Problem], findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the workflow commands that make annotations of a run of GitHub Actions."""
    for each in problems:
        place = f"file={_property(each.path)},line={each.line},col={each.column}"
        yield f"::error {place},title={_LOAD}::{_data(each.message)}"
    for finding in findings:
        place = f"file={_property(finding.path)},line={finding.line},endLine={finding.end_line}"
        place += f",col={finding.column},endColumn={finding.end_column}"
        title = _property(finding.check)
        yield f"::{_GITHUB[finding.severity]} {place},title={title}::{_data(_advised(finding))}"


def _advised(finding: Finding) -> str:
    return finding.message + (f"\nwrite: {' '.join(finding.rewrite.split())}" if finding.rewrite else "")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
