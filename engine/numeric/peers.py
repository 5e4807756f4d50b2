"""What the members of a group have in common, and what is each one's own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.series import Bools, Floats
from engine.numeric.robust import median

_ROUNDS = (
    2  # of polishing: the first removes the members' own levels, the second what these did to the common one
)


class Polished(NamedTuple):
    """`values[n, m]` taken apart: common[m] + own[n] + rest[n, m]."""

    common: Floats
    own: Floats
    rest: Floats


def median_polish(values: Floats, usual: Bools) -> Polished:
    """Return the common course of the series `values[n, m]`, each one's own level, and what is left.

    Tukey's median polish (Exploratory Data Analysis, 1977). NaN is a missing value. The common course does not
    move when a member with an unusual level of its own comes or goes, as a median over the members alone would.
    `usual[n, m]` tells which values may say what a member's own level is.
    """
    own = np.zeros(len(values))
    common = np.zeros(values.shape[1])
    for _ in range(_ROUNDS):
        common = median((values - own[:, None]).T)
        own = median(np.where(usual, values - common, np.nan))
        own = np.where(np.isnan(own), median(values - common), own)  # what is all unusual is its own usual
        own = np.nan_to_num(own)
    return Polished(common, own, values - common - own[:, None])


def rolling_mean(values: Floats, width: int) -> Floats:
    """Return the mean of each of `values[n, m]` and the `width - 1` before it.

    Missing values are left out; NaN where half of them or more are missing.
    """
    there = ~np.isnan(values)
    filled = np.where(there, values, 0.0)
    total, count = np.zeros_like(values), np.zeros_like(values)
    for back in range(min(width, values.shape[1])):
        total[:, back:] += filled[:, : values.shape[1] - back]
        count[:, back:] += there[:, : values.shape[1] - back]
    return np.where(2 * count > width, total / np.maximum(count, 1), np.nan)
