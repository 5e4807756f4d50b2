"""Bodies to arrays: what Prometheus says, and what anybody else may say in its place."""

import contextlib
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import QueryError, QueryRejected, QueryUnavailable
from engine.model.labels import Labels
from engine.query import answer
from engine.query.answer import Grid, instant_window, most_series, range_window, read_answer
from engine.query.matrix import read_rows

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
WHERE = "Prometheus at ray:9090"
GRID = Grid(start=1_000_000, step=15_000, count=5)


def body(result_type, result, **more):
    data = {"resultType": result_type, "result": result}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def instant(content, max_samples=100):
    return instant_window(read_answer(200, content, WHERE), 1_000_000, max_samples, WHERE)


def over_range(content, grid=GRID, max_samples=100):
    return range_window([(grid, read_answer(200, content, WHERE))], grid, max_samples, WHERE)


def sample(value, **labels):
    return {"metric": labels, "value": [1000, value]}


def series(points, **labels):
    return {"metric": labels, "values": points}


def test_a_vector_is_a_window_of_one_column():
    window = instant(body("vector", [sample("1.5", a="b"), sample("-2e3", __name__="up")]))
    assert window.labels == (Labels(a="b"), Labels(__name__="up"))
    assert window.times.tolist() == [1000.0]
    assert window.values.tolist() == [[1.5], [-2000.0]]
    assert window.present.all()


def test_no_series_is_an_empty_window():
    assert instant(body("vector", [])).values.shape == (0, 1)
    assert over_range(body("matrix", [])).values.shape == (0, 5)


def test_a_scalar_is_one_series_without_labels():
    window = instant(body("scalar", [1000, "42"]))
    assert window.labels == (Labels(),)
    assert window.values.tolist() == [[42.0]]


def test_not_a_number_and_infinity_are_values_and_not_gaps():
    window = instant(body("vector", [sample("NaN", n="1"), sample("+Inf", n="2"), sample("-Inf", n="3")]))
    assert np.isnan(window.values[0, 0])
    assert window.values[1:, 0].tolist() == [np.inf, -np.inf]
    assert window.present.all()


def test_a_range_tells_a_gap_from_a_sample_that_is_not_a_number():
    window = over_range(body("matrix", [series([[1000, "1"], [1030, "NaN"], [1060, "5"]], a="b")]))
    assert window.times.tolist() == [1000, 1015, 1030, 1045, 1060]
    assert window.present.tolist() == [[True, False, True, False, True]]
    np.testing.assert_array_equal(window.values, [[1, np.nan, np.nan, np.nan, 5]])


def test_pieces_of_a_range_are_joined_by_labels():
    first, second = GRID.chunks(3)
    assert (first.end, second.start, second.count) == (1_030_000, 1_045_000, 2)
    answers = [
        (first, read_answer(200, body("matrix", [series([[1000, "1"]], a="b")], warnings=["w"]), WHERE)),
        (
            second,
            read_answer(
                200,
                body("matrix", [series([[1060, "2"]], a="b"), series([[1045, "3"]])], warnings=["w"]),
                WHERE,
            ),
        ),
    ]
    window = range_window(answers, GRID, 100, WHERE)
    assert window.labels == (Labels(a="b"), Labels())
    np.testing.assert_array_equal(
        window.values, [[1, np.nan, np.nan, np.nan, 2], [np.nan, np.nan, np.nan, 3, np.nan]]
    )
    assert window.warnings == ("w",)


def test_warnings_and_infos_stay_with_the_answer():
    window = instant(body("vector", [], warnings=["partial\nresult"], infos=["PromQL info: no counter"]))
    assert window.warnings == ("partial result", "PromQL info: no counter")


@pytest.mark.parametrize(
    ("result_type", "result", "message"),
    [
        ("matrix", [series([[1000, "1"]])], "returns a matrix, not one number.*rate()"),
        ("string", [1000, "hello"], "returns a string"),
        (
            "vector",
            [{"metric": {"__name__": "h"}, "histogram": [1000, {}]}],
            r"native histograms \(h\).*histogram_quantile",
        ),
        ("vector", [sample("1", n=str(n)) for n in range(101)], "max_samples allows 100 samples; aggregate"),
    ],
)
def test_a_result_that_is_no_use_is_refused_with_the_way_out(result_type, result, message):
    with pytest.raises(QueryRejected, match=message):
        instant(body(result_type, result))


