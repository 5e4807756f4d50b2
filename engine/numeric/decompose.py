"""A series in its parts, by statsmodels, whose one door this is. Slow: milliseconds to seconds a series."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from engine.model.series import Floats

_HARMONICS = 3  # of a season in a structural model
_BETTER = 3.0  # by so much in log-likelihood a season must predict better
_LAGS = 10  # over which what is left is tested
_HALF = 0.5  # of the slope now: as long as it was at least that, it is the same trend
_ITERATIONS = 200
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


class Structure(NamedTuple):
    """A series as level, season and noise, each of which may change; in its unit and by its steps."""

    level: Floats  # [m]
    seasonal: Floats  # [m], zeros without one
    rest: Floats  # [m], NaN where nothing was measured
    slope: float  # of the level now, per step
    slope_error: float  # its standard error
    since: int  # where the trend of now began
    whiteness: float  # the probability of a rest as regular as this one if it were noise: Ljung-Box


def structure(values: Floats, period: float | None) -> Structure:
    """Return the structural model of `values[m]`, NaN where missing, of about unit size, fitted by likelihood.

    It is a local linear trend with noise (Harvey 1989), and a season of `period` steps in three harmonics if
    that predicts better once one period has passed. ValueError if it cannot be fitted.
    """
    first = 1 if period is None else math.ceil(period)
    best = _structural(values, None)
    if period is not None:
        seasonal = _structural(values, period)
        gain = np.nansum(seasonal.llf_obs[first:]) - np.nansum(best.llf_obs[first:])
        if gain > _BETTER:
            best = seasonal
    level = np.asarray(best.level.smoothed, dtype=np.float64)
    seasons = best.freq_seasonal
    season = np.asarray(seasons[0].smoothed, dtype=np.float64) if seasons else np.zeros_like(level)
    slopes = np.asarray(best.trend.smoothed, dtype=np.float64)
    slope, error = float(slopes[-1]), math.sqrt(max(float(best.trend.smoothed_cov[-1]), 0.0))
    other = np.flatnonzero(slopes * np.sign(slope) < _HALF * abs(slope))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whiteness = float(best.test_serial_correlation("ljungbox", lags=_LAGS)[0, 1, -1])
    return Structure(
        level,
        season,
        values - level - season,
        slope,
        error,
        int(other[-1]) + 1 if len(other) else 0,
        whiteness,
    )


def _structural(values: Floats, period: float | None) -> Any:
    from statsmodels.tsa.statespace.structural import UnobservedComponents  # noqa: PLC0415

    season: dict[str, Any] = {}
    if period is not None:
        season = {
            "freq_seasonal": [{"period": period, "harmonics": _HARMONICS}],
            "stochastic_freq_seasonal": [False],
        }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it converged slowly is no news to anybody
        model = UnobservedComponents(values, level="local linear trend", **season)
        try:
            found = model.fit(disp=0, maxiter=_ITERATIONS)
        except np.linalg.LinAlgError as error:
            raise ValueError(f"no structural model fits: {error}") from error
    if not np.isfinite(found.llf):
        raise ValueError("no structural model fits: its likelihood is not finite")
    return found
