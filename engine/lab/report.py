"""What a person reads after `engine test-rule`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.lab.files import FileResult
from engine.lab.tester import Failure, Result

if TYPE_CHECKING:
    from engine.lab.coverage import Coverage
    from engine.lab.mutation import Mutation

Line = tuple[str, str]
"""(style, text); the style is one of bad, good, plain, faint."""


Lives = Mapping[str, Sequence[Mapping[str, object]]]
"""When alerts of a name were pending and when they fired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that came of one call. What was not asked for is None."""

    files: Sequence[FileResult]
    seconds: float
    coverage: Coverage | None = None
    mutation: Mutation | None = None
    differences: Sequence[str] | None = None  # between the embedded evaluator and a real server
    charts: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)  # by file and test
    lives: Mapping[tuple[str, str], Lives] = field(default_factory=dict)  # as above, and then by alert

    @property
    def results(self) -> list[Result]:
        """All tests."""
        return [result for file in self.files for result in file.results]

    @property
    def failed(self) -> bool:
        """Whether any expectation did not hold."""
        return any(file.failed for file in self.files)


def lines(report: Report, *, verbose: bool) -> Iterator[Line]:
    """Yield the lines of the report."""
    for file in report.files:
        for warning in file.warnings:
            yield "faint", f"warning: {file.file}: {warning}"
        for result in file.results:
            chart = report.charts.get((file.file, result.name), ())
            if verbose or result.failures or chart:
                word = "FAIL" if result.failures else "ok"
                yield ("bad" if result.failures else "good"), f"{word:4} {file.file}: {result.name}"
            for failure in result.failures:
                yield from _failure(failure)
            for line in chart:
                yield "plain", f"  {line}".rstrip()
    for difference in report.differences or ():
        yield "bad", difference
    yield from _extras(report)
    yield _summary(report)


def block(failure: Failure) -> str:
    """Return a failure as text, as the report shows it."""
    return "\n".join(text for _, text in _failure(failure))


def _failure(failure: Failure) -> Iterator[Line]:
    yield "plain", f"  {failure.origin.file}:{failure.origin.line}: {failure.what}"
    for line in failure.lines:
        style = "good" if line.startswith("- ") else "bad" if line.startswith("+ ") else "plain"
        yield style, f"    {line}"


def _extras(report: Report) -> Iterator[Line]:
    if report.mutation is not None:
        from engine.lab import mutation  # noqa: PLC0415 - few ask

        for text in mutation.lines(report.mutation):
            yield ("plain" if text.startswith("mutants") else "bad"), text
    if report.coverage is not None:
        from engine.lab import coverage  # noqa: PLC0415

        for text in coverage.lines(report.coverage):
            yield ("plain" if text.startswith("coverage") else "bad"), text


def _summary(report: Report) -> Line:
    results = report.results
    bad = sum(bool(result.failures) for result in results)
    asserted = sum(result.assertions for result in results)
    text = (
        f"{_count(len(results), 'test')}, {_count(asserted, 'assertion')}: {len(results) - bad} passed, {bad} failed "
        f"in {report.seconds:.2f} s" + ("   (- expected, + got)" if bad else "")
    )
    return ("bad" if bad else "good"), text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
