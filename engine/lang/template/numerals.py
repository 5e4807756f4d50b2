"""Go's ways to write numbers, and to read them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Protocol

_DIGITS = r"\d+(?:_\d+)*"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII)
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F_]*\.?[0-9a-fA-F_]*[pP][+-]?\d+", re.ASCII)
_SPECIAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)


class Layout(Protocol):
    """What a directive asks of a number; `printing.Style` is one."""

    @property
    def minus(self) -> bool: ...
    @property
    def plus(self) -> bool: ...
    @property
    def sharp(self) -> bool: ...
    @property
    def space(self) -> bool: ...
    @property
    def zero(self) -> bool: ...
    @property
    def width(self) -> int: ...
    @property
    def precision(self) -> int | None: ...


def parse_float(text: str) -> float:
    """Return the float that Go's strconv.ParseFloat reads; ValueError says why it reads none."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    number = math.nan
    if _DECIMAL.fullmatch(text):
        number = float(text)
    elif _HEX.fullmatch(text):
        try:
            number = float.fromhex(text.replace("_", ""))
        except (ValueError, OverflowError):
            number = math.nan
    if math.isnan(number):
        raise ValueError(f"{text[:50]!r} is not a number")
    if math.isinf(number):
        raise ValueError(f"{text[:50]!r} is out of range")
    return number


def shortest(number: float) -> str:
    """Return the fewest digits that give back a finite `number`, with an exponent below 1e-4 and from 1e6."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # the others are NaN and infinity
    point = len(digits) + exponent  # digits before the decimal point
    text = "".join(map(str, digits))
    if number == 0:
        body = "0"
    elif not -4 <= point - 1 < 6:
        mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
        body = f"{mantissa}e{point - 1:+03d}"
    elif point <= 0:
        body = f"0.{'0' * -point}{text}"
    else:
        whole, rest = text[:point].ljust(point, "0"), text[point:]
        body = f"{whole}.{rest}" if rest else whole
    return f"-{body}" if sign else body


def show_integer(value: int, verb: str, layout: Layout) -> str | None:
    """Return an integer by one of the verbs v d b o O x X; None if it is another."""
    bases = {"v": "d", "d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
    if verb not in bases:
        return None
    sign = "-" if value < 0 else "+" if layout.plus else " " if layout.space else ""
    digits = format(abs(value), bases[verb])
    if layout.precision == 0 and value == 0:
        return " " * layout.width
    if layout.precision is not None:
        digits = digits.rjust(layout.precision, "0")
    elif layout.zero:
        digits = digits.rjust(layout.width - len(sign), "0")
    marks = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}
    mark = "0o" if verb == "O" else marks.get(verb, "") if layout.sharp else ""
    if verb == "o" and digits.startswith("0"):
        mark = ""
    text = sign + mark + digits
    return text.ljust(layout.width) if layout.minus else text.rjust(layout.width)


def show_float(value: float, verb: str, layout: Layout) -> str | None:
    """Return a float by one of the verbs v g G e E f F x X b; None if it is another."""
    if verb not in "vgGeEfFxXb":
        return None
    zero = layout.zero and math.isfinite(value)
    negative = math.copysign(1, value) < 0 and not math.isnan(value)
    sign = "-" if negative else "+" if layout.plus else " " if layout.space else ""
    if math.isinf(value):
        sign, body = sign or "+", "Inf"
    elif math.isnan(value):
        body = "NaN"
    else:
        body = _magnitude(abs(value), verb, layout)
    if zero:
        return sign + body.rjust(layout.width - len(sign), "0")
    text = sign + body
    return text.ljust(layout.width) if layout.minus else text.rjust(layout.width)


def _magnitude(number: float, verb: str, layout: Layout) -> str:
    precision = layout.precision
    if verb == "b":
        mantissa, exponent = _binary(number)
        return f"{mantissa}p{exponent - 52:+d}"
    if verb in "xX":
        text = _hex(number, precision)
        return text.upper() if verb == "X" else text
    sharp = "#" if layout.sharp else ""
    if verb in "eEfF":
        return format(number, f"{sharp}.{6 if precision is None else precision}{verb}")
    if precision is not None:
        text = format(number, f"{sharp}.{precision}g")
    else:
        text = shortest(number)
        if sharp and sum(character.isdigit() for character in text.split("e")[0].lstrip("0.")) < 6:
            text = format(number, "#g")
    return text.upper() if verb == "G" else text


def _binary(number: float) -> tuple[int, int]:
    """Return m and e with number = m · 2^(e - 52) and m of 53 bits, or 0."""
    fraction, exponent = math.frexp(number)
    return int(fraction * (1 << 53)), exponent - 1 if number else -1022


def _hex(number: float, precision: int | None) -> str:
    mantissa, exponent = _binary(number)
    if number == 0:
        exponent = 0
    if precision is not None and precision < 13:
        step = 1 << (52 - 4 * precision)
        mantissa = (
            round(mantissa / step) * step
        )  # a power of two divides exactly, and round() is half to even
        if mantissa >> 53:
            mantissa, exponent = mantissa >> 1, exponent + 1
    digits = f"{mantissa & ((1 << 52) - 1):013x}"
    digits = digits.rstrip("0") if precision is None else digits[:precision].ljust(precision, "0")
    return f"0x{mantissa >> 52}{'.' if digits else ''}{digits}p{exponent:+03d}"
