"""Values as Go's standard library writes them, for those who read what Prometheus would have written."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

ZERO_TIME = "0001-01-01T00:00:00Z"


def rfc3339(at: datetime | None) -> str:
    """Return an instant as `time.RFC3339Nano` in UTC, without the fraction's last zeros; None is Go's zero time."""
    if at is None:
        return ZERO_TIME
    text = at.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


def exponential(number: float) -> str:
    """Return `strconv.FormatFloat(number, 'e', -1, 64)`: the fewest digits that give `number` back, as `6.05e+01`."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    # From the digits of `repr`, which are the fewest: rounding to as many of them can give another number.
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = exponent + len(digits) - 1 if any(digits) else 0
    fraction = "".join(map(str, digits[1:]))
    mantissa = f"{digits[0]}.{fraction}" if fraction else f"{digits[0]}"
    return f"{'-' * sign}{mantissa}e{power:+03d}"
