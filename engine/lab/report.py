"""What a person reads after `engine test-rule`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.lab.tester import Failure, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What became of the tests of one file."""

    file: str
    results: tuple[Result, ...]
    warnings: tuple[str, ...] = ()


def failed(files: Sequence[FileResult]) -> bool:
    """Tell whether any expectation did not hold."""
    return any(result.failures for file in files for result in file.results)


def lines(files: Sequence[FileResult], seconds: float, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield (style, text) of each line; the style is one of bad, good, plain, faint."""
    for file in files:
        for warning in file.warnings:
            yield "faint", f"warning: {file.file}: {warning}"
        for result in file.results:
            if verbose or result.failures:
                word = "FAIL" if result.failures else "ok"
                yield ("bad" if result.failures else "good"), f"{word:4} {file.file}: {result.name}"
            for failure in result.failures:
                yield from _failure(failure)
    yield _summary(files, seconds)


def _failure(failure: Failure) -> Iterator[tuple[str, str]]:
    yield "plain", f"  {failure.origin.file}:{failure.origin.line}: {failure.what}"
    for line in failure.lines:
        style = "good" if line.startswith("- ") else "bad" if line.startswith("+ ") else "plain"
        yield style, f"    {line}"


def _summary(files: Sequence[FileResult], seconds: float) -> tuple[str, str]:
    results = [result for file in files for result in file.results]
    bad = sum(bool(result.failures) for result in results)
    asserted = sum(result.assertions for result in results)
    text = (
        f"{_count(len(results), 'test')}, {_count(asserted, 'assertion')}: {len(results) - bad} passed, {bad} failed "
        f"in {seconds:.2f} s" + ("   (- expected, + got)" if bad else "")
    )
    return ("bad" if bad else "good"), text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
