"""What forecasts of times came to, and how wide their intervals must be for that.

Split conformal prediction (Vovk, Gammerman and Shafer 2005) over the logarithm of time, each side by itself, with
the level of each side led by what it misses (adaptive conformal inference, Gibbs and Candes 2021).
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from engine.model.series import Floats

_KEPT = 512  # newest forecasts that count
_RATE = 0.005  # gamma of Gibbs and Candes
_NARROWEST, _WIDEST = 0.5, 5.0


class Track(NamedTuple):
    """Forecasts whose truth is known: `scored[4, k]`, oldest first, and `missing[2]`, the share each side may miss.

    Rows: log(truth / median), log(median / early end), log(late end / median), and whether the interval that
    was told held the truth.
    """

    scored: Floats
    missing: Floats

    @classmethod
    def recall(cls, scored: Floats | None, missing: Floats | None, coverage: float) -> Self:
        """Return what was noted, or nothing yet, where it is not of the right shape."""
        if scored is None or missing is None or scored.shape[:1] != (4,) or missing.shape != (2,):
            return cls(np.empty((4, 0)), np.full(2, (1 - coverage) / 2))
        return cls(scored, missing)

    def factors(self, least: int) -> tuple[float, float]:
        """Return by how much the logarithms of both sides must grow; 1 with fewer than `least` forecasts."""
        error, early, late, _ = self.scored
        if len(error) < least:
            return 1.0, 1.0
        sides = (-error / early, error / late)
        return (
            float(np.clip(np.quantile(sides[0], 1 - self.missing[0]), _NARROWEST, _WIDEST)),
            float(np.clip(np.quantile(sides[1], 1 - self.missing[1]), _NARROWEST, _WIDEST)),
        )

    def add(self, error: Floats, early: Floats, late: Floats, *, least: int, coverage: float) -> Track:
        """Return the track with the forecasts [k] whose truth has just become known.

        `error`, `early` and `late` are the logarithms as in the rows, before any factor.
        """
        if not len(error):
            return self
        low, high = self.factors(least)
        missed = np.array([np.count_nonzero(-error > low * early), np.count_nonzero(error > high * late)])
        held = ((-error <= low * early) & (error <= high * late)).astype(np.float64)
        scored = np.concatenate([self.scored, np.stack([error, early, late, held])], axis=1)[:, -_KEPT:]
        aim = (1 - coverage) / 2
        missing = self.missing + _RATE * (aim * len(error) - missed)
        return Track(scored, np.clip(missing, aim / 5, aim * 3))

    def quality(self) -> tuple[float, float, float, int]:
        """Return coverage, bias and size of the error as ratios less 1, and the count."""
        error = self.scored[0]
        if not len(error):
            return np.nan, np.nan, np.nan, 0
        return (
            float(self.scored[3].mean()),
            float(np.expm1(np.median(error))),
            float(np.expm1(np.median(np.abs(error)))),
            len(error),
        )
