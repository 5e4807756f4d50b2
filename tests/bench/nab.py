"""The Numenta Anomaly Benchmark's score (Lavin and Ahmad 2015), exact and quick.

Each row has a weight: what detecting it is worth. Within a label window the best detected row counts and a window without
any costs a miss; rows outside cost, the more the further they are from the window before. NAB's own sweeper made the weights.
The threshold is one for all files, the best one, as on its leaderboard.
"""

import io
import lzma
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Bools, Floats

DATA = Path(__file__).parent / "data"


class Profile(NamedTuple):
    """What detections are worth: of a false one in units of NAB's standard profile, of a miss in points."""

    false: float
    miss: float


PROFILES = {"standard": Profile(1, 1), "low FP": Profile(2, 1), "low FN": Profile(1, 2)}


class File(NamedTuple):
    """One file of NAB; arrays are [m]."""

    name: str
    step: float  # seconds
    values: Floats
    weights: Floats
    window: NDArray[np.int16]  # -1: none
    probationary: Bools  # not scored
    windows: int


class Scored(NamedTuple):
    """The best score, 100 for perfect and 0 for a detector that says nothing, and its threshold."""

    score: float
    threshold: float


def load(name: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a file in `data/`."""
    with lzma.open(DATA / f"{name}.npz.xz") as file, np.load(io.BytesIO(file.read())) as arrays:
        return dict(arrays)


@cache
def files() -> tuple[File, ...]:
    """Return NAB's files."""
    arrays = load("nab")
    stops = np.cumsum(arrays["rows"])[:-1]
    columns = [np.split(arrays[name], stops) for name in ("values", "weights", "window", "probationary")]
    heads = zip(arrays["files"], arrays["steps"], arrays["windows"], strict=True)
    return tuple(
        File(str(name), float(step), *rows, int(windows))
        for (name, step, windows), *rows in zip(heads, *columns, strict=True)
    )


def score(
    scores: Sequence[Floats], profile: Profile, *, only: Sequence[int] | None = None, at: float | None = None
) -> Scored:
    """Score anomaly `scores`, an array [m] for each file, where more is more anomalous.

    `only` picks files by their index. `at` is a threshold to score at, instead of the best one.
    """
    chosen = range(len(files())) if only is None else only
    parts, first = [], 0
    for index in chosen:
        file, scored = files()[index], ~files()[index].probationary
        group = np.where(file.window[scored] >= 0, file.window[scored] + first, -1)
        parts.append((np.asarray(scores[index])[scored], file.weights[scored], group))
        first += file.windows
    figures, weights, groups = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-figures, kind="stable")
    figures = figures[order]
    gained = np.cumsum(_gains(weights[order], groups[order], profile)) - profile.miss * first
    last = np.append(figures[1:] != figures[:-1], True)  # rows of equal scores are detected together
    thresholds = np.concatenate([[np.inf], figures[last]])
    points = np.concatenate([[-profile.miss * first], gained[last]])
    best = int(np.argmax(points)) if at is None else int(np.count_nonzero(thresholds >= at)) - 1
    share = (points[best] + profile.miss * first) / (first * (1 + profile.miss))
    return Scored(100 * float(share), float(thresholds[best]))


def _gains(weights: Floats, groups: NDArray[np.intp], profile: Profile) -> Floats:
    """Return what each row adds when rows are detected in this order."""
    gains = np.where(groups < 0, profile.false * weights, 0.0)
    inside = np.flatnonzero(groups >= 0)
    inside = inside[np.argsort(groups[inside], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[inside], prepend=-1))
    for rows in np.split(inside, starts[1:]):
        best = np.maximum.accumulate(np.append(-profile.miss, weights[rows]))
        gains[rows] = np.diff(best)
    return gains


def evaluate(scores: Sequence[Floats], only: Sequence[int] | None = None) -> Mapping[str, Scored]:
    """Return the score in each profile, each at its best threshold."""
    return {name: score(scores, profile, only=only) for name, profile in PROFILES.items()}
