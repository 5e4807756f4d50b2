import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.load.matchers import Misread, parse_matchers, parse_series
from engine.model.labels import METRIC_NAME, Labels, Matcher, Matchers, MatchOp


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a="b"', '{a="b"}'),
        ("a=b", '{a="b"}'),
        (" a = b ", '{a="b"}'),
        ('alertname=~"A|B"', '{alertname=~"A|B"}'),
        ('{a="b",c!="d"}', '{a="b",c!="d"}'),
        ('a="b", c!~"d.*",', '{a="b",c!~"d.*"}'),
        ("{}", "{}"),
        ("{ a = 'b' }", '{a="b"}'),
        ("a=`\\d`", '{a="\\\\d"}'),
        ('a=""', '{a=""}'),
        ("a=", '{a=""}'),
        ("a=~^(x|y)$", '{a=~"^(x|y)$"}'),
        ("a=b=c", '{a="b=c"}'),
        ('"my label"="x"', '{my label="x"}'),
        ('a="q\\"\\\\\\n\\u00e9\\xc3\\xa9"', '{a="q\\"\\\\\\néé"}'),
        ('a="\\d+"', '{a="\\\\d+"}'),
        ('a="x, {y}"', '{a="x, {y}"}'),
    ],
)
def test_matchers_are_read_in_every_spelling(text, expected):
    assert str(parse_matchers(text)) == expected


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, "no matcher is written here"),
        ("  ", 0, "no matcher is written here"),
        ("a", 0, "'a' is not compared with anything"),
        ("a, b=c", 0, "'a' is not compared with anything"),
        ('a="b', 2, "the closing quote is missing"),
        ('{a="b"', 6, "the closing brace is missing"),
        ('a="b" c="d"', 6, "put commas between them"),
        ("a=b{2}", 3, "quotes around spaces and braces"),
        ("a==b{", 4, "quotes"),
        ("a~b", 1, "'a' must be followed by =, !=, =~ or !~"),
        ('=~"b"', 0, "a label's name is expected here"),
        ('""="b"', 0, "a label's name cannot be empty"),
        ('a=~"("', 0, "bad regular expression"),
        ('x=y,a="\\ud800"', 6, "an escape that is no character"),
    ],
)
def test_what_is_no_matcher_is_refused_at_its_place(text, offset, message):
    with pytest.raises(Misread, match=message.replace("(", r"\(")) as refused:
        parse_matchers(text)
    assert refused.value.offset == offset


@given(
    st.lists(
        st.builds(
            Matcher,
            st.text(alphabet="abé_:", min_size=1),
            st.sampled_from([MatchOp.EQUAL, MatchOp.NOT_EQUAL]),
            st.text(),
        ),
        min_size=1,
    )
)
def test_matchers_that_are_written_out_read_the_same(matchers):
    text = str(Matchers(matchers))
    if "\\" not in text:
        assert parse_matchers(text) == Matchers(matchers)


@given(st.text(alphabet="ab=!~{},\"'`\\ \nxu0é"))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_matchers, parse_series):
        try:
            parse(text)
        except Misread as refused:
            offset = refused.offset
        else:
            offset = 0
        assert 0 <= offset <= len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("up", {METRIC_NAME: "up"}),
        ("a:b{}", {METRIC_NAME: "a:b"}),
        ('up{a="b", c="d"}', {METRIC_NAME: "up", "a": "b", "c": "d"}),
        ('{a="b"}', {"a": "b"}),
        ('{"my.metric", a="b"}', {METRIC_NAME: "my.metric", "a": "b"}),
        ('{__name__="up"}', {METRIC_NAME: "up"}),
    ],
)
def test_a_series_is_read_into_labels(text, expected):
    assert parse_series(text) == Labels(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a name or a label"),
        ("{}", "needs a name or a label"),
        ("9up", "not a series"),
        ('up{a="b"', "closing brace"),
        ('up{a=~"b"}', "labels, not matchers"),
        ('up{a="b",a="c"}', "given twice"),
        ('up{__name__="down"}', "given twice"),
    ],
)
def test_what_is_no_series_is_refused(text, message):
    with pytest.raises(Misread, match=message):
        parse_series(text)
