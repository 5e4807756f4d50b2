"""From the body of an answer of Prometheus' HTTP API to arrays, believing nothing about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.clients.wording import one_line, telling_line
from engine.errors import QueryError, QueryRejected, QueryUnavailable
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window
from engine.query.matrix import WRONG_SHAPE, Row, Rows, labels_of, read_rows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MOST_REMARKS = 10
_SPARSE = 20  # a window may have this many cells for each sample that is allowed
_BAD_QUERY = ("bad_data", "execution")  # errorTypes that no later tick will cure
_WAYS_OUT = {
    401: "; check bearer_token_file, basic_auth and headers below `prometheus`",
    403: "; check bearer_token_file, basic_auth and headers below `prometheus`",
    404: "; does prometheus.url need a path, such as /prometheus?",
    405: "; does prometheus.url need a path, such as /prometheus?",
    429: "; it is asked more than it allows",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: `result` as JSON has it, or the rows of a matrix that were read without.

    `remarks` are the server's warnings, then its infos.
    """

    result_type: str
    result: Any
    remarks: tuple[str, ...]


class _Piece(NamedTuple):
    """Samples of one series: their columns `[m]` and their values `[m]`."""

    columns: NDArray[np.intp]
    values: Floats


@dataclass(frozen=True, slots=True)
class Grid:
    """`count` instants from `start`, `step` apart, in milliseconds, which is what Prometheus counts in."""

    start: int
    step: int
    count: int

    @classmethod
    def of(cls, start: datetime, end: datetime, step: timedelta) -> Grid:
        """Return the instants of a range query; QueryRejected if there are none."""
        first, last, width = milliseconds(start), milliseconds(end), step // _MILLISECOND
        if step <= timedelta() or step % _MILLISECOND:
            raise QueryRejected(f"a step of {step} is not a whole number of milliseconds above zero")
        if last < first:
            raise QueryRejected(
                f"the range ends at {end.isoformat()}, before it starts at {start.isoformat()}"
            )
        return cls(first, width, (last - first) // width + 1)

    @property
    def end(self) -> int:
        """The last instant."""
        return self.start + (self.count - 1) * self.step

    @property
    def times(self) -> Floats:
        """The instants in Unix seconds."""
        return (self.start + np.arange(self.count, dtype=np.int64) * self.step) / 1000.0

    def chunks(self, longest: int) -> Iterator[Grid]:
        """Return the same instants in pieces of at most `longest`."""
        for done in range(0, self.count, longest):
            yield Grid(self.start + done * self.step, self.step, min(longest, self.count - done))


def milliseconds(at: datetime) -> int:
    """Return `at` in Unix milliseconds, never later than it is."""
    return (at - _EPOCH) // _MILLISECOND


def most_series(grid: Grid, max_samples: int) -> int:
    """Return how many series a window on `grid` may have, if each has but one sample."""
    return max(1, min(max_samples, _SPARSE * max_samples // grid.count))


def too_many(found: str, max_samples: int) -> QueryRejected:
    """Return the refusal of an answer that is larger than settings allow."""
    return QueryRejected(
        f"the query brings {found}, where prometheus.max_samples allows {max_samples:,} samples; aggregate "
        "in the expression (sum by, topk), take a coarser step or less history, or raise the limit"
    )


def read_answer(status: int, body: bytes, where: str) -> Answer:
    """Return what `body` says, or raise QueryRejected or QueryUnavailable in the server's own words."""
    rows = read_rows(body)
    try:
        envelope = json.loads(body if rows is None else rows.envelope)
    except (ValueError, RecursionError):
        envelope = None
    if not isinstance(envelope, dict) or "status" not in envelope:
        raise _foreign(status, body, where)
    if envelope["status"] != "success" or not 200 <= status < 300:
        raise _failure(status, envelope, body, where)
    data = envelope.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("resultType"), str) or "result" not in data:
        raise _misshapen(where, "there is no data with resultType and result")
    return Answer(data["resultType"], data["result"] if rows is None else rows, _remarks(envelope))


def _foreign(status: int, body: bytes, where: str) -> QueryError:
    """Return the error for a body that is not of Prometheus' API."""
    words = telling_line(body) or "nothing"
    if 200 <= status < 300:
        return QueryUnavailable(
            f"{where} answered {status}, but not as Prometheus does: {words}; is prometheus.url right?"
        )
    kind = QueryRejected if status in (400, 422) else QueryUnavailable
    return kind(f"{where} answered {status}: {words}{_WAYS_OUT.get(status, '')}")


def _failure(status: int, envelope: dict[str, Any], body: bytes, where: str) -> QueryError:
    """Return the error that the server declares."""
    error_type = one_line(str(envelope.get("errorType", "")), 40)
    error = envelope.get("error")
    words = one_line(error) if isinstance(error, str) and error else telling_line(body)
    kind = QueryRejected if status in (400, 422) or error_type in _BAD_QUERY else QueryUnavailable
    return kind(f"{where} answered {status} {error_type or 'error'}: {words}{_WAYS_OUT.get(status, '')}")


def _misshapen(where: str, what: str) -> QueryUnavailable:
    return QueryUnavailable(f"{where} answered in a shape that is not Prometheus': {one_line(what)}")


def _remarks(envelope: dict[str, Any]) -> tuple[str, ...]:
    said = [envelope.get(name) for name in ("warnings", "infos")]
    lines = [one_line(str(remark)) for remarks in said if isinstance(remarks, list) for remark in remarks]
    return tuple(dict.fromkeys(lines))[:_MOST_REMARKS]


def instant_window(answer: Answer, at: int, max_samples: int, where: str) -> Window:
    """Return the window of one column, at `at` in Unix milliseconds, that an instant query answered."""
    if answer.result_type not in ("vector", "scalar"):
        way_out = (
            "; put rate(), avg_over_time() or the like around it" if answer.result_type == "matrix" else ""
        )
        kind = one_line(answer.result_type, 40)
        raise QueryRejected(f"the expression returns a {kind}, not one number for each series{way_out}")
    try:
        vector = [{"metric": {}, "value": answer.result}] if answer.result_type == "scalar" else answer.result
        if len(vector) > max_samples:
            raise too_many(f"more than {max_samples:,} series", max_samples)
        _refuse_histograms(vector, "histogram")
        labels = tuple(labels_of(element["metric"]) for element in vector)
        values = np.fromiter((float(element["value"][1]) for element in vector), np.float64, len(vector))
    except WRONG_SHAPE as error:
        raise _misshapen(where, f"{type(error).__name__}: {error}") from error
    _refuse_duplicates(labels, where)
    present = np.ones((len(labels), 1), dtype=np.bool_)
    return Window(labels, np.array([at / 1000.0]), values.reshape(-1, 1), present, answer.remarks)


def range_window(answers: Sequence[tuple[Grid, Answer]], grid: Grid, max_samples: int, where: str) -> Window:
    """Return the window on `grid` that range queries over its pieces answered."""
    rows: dict[Labels, list[_Piece]] = {}
    samples = 0
    for piece, answer in answers:
        if answer.result_type != "matrix":
            raise _misshapen(where, f"a range query returned a {answer.result_type}")
        offset = (piece.start - grid.start) // grid.step
        for labels, columns, values in _series(answer.result, piece, where):
            rows.setdefault(labels, []).append(_Piece(columns + offset, values))
            samples += len(values)
        if samples > max_samples or len(rows) > most_series(grid, max_samples):
            raise too_many(
                f"{samples:,} samples or more in {len(rows):,} series of {grid.count:,} points", max_samples
            )
    matrix, present = _matrix(list(rows.values()), grid.count)
    remarks = tuple(dict.fromkeys(remark for _, answer in answers for remark in answer.remarks))
    return Window(tuple(rows), grid.times, matrix, present, remarks[:_MOST_REMARKS])


def _matrix(rows: list[list[_Piece]], count: int) -> tuple[Floats, Bools]:
    """Return values and presence, one row for each series."""
    matrix = np.full((len(rows), count), np.nan)
    present = np.zeros((len(rows), count), dtype=np.bool_)
    for row, pieces in enumerate(rows):
        for columns, values in pieces:
            matrix[row, columns] = values
            present[row, columns] = True
    return matrix, present


def _series(result: Any, grid: Grid, where: str) -> Iterator[tuple[Labels, NDArray[np.intp], Floats]]:
    """Return labels, columns on `grid` and values of each series of a matrix."""
    columns: dict[int, NDArray[np.intp]] = {}  # by the identity of the instants, which most series share
    try:
        rows = result.series if isinstance(result, Rows) else _rows(result)
        for row in rows:
            if id(row.instants) not in columns:
                columns[id(row.instants)] = _columns(row.instants, grid)
    except WRONG_SHAPE as error:
        raise _misshapen(where, f"{type(error).__name__}: {error}") from error
    _refuse_duplicates([row.labels for row in rows], where)
    for row in rows:
        yield row.labels, columns[id(row.instants)], row.values


def _rows(result: Any) -> list[Row]:
    """Return the series of a matrix in JSON."""
    _refuse_histograms(result, "histograms")
    return [Row(labels_of(series["metric"]), *_samples(series["values"])) for series in result]


def _samples(points: list[Any]) -> tuple[Floats, Floats]:
    """Return instants and values of one series."""
    instants = np.fromiter((point[0] for point in points), np.float64, len(points))
    return instants, np.fromiter((float(point[1]) for point in points), np.float64, len(points))


def _columns(instants: Floats, grid: Grid) -> NDArray[np.intp]:
    """Return where on the grid the instants are; ValueError where one is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = (instants * 1000.0 - grid.start) / grid.step
        nearest = np.rint(exact)
        # A millisecond either way, since the instants came as decimal fractions.
        sound = (np.abs(exact - nearest) * grid.step <= 1.0) & (nearest >= 0) & (nearest < grid.count)
    if not sound.all():
        raise ValueError(f"the sample at {instants[~sound][0]} is not at one of the instants asked for")
    columns = nearest.astype(np.intp)
    if (np.diff(columns) <= 0).any():
        raise ValueError("samples are not in the order of time")
    return columns


def _refuse_histograms(result: Any, key: str) -> None:
    for element in result:
        if key in element:
            name = one_line(str(element.get("metric", {}).get("__name__", "")), 80)
            raise QueryRejected(
                f"the expression returns native histograms{f' ({name})' if name else ''}; turn them into "
                "numbers with histogram_quantile(), histogram_count(), histogram_sum() or histogram_avg()"
            )


def _refuse_duplicates(labels: Sequence[Labels], where: str) -> None:
    if len(set(labels)) < len(labels):
        raise _misshapen(where, "two series have the same labels")
