"""How much a series jumps: what a step brings that those before did not tell."""

from __future__ import annotations

import numpy as np

from engine.model.series import Floats

_BEFORE = 5  # steps whose median is the forecast
_AT_ONCE = 1 << 15  # values: what the steps in between need stays in the cache


def innovations(values: Floats) -> Floats:
    """Return each of `values[n, m]` less the median of the five before it, NaN where one of the six is missing.

    The median is that of a selection network of Devillard (1998): a sort of five would cost ten times as much.
    """
    found = np.full(values.shape, np.nan)
    count = values.shape[1] - _BEFORE
    if count <= 0:
        return found
    rows = max(1, _AT_ONCE // count)
    for first in range(0, len(values), rows):
        part = values[first : first + rows]
        a, b, c, d, e = (part[:, place : place + count] for place in range(_BEFORE))
        low = np.maximum(np.minimum(a, b), np.minimum(c, d))
        high = np.minimum(np.maximum(a, b), np.maximum(c, d))
        middle = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
        found[first : first + rows, _BEFORE:] = part[:, _BEFORE:] - middle
    return found
