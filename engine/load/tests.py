"""Tests of rules: promtool's format, the engine's additions to it, inline or in a file of their own.

A file of promtool's means here what it means there: exact sets of labels and annotations, of firing alerts
alone. In a rule file's own `tests:`, annotations that are not mentioned are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from engine.load.expressions import check_expr
from engine.load.matchers import Misread, parse_series
from engine.load.nodes import MappingNode, Node, ScalarNode, is_null
from engine.load.recordings import read_recordings
from engine.load.records import Decoder, Invalid, Reader
from engine.load.signals import MAX_SAMPLES, Part, Samples, find_part, generate, parse_values
from engine.model.alert import AlertState
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels
from engine.model.rule import Origin
from engine.model.testing import (
    AlertRuleTest,
    ExpectedAlert,
    ExpectedSample,
    InputSeries,
    Never,
    PromqlExprTest,
    RecordedSeries,
    Span,
    TestGroup,
    Timeline,
)

PROMTOOL_INTERVAL = Duration(minutes=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = {"pending": AlertState.PENDING, "firing": AlertState.FIRING, "inactive": None}

REFUSED = {
    "histogram": "native histograms are not supported",
    "metricsql_expr_test": "only PromQL is evaluated in tests; use promql_expr_test",
}
"""Why some fields of test files, here or elsewhere, are not known."""


def readers_of_tests(interval: Duration, *, inline: bool) -> Mapping[Any, Reader]:
    """Return how test groups are read whose samples are `interval` apart unless they say otherwise."""
    return {
        TestGroup: partial(_read_group, interval=interval),
        ExpectedAlert: partial(_read_expected_alert, inline=inline),
        AlertRuleTest: _read_alert_rule_test,
        PromqlExprTest: _read_promql_expr_test,
        ExpectedSample: _read_expected_sample,
        Never: _read_never,
        Timeline: _read_timeline,
        tuple[Span, ...]: _read_spans,
        datetime: _read_start,
    }


def _read_group(decoder: Decoder, node: Node, what: str, *, interval: Duration) -> TestGroup:
    """A test group. Its series are read once it is known how far apart samples are."""
    if not isinstance(node, MappingNode):
        raise decoder.fail(node, f"{what} must be a mapping, got {node}")
    given: dict[str, Any] = {"interval": _sample_interval(decoder, node, interval), "start": _EPOCH}
    for key in ("input_series", "input_signal"):
        if (series := node.get(key)) is not None:
            given[key] = tuple(_read_all_series(decoder, series, key, given["interval"]))
    if (files := node.get("input_files")) is not None:
        recorded: tuple[RecordedSeries, ...] = tuple(
            decoder.attempt(lambda: list(read_recordings(decoder, files))) or ()
        )
        given["input_files"] = recorded
        given["start"] = _first_sample(recorded)
    beside = ("interval", "input_series", "input_signal", "input_files")
    return decoder.record(node, TestGroup, given=given, beside=beside)


def _first_sample(recorded: Iterable[RecordedSeries]) -> datetime:
    """Return when a test begins that names no start: with the first sample that was recorded."""
    first = min((float(series.times[0]) for series in recorded), default=0.0)
    return _EPOCH + timedelta(seconds=first)


def _sample_interval(decoder: Decoder, node: MappingNode, default: Duration) -> Duration:
    written = node.get("interval")
    if written is None:
        return default
    try:
        interval: Duration = decoder.decode(written, Duration, "'interval'")
    except Invalid:
        return default
    if not interval:
        decoder.report(written, "'interval' must be longer than 0")
        return default
    return interval


def _read_all_series(decoder: Decoder, node: Node, key: str, interval: Duration) -> list[InputSeries]:
    found = {InputSeries: partial(_read_series, interval=interval, signal=key == "input_signal")}
    with decoder.reading(found):
        try:
            return list(decoder.sequence(node, InputSeries, repr(key)))
        except Invalid:
            return []


def _read_series(decoder: Decoder, node: Node, what: str, *, interval: Duration, signal: bool) -> InputSeries:
    """One series: what it is called, and its samples, written out or generated."""
    if not isinstance(node, MappingNode):
        raise decoder.fail(node, f"{what} must be a mapping, got {node}")
    name = "labels" if signal else "series"
    known = (name, "values", "generate", "until")
    for key, entry in node.entries.items():
        if key not in known:
            decoder.unknown(entry.key, key, known, what)
    read = _signal_labels if signal else _series_labels
    labels = decoder.attempt(lambda: read(decoder, node, what))
    samples = _samples(decoder, node, what, interval)
    if labels is None:
        raise Invalid
    return InputSeries(
        labels=labels, origin=Origin(decoder.path, node.line, node.column), **samples._asdict()
    )


def _signal_labels(decoder: Decoder, node: MappingNode, _what: str) -> Labels:
    written = node.get("labels")
    labels: Labels = Labels() if written is None else decoder.decode(written, Labels, "'labels'")
    return labels


def _series_labels(decoder: Decoder, node: MappingNode, what: str) -> Labels:
    written = node.get("series")
    if written is None:
        raise decoder.fail(node, f"{what} needs 'series', such as 'metric{{label=\"value\"}}'")
    labels = read_series_text(decoder, written, "'series'")
    if METRIC_NAME not in labels:
        decoder.report(written, "'series' needs the metric's name")
    return labels


def read_series_text(decoder: Decoder, node: Node, what: str) -> Labels:
    """Return the labels of a series written as text."""
    text: str = decoder.decode(node, str, what)
    try:
        return parse_series(text)
    except Misread as error:
        decoder.report_inside(node, error.offset, f"{what}: {error}")
        raise Invalid from None


def _samples(decoder: Decoder, node: MappingNode, what: str, interval: Duration) -> Samples:
    values, parts = node.get("values"), node.get("generate")
    if (values is None) == (parts is None):
        raise decoder.fail(node, f"{what} needs either 'values' or 'generate'")
    if parts is not None:
        return _generated(decoder, node, parts, interval)
    assert values is not None
    if (until := node.get("until")) is not None:
        decoder.report(until, "'until' goes with 'generate'; 'values' says itself how long it is")
    text: str = decoder.decode(values, str, "'values'")
    try:
        return parse_values(text)
    except Misread as error:
        decoder.report_inside(values, error.offset, f"'values': {error}")
        raise Invalid from None


def _generated(decoder: Decoder, node: MappingNode, written: Node, interval: Duration) -> Samples:
    readers: Mapping[Any, Reader] = {Part: lambda d, each, what: d.plugin(each, "part", find_part, what)}
    with decoder.reading(readers):
        parts = list(decoder.sequence(written, Part, "'generate'"))
    if (end := node.get("until")) is None:
        raise decoder.fail(written, "'generate' needs 'until', such as `until: 6h`")
    until: Duration = decoder.decode(end, Duration, "'until'")
    if until // interval >= MAX_SAMPLES:
        raise decoder.fail(end, f"'until' makes more than {MAX_SAMPLES} samples at an interval of {interval}")
    return generate(parts, interval, until)


def _read_start(decoder: Decoder, node: Node, what: str) -> datetime:
    """When the test begins: Unix seconds or RFC 3339."""
    if isinstance(node, ScalarNode):
        try:
            return _EPOCH + timedelta(seconds=float(node.value))
        except (ValueError, OverflowError):
            pass
        try:
            at = datetime.fromisoformat(node.value)
        except ValueError:
            at = None
        if at is not None and at.tzinfo is not None:
            return at.astimezone(UTC)
    example = "Unix seconds or a time such as 2026-03-01T12:00:00Z"
    raise decoder.fail(node, f"{what} must be {example}, got {node}")


def _read_expected_alert(decoder: Decoder, node: Node, _what: str, *, inline: bool) -> ExpectedAlert:
    """An alert that must be there; promtool compares annotations that are not mentioned with none at all."""
    given: dict[str, Any] = {} if inline else {"annotations": {}}
    return decoder.record(node, ExpectedAlert, "an expected alert", given=given)


def _read_alert_rule_test(decoder: Decoder, node: Node, _what: str) -> AlertRuleTest:
    given: dict[str, Any] = {}
    if isinstance(node, MappingNode) and (state := node.get("state")) is not None:
        given["state"] = decoder.choice(state, _STATES, "'state'")
    test = decoder.record(node, AlertRuleTest, given=given, beside=("state",))
    if test.state is None and test.exp_alerts:
        decoder.report(node, "`state: inactive` says that no alert is there; leave out exp_alerts")
    return test


def _read_promql_expr_test(decoder: Decoder, node: Node, _what: str) -> PromqlExprTest:
    if isinstance(node, MappingNode):
        check_expr(decoder, node.get("expr"))
    return decoder.record(node, PromqlExprTest, "a PromQL test")


def _read_expected_sample(decoder: Decoder, node: Node, _what: str) -> ExpectedSample:
    labels = Labels()
    if isinstance(node, MappingNode) and (written := node.get("labels")) is not None:
        labels = decoder.attempt(lambda: _sample_labels(decoder, written)) or labels
    given = {"labels": labels, "value": 0.0}  # promtool takes a missing value for 0
    return decoder.record(node, ExpectedSample, given=given, beside=("labels",))


def _sample_labels(decoder: Decoder, node: Node) -> Labels:
    if isinstance(node, ScalarNode) and node.value.strip() in ("", "{}"):
        return Labels()
    return read_series_text(decoder, node, "'labels'")


def _read_never(decoder: Decoder, node: Node, what: str) -> Never:
    """An alert's name alone, or with labels."""
    if isinstance(node, ScalarNode) and not is_null(node):
        return Never(alertname=node.value, origin=Origin(decoder.path, node.line, node.column))
    return decoder.record(node, Never, what)


