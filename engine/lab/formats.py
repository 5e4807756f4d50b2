"""The report for programs: JSON of a documented, stable shape (docs/test-report.schema.json), and JUnit's XML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from engine.lab import coverage, mutation
from engine.lab.files import FileResult
from engine.lab.report import Report, block
from engine.lab.tester import Checked, Failure, Result

VERSION = 1
_NO_XML = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF), "\ufffd")


def as_json(report: Report) -> str:
    """Return the report as JSON."""
    results = report.results
    failed = sum(bool(result.failures) for result in results)
    document: Mapping[str, Any] = {
        "version": VERSION,
        "summary": {
            "files": len(report.files),
            "tests": len(results),
            "passed": len(results) - failed,
            "failed": failed,
            "assertions": sum(result.assertions for result in results),
            "seconds": round(report.seconds, 3),
        },
        "files": [_file(file) for file in report.files],
        "tests": [_test(file, result, report) for file in report.files for result in file.results],
        "coverage": None if report.coverage is None else coverage.as_json(report.coverage),
        "mutation": None if report.mutation is None else mutation.as_json(report.mutation),
        "differences": None if report.differences is None else list(report.differences),
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _file(file: FileResult) -> Mapping[str, Any]:
    failed = sum(bool(result.failures) for result in file.results)
    return {
        "file": file.file,
        "tests": len(file.results),
        "failed": failed,
        "warnings": list(file.warnings),
    }


def _test(file: FileResult, result: Result, report: Report) -> Mapping[str, Any]:
    return {
        "file": file.file,
        "name": result.name,
        "line": result.origin.line,
        "passed": not result.failures,
        "assertions": [_assertion(check) for check in result.checks],
        "faults": [_assertion(fault) for fault in result.faults],
        "timelines": report.lives.get((file.file, result.name), {}),
    }


def _assertion(it: Checked | Failure) -> Mapping[str, Any]:
    return {
        "what": it.what,
        "file": it.origin.file,
        "line": it.origin.line,
        "passed": not it.lines,
        "lines": list(it.lines),
    }


def as_junit(report: Report) -> str:
    """Return the report as JUnit's XML: a suite is a file, a case an assertion."""
    results = report.results
    counts = _counts([failure for result in results for failure in result.failures], results)
    head = f'<testsuites name="engine test-rule" {counts} time="{report.seconds:.3f}">'
    body = (line for file in report.files for line in _suite(file, report))
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *body, "</testsuites>"]) + "\n"


def _counts(failures: Sequence[Failure], results: Sequence[Result]) -> str:
    cases = sum(len(result.checks) + len(result.faults) for result in results)
    return f'tests="{cases}" failures="{len(failures)}" errors="0"'


def _suite(file: FileResult, report: Report) -> Iterator[str]:
    failures = [failure for result in file.results for failure in result.failures]
    yield f'  <testsuite name={_attribute(file.file)} {_counts(failures, file.results)} skipped="0" time="0">'
    if properties := list(_properties(report)):
        yield "    <properties>"
        yield from properties
        yield "    </properties>"
    for result in file.results:
        for check in result.checks:
            yield from _case(file.file, Failure(result.name, check.what, check.origin, check.lines))
        for fault in result.faults:
            yield from _case(file.file, fault)
    if file.warnings:
        yield f"    <system-err>{_text(chr(10).join(file.warnings))}</system-err>"
    yield "  </testsuite>"


def _case(file: str, case: Failure) -> Iterator[str]:
    name = f"{case.test}::{case.what}"
    head = f'    <testcase classname={_attribute(file)} name={_attribute(name)} time="0"'
    if not case.lines:
        yield f"{head}/>"
        return
    yield f"{head}>"
    yield f'      <failure type="failure" message={_attribute(case.lines[0])}>{_text(block(case))}</failure>'
    yield "    </testcase>"


def _properties(report: Report) -> Iterator[str]:
    if report.coverage is None:
        return
    found = {
        "coverage.percent": f"{report.coverage.percent:.1f}",
        "coverage.rules": str(report.coverage.rules),
        "coverage.tested": str(report.coverage.tested),
        **{f"coverage.untested.{each.name}": each.missing for each in report.coverage.untested},
    }
    for name, value in found.items():
        yield f"      <property name={_attribute(name)} value={_attribute(value)}/>"


def _attribute(text: str) -> str:
    return quoteattr(text.translate(_NO_XML))


def _text(text: str) -> str:
    return escape(text.translate(_NO_XML))
