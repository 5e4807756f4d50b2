"""Labels and annotations of alerts, as Prometheus makes them of a result and a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from engine.alert.render import Surroundings, findings
from engine.alert.tracker import Finding
from engine.detect.present import Present
from engine.errors import DetectError, QueryUnavailable
from engine.model.labels import Labels
from engine.model.rule import AlertingRule, Origin
from engine.model.verdict import Verdicts


def a_rule(
    labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> AlertingRule:
    return AlertingRule(
        alert="Hot",
        expr="temperature",
        labels=labels or {},
        annotations=annotations or {},
        detect=Present(),
        origin=Origin("rules.yaml", 7, 9),
    )


def verdicts(*results: Labels, bad: bool = True, known: bool = True, **details: list[float]) -> Verdicts:
    count = len(results)
    return Verdicts(
        labels=results,
        bad=np.full(count, bad),
        known=np.full(count, known),
        values=np.arange(60.0, 60.0 + count),
        details={name: np.array(column) for name, column in details.items()},
    )


def only(rule: AlertingRule, found: Verdicts, around: Surroundings | None = None) -> Finding:
    (finding,) = findings(rule, found, around or Surroundings())
    return finding


RESULT = Labels({"__name__": "temperature", "room": "a", "severity": "of the series"})


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"alertname": "Hot", "room": "a", "severity": "of the series"}),
        ({"severity": "page"}, {"alertname": "Hot", "room": "a", "severity": "page"}),
        ({"severity": ""}, {"alertname": "Hot", "room": "a"}),  # an empty label removes the result's
        (
            {"alertname": "Other"},
            {"alertname": "Hot", "room": "a", "severity": "of the series"},
        ),  # the rule's name wins
        (
            {"severity": "page", "copy": "{{ $labels.severity }}"},
            {"alertname": "Hot", "room": "a", "severity": "page", "copy": "of the series"},
        ),  # templates see the result's labels, not the rule's
        (
            {"name": "{{ $labels.alertname }}", "metric": "{{ $labels.__name__ }}"},
            {"alertname": "Hot", "room": "a", "severity": "of the series", "metric": "temperature"},
        ),
        (
            {
                "level": "{{ if gt $value 50.0 }}high{{ end }}",
                "severity": "{{ if lt $value 50.0 }}low{{ end }}",
            },
            {"alertname": "Hot", "room": "a", "level": "high"},
        ),
    ],
)
def test_the_rules_labels_are_laid_over_the_results_and_the_name_over_all(
    own: dict[str, str], expected: dict[str, str]
) -> None:
    finding = only(a_rule(own), verdicts(RESULT))
    assert finding.labels == expected
    assert finding.signal == {"room": "a", "severity": "of the series"}, "the series, less the metric's name"


def test_a_result_that_names_an_alert_does_not_rename_this_one() -> None:
    finding = only(a_rule(), verdicts(Labels(alertname="Cold", alertstate="firing")))
    assert finding.labels == {"alertname": "Hot", "alertstate": "firing"}


def test_annotations_may_use_all_that_is_known() -> None:
    text = (
        "{{ $labels.room }} {{ .Labels.room }} {{ $value }} {{ $detect.eta }} "
        "{{ $externalLabels.site }} {{ $externalURL }} {{ with query `up` }}{{ . | first | value }}{{ end }}"
    )
    around = Surroundings(
        external_labels={"site": "x"},
        external_url="http://engine",
        query=lambda expr: [(Labels(), len(expr))],
    )
    finding = only(a_rule(annotations={"summary": text}), verdicts(RESULT, eta=[5.0]), around)
    assert finding.annotations == {"summary": "a a 60 5 x http://engine 2"}
    assert finding.details == {"eta": 5.0}


def test_a_figure_that_the_detector_does_not_have_is_left_out() -> None:
    rule = a_rule(annotations={"summary": "{{ $detect.slope }}"})
    finding = only(rule, verdicts(RESULT, eta=[float("nan")], slope=[2.0]))
    assert finding.details == {"slope": 2.0}
    assert finding.annotations == {"summary": "2"}


@pytest.mark.parametrize("text", ["{{ $labels.room | humanize }}", "{{ nosuch }}", "{{ if }}"])
def test_a_template_that_fails_becomes_text_that_says_so(text: str) -> None:
    finding = only(a_rule({"broken": text}, {"summary": text, "whole": "fine"}), verdicts(RESULT))
    assert finding.annotations["summary"].startswith("<error expanding template: line 1, column ")
    assert finding.annotations["whole"] == "fine"
    assert finding.labels["broken"].startswith("<error expanding template: ")


def test_a_query_in_a_template_that_gets_no_answer_becomes_text() -> None:
    def away(expr: str) -> list[tuple[Labels, float]]:
        raise QueryUnavailable("prometheus: connection refused")

    rule = a_rule(annotations={"summary": "{{ query `up` }}"})
    finding = only(rule, verdicts(RESULT), Surroundings(query=away))
    assert "connection refused" in finding.annotations["summary"]


def test_two_results_that_become_one_alert_are_an_error_that_names_the_rule_and_the_labels() -> None:
    results = [Labels(room="a", sensor="1"), Labels(room="a", sensor="2")]
    assert len(findings(a_rule(), verdicts(*results), Surroundings())) == 2
    with pytest.raises(DetectError, match=r'rules\.yaml:7:9: Hot: .*\{alertname="Hot", room="a"\}'):
        findings(a_rule({"sensor": ""}), verdicts(*results), Surroundings())


def test_results_that_differ_in_their_metric_alone_are_one_alert() -> None:
    results = [Labels({"__name__": name, "room": "a"}) for name in ("t1", "t2")]
    with pytest.raises(DetectError):
        findings(a_rule(), verdicts(*results), Surroundings())


@pytest.mark.parametrize(
    ("bad", "known", "expected"),
    [(True, True, True), (False, True, False), (True, False, None), (False, False, None)],
)
def test_a_verdict_is_bad_good_or_unknown(bad: bool, known: bool, expected: bool | None) -> None:
    finding = only(a_rule(annotations={"summary": "x"}), verdicts(RESULT, bad=bad, known=known))
    assert finding.bad is expected
    assert finding.annotations == ({"summary": "x"} if expected else {}), "nobody reads the others"


def test_each_result_is_rendered_with_its_own_value() -> None:
    rule = a_rule(annotations={"summary": "{{ $labels.room }}={{ $value }}"})
    found = findings(rule, verdicts(Labels(room="a"), Labels(room="b")), Surroundings())
    assert [finding.annotations["summary"] for finding in found] == ["a=60", "b=61"]


@pytest.mark.parametrize(
    "text",
    [
        "page", "", "{{ $labels.room }}", "{{ .Labels.sensor }}", "{{ $value }}", "{{ $detect.eta }}", "{{ $externalURL }}",
        "{{ query `up` | first | value }}", "{{ now }}", "{{ range $name, $text := $labels }}{{ $name }}{{ end }}",
        "{{ . }}", "{{ with . }}{{ .Value }}{{ end }}", "{{ $labels.room | humanize }}", "{{ if }}", "{{ $externalLabels.site }}",
    ],
)  # fmt: skip
def test_an_alert_has_the_same_labels_whatever_the_verdict(text: str) -> None:
    rule = a_rule({"own": text})
    for round_ in range(3):  # figures change; what was found before must not stay
        around = Surroundings(
            external_labels={"site": str(round_)},
            external_url=f"http://{round_}",
            query=lambda expr, value=round_: [(Labels(), float(value))],
            now=1000.0 * round_,
        )
        results = [Labels(room="a", sensor="1"), Labels(room="b")]
        made = [
            replace(verdicts(*results, eta=[float(round_)] * 2, bad=bad), values=np.full(2, float(round_)))
            for bad in (True, False)
        ]
        bad, good = ([finding.labels for finding in findings(rule, each, around)] for each in made)
        assert bad == good