def _read_timeline(decoder: Decoder, node: Node, what: str) -> Timeline:
    """When alerts are pending and when they fire; the spans must not overlap."""
    timeline = decoder.record(node, Timeline, what)
    spans = sorted([*timeline.pending, *timeline.firing], key=lambda span: span.start)
    for one, other in pairwise(spans):
        if one.end is None or one.end > other.start:
            decoder.report(node, f"{one} and {other} overlap; a span ends where the next one begins")
    return timeline


def _read_spans(decoder: Decoder, node: Node, what: str) -> tuple[Span, ...]:
    """One span or a list of them: `12m..15m`, or `12m..` to the test's end."""
    if isinstance(node, ScalarNode):
        return (_read_span(decoder, node, what),)
    with decoder.reading({Span: _read_span}):
        return tuple(decoder.sequence(node, Span, what))


def _read_span(decoder: Decoder, node: Node, what: str) -> Span:
    if isinstance(node, ScalarNode):
        start, dots, end = (part.strip() for part in node.value.partition(".."))
        try:
            span = Span(Duration.parse(start), Duration.parse(end) if end else None)
        except ValueError:
            dots = ""
        if dots and (span.end is None or span.end > span.start):
            return span
    raise decoder.fail(node, f"{what} must be a span such as 12m..15m, or 12m.. to the end, got {node}")
