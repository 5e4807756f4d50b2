"""What a template reads, found without expanding it."""

import pytest

from engine.errors import TemplateError
from engine.lang.template import variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", set()),
        ("{{ $value }} {{ .Value }}", {("value",)}),
        (
            "{{ $labels.instance }} {{ .Labels.instance }} {{ $.Labels.job }}",
            {("labels", "instance"), ("labels", "job")},
        ),
        ("{{ $detect.eta | humanizeDuration }}", {("detect", "eta")}),
        ('{{ printf "%.2f" $detect.slope_per_hour }}', {("detect", "slope_per_hour")}),
        ("{{ $plan.largest_owner.submission_id }}", {("plan", "largest_owner", "submission_id")}),
        (
            "{{ with $plan.largest_owner }}{{ .submission_id }}{{ $identity.node }}{{ else }}{{ .Value }}{{ end }}",
            {
                ("plan", "largest_owner"),
                ("plan", "largest_owner", "submission_id"),
                ("identity", "node"),
                ("value",),
            },
        ),
        (
            "{{ $o := $plan.largest_owner }}{{ $o.id }}",
            {("plan", "largest_owner"), ("plan", "largest_owner", "id")},
        ),
        ("{{ range $plan.jobs }}{{ .id }}{{ $.Value }}{{ end }}", {("plan", "jobs"), ("value",)}),
        ("{{ range $i, $job := $plan.jobs }}{{ $job.id }}{{ end }}", {("plan", "jobs")}),
        ("{{ $labels := 5 }}{{ print $labels }}", set()),
        ("{{ if $detect.eta }}{{ $value := 1 }}{{ end }}{{ $value }}", {("detect", "eta"), ("value",)}),
        ('{{ index $detect "eta" }}', {("detect",), ("detect", "eta")}),
        (
            '{{ (index $plan "a").b }} {{ ($plan).c }}',
            {("plan",), ("plan", "a"), ("plan", "a", "b"), ("plan", "c")},
        ),
        ('{{ define "t" }}{{ .eta }}{{ end }}{{ template "t" $detect }}', {("detect",), ("detect", "eta")}),
        ('{{ define "t" }}{{ .eta }}{{ end }}{{ tmpl "t" .Detect }}', {("detect",), ("detect", "eta")}),
        ('{{ define "t" }}{{ template "t" . }}{{ .Value }}{{ end }}{{ template "t" . }}', {("value",)}),
        ('{{ define "t" }}{{ .Value }}{{ end }}unused', set()),
        ("{{ first (query (print $labels.a)) | value | humanize }}", {("labels", "a")}),
        ("{{ (query $labels.a | first).Value }}", {("labels", "a")}),
    ],
)
def test_every_path_that_a_template_reads_is_found(text, expected):
    assert variables(text) == expected


def test_a_template_that_does_not_parse_reads_nothing():
    with pytest.raises(TemplateError):
        variables("{{ if }}")


@pytest.mark.parametrize(
    "text",
    [
        '{{ define "t" }}{{ template "t" .x }}{{ template "t" .y }}{{ template "t" .z }}{{ end }}{{ template "t" .Plan }}',
        "".join(f'{{{{ define "{n}" }}}}{{{{ template "{n + 1}" . }}}}{{{{ end }}}}' for n in range(3000))
        + '{{ template "0" .Plan }}',
    ],
)
def test_finding_ends_however_templates_call_each_other(text):
    assert ("plan",) in variables(text)
