"""Expanding templates: text, values, and what a template may not do."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TemplateError
from engine.lang.template import expand, parse
from engine.model.labels import Labels, quote
from tests.unit.lang.template.cases import CASES, DATA, FAILING, VALUES, answer

ALL = [pytest.param(*case, id=f"{topic}: {case[0][:60]}") for topic, cases in CASES.items() for case in cases]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
FACTS = {
    "detect": {"eta": 5400.0, "samples": 12},
    "plan": {
        "largest_owner": {"submission_id": "raysubmit_1", "bytes": 5e9},
        "jobs": [{"id": "a"}, {"id": "b"}],
    },
    "identity": {"node": "head"},
}


@pytest.mark.parametrize(("text", "expected"), ALL)
def test_a_template_comes_to_what_prometheus_makes_of_it(text, expected):
    assert parse(text).render(DATA, query=answer) == expected


@pytest.mark.parametrize(("value", "text", "expected"), VALUES)
def test_a_value_prints_as_in_go(value, text, expected):
    assert parse(text).render({**DATA, "value": value}) == expected


@pytest.mark.parametrize(("text", "message"), FAILING)
def test_what_cannot_be_expanded_is_an_error_that_says_why(text, message):
    with pytest.raises(TemplateError) as caught:
        parse(text).render(DATA, query=answer)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ externalURL }} {{ pathPrefix }}", "http://p.example/base /base"),
        ("{{ now }} {{ now | humanizeTimestamp }}", "1.767323045e+09 2026-01-02 03:04:05 +0000 UTC"),
        ('{{ now | toTime | printf "%s" }}', "2026-01-02 03:04:05 +0000 UTC"),
        ("{{ toDuration 5400.5 }} {{ (toDuration 90).Minutes }}", "1h30m0.5s 1.5"),
        ("{{ toDuration 0.0015 }} {{ toDuration 0.0000015 }} {{ toDuration -61 }}", "1.5ms 1.5µs -1m1s"),
        ("{{ (toTime now).Add (toDuration 60) }}", "2026-01-02 03:05:05 +0000 UTC"),
        ('{{ urlQueryEscape "a b&c" }}', "a+b%26c"),
        ('{{ define "t" }}<{{ . }}>{{ end }}{{ tmpl "t" 5 | toUpper }} {{ tmpl "t" 6 | len }}', "<5> 3"),
    ],
)
def test_functions_that_promtool_cannot_check_follow_the_documentation(text, expected):
    assert parse(text).render(DATA, now=NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ $detect.eta }} {{ .Detect.eta }} {{ $.Detect.eta | humanizeDuration }}", "5400 5400 1h 30m 0s"),
        ("{{ $detect.samples }}", "12"),
        ("{{ $plan.largest_owner.submission_id }}", "raysubmit_1"),
        (
            "{{ with $plan.largest_owner }}{{ .submission_id }} {{ humanize .bytes }}{{ end }}",
            "raysubmit_1 5G",
        ),
        (
            "{{ range $plan.jobs }}{{ .id }}{{ end }} {{ len $plan.jobs }} {{ (index $plan.jobs 1).id }}",
            "ab 2 b",
        ),
        ("{{ $identity.node }}", "head"),
        ('{{ if index $detect "slope" }}a{{ else }}no slope{{ end }}', "no slope"),
        ("{{ $detect }}", "map[eta:5400 samples:12]"),
        (
            "{{ . }}",
            "{map[] map[]  map[eta:5400 samples:12] map[jobs:[map[id:a] map[id:b]] largest_owner:map[bytes:5e+09 submission_id:raysubmit_1]] map[node:head]}",
        ),
    ],
)
def test_the_engines_facts_read_like_prometheus_own(text, expected):
    assert parse(text).render(FACTS) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ $detect.eat }}", "$detect has no 'eat'; did you mean 'eta'?"),
        ("{{ .Detect.eat }}", "$detect has no 'eat'; did you mean 'eta'?"),
        ("{{ $plan.largest_owner.name }}", "$plan.largest_owner has no 'name'; known: bytes, submission_id"),
        ("{{ range $plan.jobs }}{{ .name }}{{ end }}", "$plan.jobs[0] has no 'name'; known: id"),
        ("{{ $value }}", "$value is not known here"),
        ("{{ now }}", "error calling now: the time is not available here"),
        ('{{ query "up" }}', "error calling query: queries are not available here"),
    ],
)
def test_a_missing_fact_is_named(text, message):
    with pytest.raises(TemplateError) as caught:
        parse(text).render(FACTS)
    assert message in str(caught.value)


def test_a_fact_that_nobody_reads_may_be_anything():
    assert parse("{{ $labels.job }}").render({"labels": {"job": "x"}, "plan": object()}) == "x"


def test_numbers_of_numpy_print_as_numbers():
    data = {"detect": {"a": np.float64(1e6), "b": np.int64(7), "c": np.float32(0.5)}}
    assert parse("{{ $detect.a }} {{ $detect.b }} {{ $detect.c }}").render(data) == "1e+06 7 0.5"


@pytest.mark.parametrize(
    "name", ["__class__", "__init__", "render", "items", "_pairs", "fingerprint", "real"]
)
@pytest.mark.parametrize(
    "base", ["$labels", "$plan", "$value", ".", "$", "$detect.when", "(toTime 1)", "$detect"]
)
def test_no_attribute_of_python_can_be_reached(base, name):
    text = f"{{{{ with {base} }}}}{{{{ .{name} }}}}{{{{ end }}}}"
    rendered = expand(
        text,
        {
            **FACTS,
            "labels": Labels(a="b"),
            "value": 1.0,
            "detect": {"when": datetime(2026, 1, 1, tzinfo=UTC)},
        },
    )
    assert rendered == "" or rendered.startswith("<error expanding template: ")


def test_an_error_has_line_and_column_of_what_failed():
    with pytest.raises(TemplateError) as caught:
        parse("a\n  {{ $labels.job | first }}").render(DATA)
    assert (caught.value.line, caught.value.column) == (2, 20)


def test_expand_gives_a_text_for_a_template_that_fails():
    assert expand("{{ $labels.job }}", DATA) == "ray"
    assert expand("a {{ len 3 }}", DATA) == (
        "<error expanding template: line 1, column 6: error calling len: len of type int>"
    )
    assert expand("{{ if }}", DATA) == "<error expanding template: line 1, column 7: missing value for if>"


class TestEscape:
    def test_applies_to_what_actions_insert_and_not_to_the_template(self):
        text = '"{{ $labels.text }}" {{ define "t" }}"{{ . }}"{{ end }}{{ template "t" $labels.text }}'
        escaped = parse(text).render(DATA, escape=lambda value: quote(value)[1:-1])
        assert escaped == '"say \\"hi\\" \\\\o/" "say \\"hi\\" \\\\o/"'

    def test_applies_once_to_what_tmpl_returns(self):
        text = '{{ define "t" }}{{ . }}{{ end }}{{ tmpl "t" "a" }}'
        assert parse(text).render(DATA, escape=lambda value: f"<{value}>") == "<a>"

    @given(st.text(alphabet=st.characters(codec="utf-8")))
    def test_keeps_a_label_inside_its_promql_string(self, value):
        rendered = parse('up{a="{{ $labels.a }}"}').render(
            {"labels": {"a": value}}, escape=lambda text: quote(text)[1:-1]
        )
        assert rendered == f"up{{a={quote(value)}}}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ range 1000000000 }}{{ end }}",
        "{{ range 100000 }}{{ printf `%1000d` . }}{{ end }}",
        "{{ range 100000 }}{{ printf `%900000d` . | title | len }}{{ end }}",
        "{{ printf `%9999999999d` 1 }}",
        "{{ printf `%.9999999f` 1.0 }}",
        '{{ $x := "ab" }}{{ range 40 }}{{ $x = print $x $x }}{{ end }}',
        "{{ $x := args 1 }}{{ range 40 }}{{ $x = args $x $x }}{{ end }}{{ $x }}",
        "{{ $x := args 1 }}{{ range 400 }}{{ $x = args $x }}{{ end }}{{ $x }}",
        '{{ reReplaceAll "" (printf "%100000d" 1) (printf "%1000d" 1) }}',
        '{{ define "a" }}{{ template "b" }}{{ end }}{{ define "b" }}{{ template "a" }}{{ end }}{{ template "a" }}',
        '{{ define "a" }}{{ tmpl "a" . }}{{ end }}{{ template "a" 1 }}',
        '{{ define "a" }}{{ range 100 }}{{ range 100 }}{{ range 100 }}{{ end }}{{ end }}{{ end }}{{ end }}{{ template "a" }}',
    ],
)
def test_work_is_bounded(text):
    with pytest.raises(TemplateError):
        parse(text).render(DATA)


def test_bytes_that_are_no_text_come_out_as_replacement_characters():
    assert parse(r'{{ "\xff" }} {{ slice "é" 0 1 }}').render({}) == "\ufffd \ufffd"
    assert parse("{{ $labels.a | len }} {{ $labels.a }}").render({"labels": {"a": "\ud800"}}) == "3 \ufffd"
