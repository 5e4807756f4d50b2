"""How a floor grew: steadily, in one step, or ever more slowly. Over all series at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.series import Floats


class Growth(NamedTuple):
    """How the lower envelope of each of n series rose; every field is [n], NaN where its end is missing."""

    total: Floats  # from the first point to the last, 0 or more
    quarter: Floats  # share of the total that the weakest quarter of the points brought, at most 1/4
    jump: Floats  # share of the total that the largest single step brought


def block_floors(values: Floats, blocks: int) -> Floats:
    """Return the floors [n, blocks] of the newest samples of `values[n, m]`, in blocks of equal size.

    The floor is the lowest sample, or the second lowest of more than three, so that a single wild one is not.
    """
    size = values.shape[1] // blocks
    ordered = np.sort(values[:, values.shape[1] - blocks * size :].reshape(len(values), blocks, size), axis=2)
    lowest: Floats = ordered[:, :, 0]
    if size <= 3:
        return lowest
    return np.where(np.isnan(ordered[:, :, 1]), lowest, ordered[:, :, 1])


def lower_envelope(floors: Floats) -> Floats:
    """Return at each of `floors[n, b]` the lowest from there on: what was never undercut again. It never falls."""
    there = np.where(np.isnan(floors), np.inf, floors)
    envelope = np.minimum.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    return np.where(np.isinf(envelope), np.nan, envelope)


def growth(floors: Floats) -> Growth:
    """Return how the lower envelope of `floors[n, b]` rose."""
    envelope = lower_envelope(floors)
    total = envelope[:, -1] - envelope[:, 0]
    ends = envelope[:, np.linspace(0, floors.shape[1] - 1, 5).round().astype(np.intp)]
    parts = np.stack([np.diff(ends, axis=1).min(axis=1), np.diff(envelope, axis=1).max(axis=1)])
    quarter, jump = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
    return Growth(total, quarter, jump)