def test_histograms_in_a_range_are_refused():
    with pytest.raises(QueryRejected, match="native histograms"):
        over_range(body("matrix", [{"metric": {}, "histograms": [[1000, {}]]}]))


def test_a_range_of_more_samples_than_allowed_is_refused():
    full = [series([[1000 + 15 * i, "1"] for i in range(5)], n=str(n)) for n in range(21)]
    assert len(over_range(body("matrix", full[:20]))) == 20
    with pytest.raises(QueryRejected, match="105 samples or more in 21 series of 5 points"):
        over_range(body("matrix", full))


def test_few_samples_in_a_huge_window_are_refused_before_it_is_made():
    grid = Grid(start=1_000_000, step=15_000, count=50)
    assert most_series(grid, 100) == 40
    sparse = [series([[1000, "1"]], n=str(n)) for n in range(41)]
    with pytest.raises(QueryRejected, match="41 series of 50 points"):
        over_range(body("matrix", sparse), grid)


@pytest.mark.parametrize(
    ("status", "content", "error", "message"),
    [
        (400, {"status": "error", "errorType": "bad_data", "error": "parse error"}, QueryRejected, "400 bad_data: parse error"),
        (422, {"status": "error", "errorType": "execution", "error": "many-to-many"}, QueryRejected, "422 execution: many"),
        (200, {"status": "error", "errorType": "execution", "error": "no"}, QueryRejected, "200 execution: no"),
        (503, {"status": "error", "errorType": "timeout", "error": "timed out"}, QueryUnavailable, "503 timeout: timed out"),
        (500, {"status": "error", "errorType": "internal", "error": "oh"}, QueryUnavailable, "500 internal: oh"),
        (200, {"status": "error"}, QueryUnavailable, "200 error"),
        (200, {"status": ["success"]}, QueryUnavailable, "200 error"),
        (503, {"status": "success", "data": {"resultType": "vector", "result": []}}, QueryUnavailable, "503 error"),
        (200, {"status": "success"}, QueryUnavailable, "no data"),
        (200, {"status": "success", "data": {"resultType": 1, "result": []}}, QueryUnavailable, "no data"),
        (401, b"Unauthorized", QueryUnavailable, "401: Unauthorized; check bearer_token_file"),
        (404, b"404 page not found", QueryUnavailable, "404: 404 page not found; does prometheus.url need a path"),
        (429, b"slow down", QueryUnavailable, "429: slow down; it is asked more"),
        (400, b"no org id", QueryRejected, "400: no org id"),
        (502, b"<html>\n<head><title>502 Bad\nGateway</title>", QueryUnavailable, "502: 502 Bad Gateway"),
        (200, b"<html><body><h1>Sign in</h1>", QueryUnavailable, "200, but not as Prometheus does: Sign in; is prometheus.url"),
        (200, b'{"status":"success","data":{"resu', QueryUnavailable, "not as Prometheus does"),
        (200, b"", QueryUnavailable, "not as Prometheus does: nothing"),
        (200, b"\xff\xfe\x00", QueryUnavailable, "not as Prometheus does"),
        (200, b"[" * 100_000, QueryUnavailable, "not as Prometheus does"),
        (200, b"[1]", QueryUnavailable, "not as Prometheus does"),
    ],
)  # fmt: skip
def test_errors_say_where_which_and_what_in_one_line(status, content, error, message):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(error, match=message) as caught:
        read_answer(status, content, WHERE)
    assert str(caught.value).startswith(WHERE)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "element",
    [
        None, 1, "x", [], {}, {"metric": {}}, {"value": [1, "1"]}, {"metric": [], "value": [1, "1"]},
        {"metric": {"a": 1}, "value": [1, "1"]}, {"metric": {"a": "\ud800"}, "value": [1, "1"]},
        {"metric": {}, "value": []}, {"metric": {}, "value": [1, "one"]}, {"metric": {}, "value": [1, None]},
        {"metric": {}, "value": [1, 10**400]}, ["histogram"],
    ],
)  # fmt: skip
def test_an_element_of_the_wrong_shape_is_no_useful_answer(element):
    with pytest.raises(QueryUnavailable, match="a shape that is not Prometheus'"):
        instant(body("vector", [element]))


