"""How much a series jumps: what a step brings that those before did not tell."""

from __future__ import annotations

import numpy as np

from engine.model.series import Floats

_BEFORE = 5  # steps whose median is the forecast


def innovations(values: Floats) -> Floats:
    """Return each of `values[n, m]` less the median of the five before it, NaN where one of the six is missing.

    The median is that of a selection network of Devillard (1998): a sort of five would cost ten times as much.
    """
    found = np.full(values.shape, np.nan)
    count = values.shape[1] - _BEFORE
    if count <= 0:
        return found
    a, b, c, d, e = (values[:, place : place + count] for place in range(_BEFORE))
    low, high = np.maximum(np.minimum(a, b), np.minimum(c, d)), np.minimum(np.maximum(a, b), np.maximum(c, d))
    least, most = np.minimum(low, high), np.maximum(low, high)
    found[:, _BEFORE:] = values[:, _BEFORE:] - np.maximum(least, np.minimum(most, e))
    return found
