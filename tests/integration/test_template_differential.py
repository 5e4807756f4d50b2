"""Holds the template language against Prometheus' own, by way of a real promtool.

The templates are the annotations of an alert and the engine's texts are the `exp_annotations` of its test, so
that promtool itself says which differ.
"""

import re
import subprocess

import pytest
import yaml

from engine.errors import TemplateError
from engine.lang.template import parse
from engine.model.labels import Labels
from tests.unit.lang.template.cases import (
    CASES,
    DATA,
    EXTERNAL_LABELS,
    EXTERNAL_URL,
    FAILING,
    LABELS,
    UNPARSABLE,
    VALUES,
    answer,
)


def _rule(name, templates):
    return {"alert": name, "expr": f'm{{rule="{name}"}}', "annotations": templates}


def _write(folder, rules, tests):
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    (folder / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [tests]}))


def _selector(labels):
    """The series as promtool reads it."""
    return str(Labels({"__name__": "m", **labels}))


def _test(expected, values):
    """One test group: for each rule its value and the annotations that it must have."""
    plain = {name: text for name, text in LABELS.items() if name != "__name__"}
    series = [
        {"series": _selector(plain | {"rule": rule}), "values": value} for rule, value in values.items()
    ]
    up = [
        {"series": f'up{{instance="{name}", job="x"}}', "values": value}
        for name, value in (("a", "1"), ("b", "0"))
    ]
    return {
        "interval": "1m",
        "external_labels": EXTERNAL_LABELS,
        "external_url": EXTERNAL_URL,
        "input_series": series + up,
        "alert_rule_test": [
            {
                "eval_time": "0m",
                "alertname": rule,
                "exp_alerts": [{"exp_labels": plain | {"rule": rule}, "exp_annotations": annotations}],
            }
            for rule, annotations in expected.items()
        ],
    }


def _promtool(prometheus_bin, folder, *arguments):
    done = subprocess.run(
        [prometheus_bin / "promtool", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _render(text, rule, value=DATA["value"]):
    labels = LABELS.updated({"rule": rule})
    return parse(text).render({**DATA, "labels": labels, "value": value}, query=answer)


def test_promtool_finds_every_text_as_expected(prometheus_bin, tmp_path):
    templates = [text for cases in CASES.values() for text, _ in cases]
    by_rule = {"Cases": {f"c{index:04}": text for index, text in enumerate(templates)}}
    values = {"Cases": str(DATA["value"])}
    for index, (value, text, _) in enumerate(VALUES):
        by_rule[f"Value{index}"] = {"text": text}
        values[f"Value{index}"] = str(value)
    expected = {
        rule: {name: _render(text, rule, float(values[rule])) for name, text in annotations.items()}
        for rule, annotations in by_rule.items()
    }
    _write(
        tmp_path, [_rule(name, annotations) for name, annotations in by_rule.items()], _test(expected, values)
    )
    code, output = _promtool(prometheus_bin, tmp_path, "test", "rules", "tests.yml")
    assert code == 0, output


def test_promtool_fails_where_the_engine_does(prometheus_bin, tmp_path):
    """What promtool got is read from its complaint: every text must be that of a failed template."""
    annotations = {f"c{index:04}": text for index, (text, _) in enumerate(FAILING)}
    _write(tmp_path, [_rule("Failing", annotations)], _test({"Failing": {}}, {"Failing": "1"}))
    _, output = _promtool(prometheus_bin, tmp_path, "test", "rules", "tests.yml")
    got = dict(re.findall(r'(c\d{4})="((?:[^"\\]|\\.)*)"', output.split("got:", 1)[-1]))
    assert set(got) == set(annotations)
    assert {
        annotations[name]: text
        for name, text in got.items()
        if not text.startswith("<error expanding template")
    } == {}


def test_promtool_refuses_to_load_what_the_engine_refuses(prometheus_bin, tmp_path):
    _write(tmp_path, [_rule(f"A{index}", {"c": text}) for index, (text, *_) in enumerate(UNPARSABLE)], {})
    _, output = _promtool(prometheus_bin, tmp_path, "check", "rules", "rules.yml")
    refused = {int(number) - 1 for number in re.findall(r'rule (\d+), "A\d+": annotation "c"', output)}
    assert [text for index, (text, *_) in enumerate(UNPARSABLE) if index not in refused] == []


@pytest.mark.parametrize("text", ["{{ 1i }}", "{{ $undeclared = 1 }}"])
def test_the_engine_is_stricter_where_it_says_so(prometheus_bin, tmp_path, text):
    """Complex numbers are left out; assigning to a variable that does not exist can only fail later."""
    _write(tmp_path, [_rule("A", {"c": text})], {})
    code, output = _promtool(prometheus_bin, tmp_path, "check", "rules", "rules.yml")
    assert code == 0, output
    with pytest.raises(TemplateError):
        parse(text)
