"""Parsing templates: what is refused, where, and that nothing else can come of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TemplateError
from engine.lang.template import parse
from tests.unit.lang.template.cases import ANSWERS, CASES, DATA, FAILING, UNPARSABLE


@pytest.mark.parametrize(("text", "line", "column", "message"), UNPARSABLE)
def test_a_wrong_template_is_refused_with_its_place(text, line, column, message):
    with pytest.raises(TemplateError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_template_is_parsed_once():
    assert parse("{{ $labels.once }}") is parse("{{ $labels.once }}")


def test_the_variables_that_may_be_read_can_be_chosen():
    assert parse("{{ $run }}", frozenset({"run"})).render({"run": "r1"}) == "r1"
    with pytest.raises(TemplateError, match="undefined variable"):
        parse("{{ $labels }}", frozenset({"run"}))


@pytest.mark.parametrize("unit", ["(", "{{ if 1 }}", '{{ block "b" 1 }}', "{{ if 1 }}{{ else if 1 }}"])
def test_deep_nesting_is_refused(unit):
    text = "{{ " + unit * 5000 if unit == "(" else unit * 5000
    with pytest.raises(TemplateError):
        parse(text)


def test_a_chain_of_else_ifs_may_be_as_long_as_blocks_may_be_deep():
    text = "{{ if 0 }}" + "".join(f"{{{{ else if eq 12 {n} }}}}{n}" for n in range(25)) + "{{ end }}"
    assert parse(text).render({}) == "12"


PIECES = sorted({text for cases in CASES.values() for text, _ in cases} | {text for text, _ in FAILING})
FRAGMENTS = (
    *(
        "{{",
        "}}",
        "{{-",
        "-}}",
        " ",
        "(",
        ")",
        "|",
        ".",
        "$",
        ":=",
        "=",
        ",",
        "end",
        "if",
        "else",
        "range",
        "with",
    ),
    *(
        "define",
        "block",
        "template",
        "break",
        "continue",
        "nil",
        '"a"',
        "`",
        "'",
        "\\",
        "/*",
        "*/",
        "\n",
        "$x",
        "1",
    ),
    *(
        "1e9",
        "-",
        ".Labels",
        "$labels",
        "print",
        "printf",
        '"%*d%[2]v"',
        "index",
        "args",
        "query",
        "first",
        "é",
        "\0",
    ),
)


def _expand_if_it_parses(text):
    """A TemplateError is fine if it has a place and a message; anything else fails the test by being raised."""
    wrong = None
    try:
        parse.__wrapped__(text).render(DATA, query=lambda expr: ANSWERS.get(expr, []), now=0.0)
    except TemplateError as error:
        wrong = error
    assert wrong is None or (wrong.line >= 1 and wrong.column >= 1 and str(wrong))


@given(st.text() | st.text().map(lambda text: f"{{{{ {text} }}}}"))
def test_any_text_is_a_template_or_a_template_error(text):
    _expand_if_it_parses(text)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))
def test_any_mixture_of_tokens_is_a_template_or_a_template_error(text):
    _expand_if_it_parses(text)


@given(st.sampled_from(PIECES), st.sampled_from(PIECES), st.integers(0, 80), st.integers(0, 80))
def test_any_splice_of_two_templates_is_a_template_or_a_template_error(left, right, cut, start):
    _expand_if_it_parses(left[:cut] + right[start:])


@given(
    st.text(alphabet="%+-# 0123456789.*[]vTdsqxXoObeEfFgGctU!é", max_size=30),
    st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats()
        | st.text()
        | st.just({"a": 1.5}),
        max_size=4,
    ),
)
def test_any_format_of_any_values_is_a_text_or_a_template_error(form, values):
    arguments = " ".join(f"(index $plan.values {index})" for index in range(len(values)))
    template = parse(f"{{{{ printf $plan.form {arguments} }}}}")
    try:
        outcome = template.render({"plan": {"form": form, "values": values}})
    except TemplateError as error:
        outcome = str(error)
    assert "error" not in outcome or re.search("too much|longer than", outcome)


@given(st.text(alphabet=st.characters(codec="utf-8")).filter(lambda text: "{{" not in text))
def test_text_without_actions_is_kept(text):
    assert parse(text).render({}) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_reads_back_as_the_same(number):
    assert float(parse("{{ $value }}").render({"value": number})) == number
    assert float(parse('{{ printf "%g" $value }}').render({"value": number})) == number
