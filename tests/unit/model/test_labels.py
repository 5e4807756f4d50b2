"""Labels, fingerprints and matchers are Prometheus' and Alertmanager's."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lang.promql import metric_names
from engine.model.labels import Labels, Matcher, Matchers, MatchOp, quote

PAIRS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5)


def test_the_fingerprint_is_alertmanagers() -> None:
    labels = Labels(alertname="DemoAlert", server="ni3", severity="critical")
    assert labels.fingerprint == "8a07086b74f3ba78"
    assert Labels().fingerprint == "cbf29ce484222325", "FNV's offset"


@given(PAIRS)
def test_the_order_of_pairs_does_not_matter(pairs: dict[str, str]) -> None:
    one, other = Labels(pairs), Labels(dict(reversed(pairs.items())))
    assert one == other
    assert (hash(one), one.fingerprint, str(one)) == (hash(other), other.fingerprint, str(other))
    assert list(one) == sorted(one)


@given(PAIRS, PAIRS)
def test_labels_are_equal_exactly_when_their_fingerprints_are(
    one: dict[str, str], other: dict[str, str]
) -> None:
    assert (Labels(one) == Labels(other)) is (Labels(one).fingerprint == Labels(other).fingerprint)


def test_names_and_values_are_kept_apart_in_the_fingerprint() -> None:
    assert Labels(ab="c").fingerprint != Labels(a="bc").fingerprint


def test_an_empty_value_is_no_label() -> None:
    labels = Labels(a="1", b="")
    assert labels == {"a": "1"}
    assert "b" not in labels
    assert len(labels) == 1
    assert labels.updated({"a": ""}) == {}


def test_labels_compare_with_any_mapping_and_nothing_else() -> None:
    assert Labels(a="1") == {"a": "1"}
    assert Labels(a="1") != {"a": "2"}
    assert Labels(a="1") != [("a", "1")]
    assert {Labels(a="1"): "found"}[Labels({"a": "1"})] == "found"


def test_labels_do_not_change() -> None:
    pairs = {"a": "1"}
    labels = Labels(pairs)
    before = hash(labels), labels.fingerprint
    pairs["b"] = "2"
    changed = [labels.updated({"b": "2"}), labels.without("a"), labels.only()]
    assert changed == [{"a": "1", "b": "2"}, {}, {}]
    assert labels == {"a": "1"}
    assert (hash(labels), labels.fingerprint) == before
    with pytest.raises(TypeError):
        labels["a"] = "2"  # type: ignore[index]
    with pytest.raises(TypeError):
        del labels["a"]  # type: ignore[attr-defined]


def test_labels_may_be_copied_and_sent_to_another_process() -> None:
    labels = Labels(a="1")
    assert copy.deepcopy(labels) == labels
    assert pickle.loads(pickle.dumps(labels)) == labels


def test_some_labels_are_taken_and_left_by_name() -> None:
    labels = Labels(a="1", b="2", c="3")
    assert labels.only("c", "a", "x") == {"a": "1", "c": "3"}
    assert labels.without("a", "x") == {"b": "2", "c": "3"}


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (Labels(), "{}"),
        (Labels(a="1"), '{a="1"}'),
        (Labels({"__name__": "up"}), "up"),
        (Labels({"__name__": "up", "b": "2", "a": "1"}), 'up{a="1", b="2"}'),
        (Labels(a='say "x"\n\\'), '{a="say \\"x\\"\\n\\\\"}'),
    ],
)
def test_labels_are_written_as_a_series(labels: Labels, text: str) -> None:
    assert str(labels) == text
    assert repr(labels) == f"Labels({text})"


@given(st.text())
def test_a_quoted_value_is_one_string_of_promql(value: str) -> None:
    text = quote(value)
    assert "\n" not in text
    assert metric_names(f"up{{a={text}}}") == {"up"}, "it can be parsed, and adds nothing to the expression"


@pytest.mark.parametrize(
    ("op", "value", "passes", "fails"),
    [
        (MatchOp.EQUAL, "a", ["a"], ["b", "", "aa", "A"]),
        (MatchOp.EQUAL, "", [""], ["a"]),
        (MatchOp.NOT_EQUAL, "a", ["b", ""], ["a"]),
        (MatchOp.NOT_EQUAL, "", ["a"], [""]),
        (MatchOp.REGEX, "a|b", ["a", "b"], ["ab", "xa", "ax", ""]),
        (MatchOp.REGEX, "a.*", ["a", "a\nb"], ["ba", ""]),
        (MatchOp.REGEX, "a.c", ["abc"], ["abcd", "xabc"]),
        (MatchOp.REGEX, ".*", ["a", ""], []),
        (MatchOp.REGEX, ".+", ["a"], [""]),
        (MatchOp.NOT_REGEX, "a|b", ["ab", "", "c"], ["a", "b"]),
        (MatchOp.NOT_REGEX, ".+", [""], ["a"]),
    ],
)
def test_a_matcher_tests_the_whole_value_and_takes_a_missing_label_for_an_empty_one(
    op: MatchOp, value: str, passes: list[str], fails: list[str]
) -> None:
    matcher = Matcher("x", op, value)
    for present in (True, False):
        for candidates, expected in ((passes, True), (fails, False)):
            for candidate in candidates:
                labels = {"x": candidate} if candidate or present else {}
                assert matcher.matches(labels) is expected, (matcher, candidate)
    assert matcher.matches({"y": "a"}) is matcher.matches({"x": ""})


def test_a_bad_regular_expression_is_refused_with_the_matcher() -> None:
    with pytest.raises(ValueError, match=r'matcher x=~"\(": bad regular expression'):
        Matcher("x", MatchOp.REGEX, "(")
    assert Matcher("x", MatchOp.EQUAL, "(").matches({"x": "("})


def test_matchers_are_values() -> None:
    one, same = Matcher("x", MatchOp.EQUAL, "a"), Matcher("x", MatchOp.EQUAL, "a")
    others = [
        Matcher("y", MatchOp.EQUAL, "a"),
        Matcher("x", MatchOp.REGEX, "a"),
        Matcher("x", MatchOp.EQUAL, "b"),
    ]
    assert one == same
    assert hash(one) == hash(same)
    assert one not in others
    assert str(one) == 'x="a"'


def test_matchers_must_all_pass_and_none_pass_everything() -> None:
    both = Matchers([Matcher("a", MatchOp.EQUAL, "1"), Matcher("b", MatchOp.REGEX, "2|3")])
    assert both.matches({"a": "1", "b": "3"})
    assert not both.matches({"a": "1", "b": "4"})
    assert not both.matches({"b": "2"})
    assert Matchers().matches({})
    assert str(both) == '{a="1",b=~"2|3"}'
