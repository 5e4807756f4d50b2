"""Whether the embedded evaluator and a real Prometheus tell the same story."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from engine.errors import ExpressionError, QueryError
from engine.lab.alert_check import close, same_text
from engine.lab.story import Moment, Story
from engine.lab.tester import TOLERANCE, Bench, OpenGround, Result, live, samples
from engine.model.alert import Alert
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.testing import PromqlExprTest, TestGroup

_SHOWN = 10  # differences of one test


class CrossCheck:
    """Lives each test through a second time, on a real server, and notes every difference."""

    def __init__(self, file: str, bench: Bench, ground: OpenGround, into: list[str]) -> None:
        self._file = file
        self._bench = bench
        self._ground = ground
        self.differences = into

    def __call__(self, test: TestGroup, story: Story, result: Result) -> None:
        """Compare the story of a test with that of the server."""
        bench = self._bench
        with self._ground(test, test.interval or bench.interval, bench.interval) as ground:
            theirs = live(test, bench, ground)
            found = list(islice(differences(test, story, theirs), _SHOWN + 1))
        where = f"{self._file}: {result.name}"
        self.differences += [f"DIFF {where}: {text}" for text in found[:_SHOWN]]
        if len(found) > _SHOWN:
            self.differences.append(f"DIFF {where}: … and more")


def differences(test: TestGroup, ours: Story, theirs: Story) -> Iterator[str]:
    """Yield what is different: alerts, their states, values and texts at every slot, and the samples asked for."""
    for mine, other in zip(ours.moments, theirs.moments, strict=True):
        after = Duration.of(mine.at - ours.start)
        yield from (f"@ {after}: {text}" for text in _of_moment(mine, other))
    for it in test.promql_expr_test:
        yield from (f"promql_expr_test @ {it.eval_time}: {text}" for text in _of_samples(it, ours, theirs))


def _of_moment(ours: Moment, theirs: Moment) -> Iterator[str]:
    for rule_id in sorted({*ours.errors} ^ {*theirs.errors}):
        said = ours.errors.get(rule_id, "an answer"), theirs.errors.get(rule_id, "an answer")
        yield f"{rule_id}: embedded: {said[0]}; Prometheus: {said[1]}"
    mine, other = _by_labels(ours), _by_labels(theirs)
    for labels in sorted({*mine, *other}, key=str):
        yield from (f"{labels}: {text}" for text in _of_alert(mine.get(labels), other.get(labels)))


def _by_labels(moment: Moment) -> dict[Labels, Alert]:
    return {alert.labels: alert for alert in moment.alerts}


def _of_alert(ours: Alert | None, theirs: Alert | None) -> Iterator[str]:
    if ours is None or theirs is None:
        yield f"embedded: {_state(ours)}; Prometheus: {_state(theirs)}"
        return
    if ours.state is not theirs.state or ours.active_at != theirs.active_at:
        yield f"embedded: {_state(ours)}; Prometheus: {_state(theirs)}"
    if not close(ours.value, theirs.value, TOLERANCE):
        yield f"embedded: value {ours.value!r}; Prometheus: {theirs.value!r}"
    for name in sorted({*ours.annotations, *theirs.annotations}):
        texts = ours.annotations.get(name, ""), theirs.annotations.get(name, "")
        if not same_text(*texts, TOLERANCE):
            yield f"embedded: {name}: {texts[0]}; Prometheus: {texts[1]}"


def _state(alert: Alert | None) -> str:
    return "nothing" if alert is None else f"{alert.state.value} since {alert.active_at:%H:%M:%S}"


def _of_samples(it: PromqlExprTest, ours: Story, theirs: Story) -> Iterator[str]:
    mine, other = _samples(ours, it), _samples(theirs, it)
    if isinstance(mine, str) or isinstance(other, str):
        if isinstance(mine, str) is not isinstance(other, str):
            yield f"embedded: {mine}; Prometheus: {other}"
        return
    for labels in sorted({*mine, *other}, key=str):
        one, two = mine.get(labels), other.get(labels)
        if one is None or two is None or not close(one, two, TOLERANCE):
            yield f"{labels}: embedded: {one}; Prometheus: {two}"


def _samples(story: Story, it: PromqlExprTest) -> dict[Labels, float] | str:
    try:
        return samples(story, it)
    except (ExpressionError, QueryError) as error:
        return str(error)