@pytest.mark.parametrize(
    "points",
    [
        None, 5, [[1000]], [["x", "1"]], [[1000, "x"]],
        [[1007, "1"]], [[985, "1"]], [[1075, "1"]], [[1e300, "1"]], [[float("nan"), "1"]],
        [[1015, "1"], [1000, "1"]], [[1000, "1"], [1000, "2"]], [[10**400, "1"]],
    ],
)  # fmt: skip
def test_samples_that_are_not_on_the_grid_are_no_useful_answer(points):
    with pytest.raises(QueryUnavailable, match="a shape that is not Prometheus'"):
        over_range(body("matrix", [series(points)]))


def test_two_series_with_the_same_labels_are_no_useful_answer():
    with pytest.raises(QueryUnavailable, match="same labels"):
        instant(body("vector", [sample("1", a="b"), sample("2", a="b", c="")]))


def test_a_range_query_must_answer_a_matrix():
    with pytest.raises(QueryUnavailable, match="range query returned a vector"):
        over_range(body("vector", []))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "NaN", 1000, 1015]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metric", "value", "values", "histogram", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from(["vector", "scalar", "matrix"]))
def test_nothing_but_query_errors_comes_of_any_json(result, result_type):
    for ask in (instant, over_range):
        with contextlib.suppress(QueryError):
            window = ask(body(result_type, result))
            assert window.values.shape == window.present.shape == (len(window.labels), len(window.times))


@given(st.binary(max_size=300), st.sampled_from([200, 204, 400, 422, 500, 503]))
def test_nothing_but_query_errors_comes_of_any_bytes(content, status):
    with pytest.raises(QueryError) as caught:
        read_answer(status, content, WHERE)
    assert str(caught.value).isprintable()


@given(
    st.integers(0, 2_000_000_000_000),
    st.integers(1, 100_000_000),
    st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=30),
)
def test_every_sample_lands_in_its_column(start, step, values):
    grid = Grid(start, step, len(values))
    points = [[(start + i * step) / 1000, repr(value)] for i, value in enumerate(values) if value is not None]
    window = over_range(body("matrix", [series(points)]), grid, max_samples=1000)
    assert window.present[0].tolist() == [value is not None for value in values]
    np.testing.assert_array_equal(window.values[0], [np.nan if value is None else value for value in values])


def test_the_grid_has_both_ends_and_never_a_later_instant():
    grid = Grid.of(AT, AT + timedelta(seconds=61), timedelta(seconds=15))
    assert (grid.count, grid.end) == (5, grid.start + 60_000)
    assert Grid.of(AT, AT, timedelta(seconds=15)).count == 1
    late = AT + timedelta(microseconds=1999)
    assert Grid.of(late, late, timedelta(seconds=1)).times[0] == AT.timestamp() + 0.001


@pytest.mark.parametrize(
    ("length", "step", "message"),
    [
        (timedelta(-1), timedelta(1), "before it starts"),
        (timedelta(1), timedelta(0), "not a whole number of milliseconds"),
        (timedelta(1), timedelta(-1), "not a whole number of milliseconds"),
        (timedelta(1), timedelta(microseconds=1500), "not a whole number of milliseconds"),
    ],
)
def test_a_range_without_instants_is_refused(length, step, message):
    with pytest.raises(QueryRejected, match=message):
        Grid.of(AT, AT + length, step)


# What is read without JSON, held against the way through JSON.

GRID_TEXTS = ["1000", "1015", "1030.0", "1045.001", "1.06e3"]
ODD_TEXTS = [
    "1007",
    "0985",
    "-1000",
    "+1000",
    "NaN",
    '"1000"',
    "null",
    "true",
    "[1000]",
    "1000,1",
    "1e400",
    "9" * 400,
    "",
]
NUMBERS = [
    "0",
    "1.5",
    "-2e3",
    "NaN",
    "+Inf",
    "-Inf",
    "5e-324",
    "1e999",
    "0.1234567890123456",
    "1.7976931348623157e+308",
]
ODD_NUMBERS = [
    "",
    " 1",
    "1 ",
    "1_000",
    "one",
    "1,2",
    "1e",
    ".",
    "inf",
    "Infinity",
    "nan",
    "0x10",
    "1\\u0030",
    "é",
    "NNaNaN",
    "\\",
]
METRICS = [
    "{}", '{"a":"b"}', '{"__name__":"up","a":"é"}', '{"a":""}', '{"a":"\\u0041"}', '{"a":",\\"values\\":[["}',
    '{"a":"}","b":"]]}"}',
]  # fmt: skip
ODD_METRICS = [
    "[]",
    "1",
    '{"a":1}',
    '{"a":"\\ud800"}',
    '{"a":"b","a":"c"}',
    '{"a":{"b":"c"}}',
    '{"values":[["x"]]}',
    "",
    "{'a':1}",
]


