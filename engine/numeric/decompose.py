"""A series in its parts, by statsmodels, whose one door this is. Slow: milliseconds to seconds a series."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.series import Floats

_SEASONAL = 11  # cycles over which the course of a season is smoothed, and 4 more for each longer season


class Parts(NamedTuple):
    """A series is the sum of the three; each is [m], in its unit."""

    trend: Floats
    seasonal: Floats  # of all seasons together
    rest: Floats


def decompose(values: Floats, periods: tuple[int, ...]) -> Parts:
    """Return the trend and the seasons of `values[m]`, complete and of about unit size.

    `periods` are in samples, rising, each at most half of m. With one it is STL (Cleveland et al. 1990), with more
    MSTL (Bandara, Hyndman and Bergmeir 2021); both robust, and worked out at every twentieth of a period for the
    season and at every tenth for the trend, with straight lines between.
    """
    from statsmodels.tsa.seasonal import MSTL, STL  # noqa: PLC0415 - costs a second

    shortest = periods[0]
    options = {
        "robust": True,
        "seasonal_jump": max(1, shortest // 20),
        "trend_jump": max(1, shortest // 10),
    }
    rounds = {"inner_iter": 1, "outer_iter": 2}
    if len(periods) == 1:
        found = STL(values, period=shortest, seasonal=_SEASONAL, **options).fit(**rounds)
    else:
        found = MSTL(values, periods=periods, stl_kwargs={**options, **rounds}).fit()
    seasonal = np.asarray(found.seasonal, dtype=np.float64)
    return Parts(
        np.asarray(found.trend, dtype=np.float64),
        seasonal.sum(axis=1) if seasonal.ndim == 2 else seasonal,
        np.asarray(found.resid, dtype=np.float64),
    )
