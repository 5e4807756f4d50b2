"""What one signal explains of another, over all series at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Bools, Floats
from engine.numeric.robust import deviation, largest


def block_means(values: Floats, blocks: int) -> Floats:
    """Return the means [n, blocks] of the newest samples of `values[n, m]`, in blocks of equal size."""
    size = values.shape[1] // blocks
    return mean(values[:, values.shape[1] - blocks * size :].reshape(len(values), blocks, size))


def trailing_means(values: Floats, size: int) -> Floats:
    """Return the mean of each of `values[n, m]` and up to `size` - 1 before it."""
    there = ~np.isnan(values)
    total, count = np.cumsum(np.where(there, values, 0.0), axis=1), np.cumsum(there, axis=1)
    total[:, size:], count[:, size:] = total[:, size:] - total[:, :-size], count[:, size:] - count[:, :-size]
    return _over(total, count)


def mean(values: Floats) -> Floats:
    """Return the mean over the last axis [...] of what is there, NaN where nothing is."""
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    return _over(np.nansum(values, axis=-1), count)


def _straightened(values: Floats) -> Floats:
    """Return `values[n, b]` less their least squares line over the places where they are."""
    places = np.where(np.isnan(values), np.nan, np.arange(values.shape[1], dtype=np.float64))
    places -= mean(places)[:, None]
    rest = values - mean(values)[:, None]
    square = mean(places**2)
    slope = np.divide(mean(places * rest), square, out=np.zeros_like(square), where=square > 0)
    straightened: Floats = rest - slope[:, None] * places
    return straightened


def _share(values: Floats, by: Floats, reliable: float) -> tuple[Floats, Bools]:
    """Return how much of the centred `by[n, b]` is in `values[n, b]`, and where that can be told; 0 elsewhere."""
    variance = mean(by**2)
    real = variance - deviation(np.diff(by, 2, axis=1)) ** 2 / 6
    sound = (real > reliable * variance) & (real > 1e-12)  # of values up to 1, the rest is rounding
    share = np.divide(mean(values * by), real, out=np.zeros_like(real), where=sound)
    return np.nan_to_num(share), sound


def _over(total: Floats, count: NDArray[np.intp]) -> Floats:
    quotient: Floats = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return quotient


def unexplained(values: Floats, by: Floats, *, blocks: int, reliable: float = 0.5) -> Floats:
    """Return `values[n, m]` as they would be had the signal `by[n, m]` always been what it is at the end.

    How much of `by` is in the values is worked out from block means: cov / (var - noise), least squares corrected
    for `by` being measured with noise (Fuller 1987, Measurement Error Models), whose variance is a sixth of that
    of its second differences. Straight lines in time are taken out of both first, so that a leak beside work
    that comes and goes is not taken for work. Where that leaves nothing of `by` but noise, the two rose together
    and `by` gets it all. Where less than a `reliable` share of its variance is more than noise even so, or the
    values fall where `by` rises, or there is no `by`, the values stay as they are.
    """
    rows = np.flatnonzero(~np.isnan(by).all(axis=1))
    size = largest(by[rows])
    scaled = by[rows] / np.where(size > 0, size, 1.0)[:, None]
    means, causes = block_means(values[rows], blocks), block_means(scaled, blocks)
    missing = np.isnan(means) | np.isnan(causes)
    means[missing] = causes[missing] = np.nan
    beside, sound = _share(_straightened(means), _straightened(causes), reliable)
    alone, _ = _share(means - mean(means)[:, None], causes - mean(causes)[:, None], reliable)
    share = np.maximum(np.where(sound, beside, alone), 0.0)[:, None]
    smooth = trailing_means(scaled, max(1, scaled.shape[1] // blocks))
    rest = values.copy()
    rest[rows] = np.where(share > 0, values[rows] - share * (smooth - smooth[:, -1:]), values[rows])
    return rest