def mostly(good, odd):
    return st.one_of(*[st.sampled_from(good)] * 12, st.sampled_from(odd))


@st.composite
def matrix_bodies(draw):
    """What Prometheus sends, with at times something in it that it never would."""
    series = []
    for _ in range(draw(st.integers(1, 4))):
        where = sorted(draw(st.sets(st.integers(0, 4), min_size=1)))
        points = [
            f'[{draw(mostly([GRID_TEXTS[i]], ODD_TEXTS))},"{draw(mostly(NUMBERS, ODD_NUMBERS) | st.floats().map(repr))}"'
            + draw(mostly(["]"], [',"5"]', ",null]", " ]", "", "]]", ',"histograms":[]}']))
            for i in where
        ]
        series.append(
            f'{{"metric":{draw(mostly(METRICS, ODD_METRICS))},"values":[{",".join(points)}]'
            + draw(mostly(["}"], [',"histograms":[[1,{}]]}', ',"values":[[1000,"7"]]}', " }", ""]))
        )
    head = draw(
        mostly(
            ['{"status":"success","data":{"resultType":"matrix","result":['],
            [
                '{"status":"success","isPartial":false,"data":{"resultType":"matrix","result":[',
                '{"status":"error","data":{"resultType":"matrix","result":[',
                '{"status":"success","data":{"result":[',
                '{"status": "success","data":{"resultType":"matrix","result":[',
            ],
        )
    )
    tail = draw(
        mostly(
            ["]}}", ']},"warnings":["w"],"infos":["PromQL info: \\"data\\""]}', '],"analysis":{"a":[1]}}}'],
            [
                "]",
                "]}",
                ']},"data":{"resultType":"matrix","result":[]}}',
                '],"result":[]}}',
                "]}}x",
                "]}}\xff",
            ],
        )
    )
    text = head + draw(mostly([","], [", ", "", ",,"])).join(series) + tail
    return text.encode("latin-1" if "\xff" in text else "utf-8", "replace")


def outcome(ask, content):
    """What comes of an answer, as plain values that can be compared; floats by their bits."""
    try:
        window = ask(content)
    except QueryError as error:
        return type(error), str(error)
    same = np.where(np.isnan(window.values), np.nan, window.values).tobytes()  # which NaN does not matter
    return (
        [dict(labels) for labels in window.labels],
        window.times.tolist(),
        same,
        window.present.tolist(),
        window.warnings,
    )


@settings(max_examples=600)
@given(matrix_bodies())
def test_an_answer_is_the_same_with_and_without_json(content):
    plain = outcome(over_range, content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "read_rows", lambda body: None)
        through_json = outcome(over_range, content)
    assert plain == through_json


@given(st.lists(st.floats() | st.integers(-(10**20), 10**20).map(float), min_size=1, max_size=30))
def test_values_read_without_json_are_right_to_the_last_bit(values):
    texts = [repr(value).replace("inf", "Inf").replace("nan", "NaN") for value in values]
    points = ",".join(f'[{1000 + i},"{text}"]' for i, text in enumerate(texts))
    whole = f'{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":[{points}]}}]}}}}'
    rows = read_rows(whole.encode())
    assert rows is not None
    np.testing.assert_array_equal(rows.series[0].values, [float(text) for text in texts])


def test_what_prometheus_sends_is_read_without_json():
    sent = b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1000,"1"],[1030.5,"NaN"]]},{"metric":{},"values":[[1000,"2"]]}]},"warnings":["w"]}'
    rows = read_rows(sent)
    assert [row.labels for row in rows.series] == [Labels(a="b"), Labels()]
    assert rows.series[0].instants.tolist() == [1000, 1030.5]
    assert json.loads(rows.envelope)["warnings"] == ["w"]


@pytest.mark.parametrize(
    "points",
    ['[1000,"1,2"],[1015,""]', '[1000,"1"2],[1015,"3"]', '[1000"1",2]', '[1000,"1","2"]', '[1000,1"2"]', '[01000,"1"]', '["1000","1"]'],
)  # fmt: skip
def test_samples_of_another_shape_are_left_to_json(points):
    sent = f'{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":[{points}]}}]}}}}'
    assert read_rows(sent.encode()) is None
