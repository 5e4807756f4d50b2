"""Alerts made of alerts."""

import numpy as np
import pytest

from engine.detect.composite import Composite
from engine.lang.promql import Storage
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.query.embedded import EmbeddedSource

NOW = 1_800_000_000.0
NODES = [Labels(__name__="latency", instance=f"n{index}", cluster="c") for index in range(4)]


def judge(example, *alerts, signal=NODES):
    """The verdicts while these alerts are there: name, instance and state."""
    storage = Storage()
    for name, instance, *state in alerts:
        labels = Labels(
            __name__="ALERTS",
            alertname=name,
            alertstate=(state or ["firing"])[0],
            instance=instance,
            severity="page",
        )
        storage.add(labels, [round(NOW * 1000)], np.ones(1), [False])
    source = EmbeddedSource(storage)
    inputs = {name: source.instant(text, instant_of(NOW)) for name, text in example.inputs.items()}
    window = Window.of(signal, [NOW], [[float(index)] for index in range(len(signal))])
    verdicts = example.judge(window, inputs, instant_of(NOW))
    assert verdicts.known.all()
    return [each["instance"] for each, bad in zip(verdicts.labels, verdicts.bad, strict=True) if bad]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("A", ["n0", "n1"]),
        ("A and B", ["n1"]),
        ("A or B", ["n0", "n1", "n2"]),
        ("A unless B", ["n0"]),
        ("B unless A", ["n2"]),
        ("C or A and B", ["n1", "n3"]),
        ("(C or A) and B", ["n1"]),
        ("C or (A unless B)", ["n0", "n3"]),
        ('A{severity="page"}', ["n0", "n1"]),
        ('A{severity="none"}', []),
        ("D", []),
        ("A unless D", ["n0", "n1"]),
    ],
)
def test_alerts_are_joined_by_the_labels_they_share(when, expected):
    alerts = [("A", "n0"), ("A", "n1"), ("B", "n1"), ("B", "n2"), ("C", "n3"), ("D", "n0", "pending")]
    assert judge(Composite(when=when, on=("instance",)), *alerts) == expected


def test_without_labels_they_may_fire_anywhere():
    assert judge(Composite(when="A unless B"), ("A", "n7")) == ["n0", "n1", "n2", "n3"]
    assert judge(Composite(when="A unless B"), ("A", "n7"), ("B", "n8")) == []


def test_a_label_that_an_alert_does_not_have_is_empty():
    assert judge(Composite(when="A", on=("cluster",)), ("A", "n0")) == []
    assert judge(Composite(when="A", on=("zone",)), ("A", "n0")) == ["n0", "n1", "n2", "n3"]


def test_it_knows_the_names():
    assert Composite(when='A and (B{x="y"} unless A) or C').alerts == ("A", "B", "C")


@pytest.mark.parametrize(
    "when", ["", "A and", "A + B", "1", "rate(A[5m])", "A offset 5m", '{severity="page"}', "not A"]
)
def test_what_is_no_combination_of_alerts_is_refused(when):
    with pytest.raises(ValueError, match="when: "):
        Composite(when=when)
