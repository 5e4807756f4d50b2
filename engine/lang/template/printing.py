"""Go's fmt: how values become text, by `%v` or by a format.

Written after the documentation of Go's package fmt and held against a real
promtool. Left out: complex numbers, and the addresses of pointers, which Go
prints where a query's result stands inside something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.lang.template.numerals import show_float, show_integer
from engine.lang.template.quoting import hexadecimal, quote, quote_rune
from engine.lang.template.times import Duration, Named, Time
from engine.lang.template.values import LIMIT, Fault, Map, Root, Sample, go_type

_DIRECTIVE = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<first>\[[^\]]*\])?(?P<width>\*|\d+)?"
    r"(?:(?P<dot>\.)(?P<second>\[[^\]]*\])?(?P<precision>\*|\d+)?)?(?P<third>\[[^\]]*\])?(?P<verb>.)?",
    re.DOTALL,
)
_DEPTH = 50  # of maps within maps; `args` could nest them without end
_U64 = (1 << 64) - 1
_ADDRESS = "0xc000000000"


@dataclass(frozen=True, slots=True)
class Style:
    """A directive of a format: its flags, width and precision."""

    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    go_syntax: bool = False  # %#v
    with_names: bool = False  # %+v
    width: int = 0
    precision: int | None = None

    def pad(self, text: str) -> str:
        """Return `text` at the width."""
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if self.zero else " ")

    def for_verb(self, verb: str) -> Style:
        """Return the style as `%v` reads the flags, which it takes for others."""
        if verb != "v":
            return self
        return replace(self, plus=False, sharp=False, with_names=self.plus, go_syntax=self.sharp)


PLAIN = Style()


class Writer:
    """Collects text up to the limit."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._room = LIMIT

    def write(self, text: str) -> None:
        """Add `text`, or raise Fault if it is too much."""
        self._room -= len(text)
        if self._room < 0:
            raise Fault(f"the text is longer than {LIMIT} characters")
        self._parts.append(text)

    def text(self) -> str:
        """Return all of it."""
        return "".join(self._parts)


def show(value: object) -> str:
    """Return what an action inserts for `value`."""
    if value is None:
        return "<no value>"
    if isinstance(value, str):
        return value
    out = Writer()
    _Printer(out, "v", PLAIN).write(value, followed=isinstance(value, Sample))
    return out.text()


def sprint(values: Sequence[object]) -> str:
    """Return the values' text, with a space between two neighbours neither of which is a string."""
    out = Writer()
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out.write(" ")
        _Printer(out, "v", PLAIN).write(value)
    return out.text()


def sprintln(values: Iterable[object]) -> str:
    """Return the values' text with spaces between and a line's end after."""
    out = Writer()
    for index, value in enumerate(values):
        out.write(" " if index else "")
        _Printer(out, "v", PLAIN).write(value)
    out.write("\n")
    return out.text()


def sprintf(form: str, values: Sequence[object]) -> str:
    """Return `form` with its directives replaced by the values, and Go's marks where the two do not fit."""
    out, arguments, end = Writer(), _Arguments(values), 0
    for match in _DIRECTIVE.finditer(form):
        out.write(form[end : match.start()])
        end = match.end()
        _direct(out, match, arguments)
    out.write(form[end:])
    if rest := arguments.rest():
        out.write("%!(EXTRA ")
        for index, value in enumerate(rest):
            out.write(", " if index else "")
            out.write("<nil>" if value is None else f"{go_type(value)}=")
            if value is not None:
                _Printer(out, "v", PLAIN).write(value)
        out.write(")")
    return out.text()


class _Arguments:
    """The values of a format, taken in turn or by index."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values, self._next, self._reordered = values, 0, False
        self.bad_index = False

    def seek(self, index: str | None) -> None:
        """Go to the value that `[n]` names."""
        if index is None:
            return
        self._reordered = True
        number = int(index[1:-1]) if re.fullmatch(r"\[[0-9]{1,6}\]", index) else 0
        if 1 <= number <= len(self._values):
            self._next = number - 1
        else:
            self.bad_index = True

    def take(self) -> tuple[bool, object]:
        """Return whether there is a further value, and it."""
        if self._next >= len(self._values):
            return False, None
        self._next += 1
        return True, self._values[self._next - 1]

    def number(self) -> int | None:
        """Return the next value as a width or precision; None if it is none."""
        _, value = self.take()
        return value if type(value) is int and abs(value) <= LIMIT else None

    def rest(self) -> Sequence[object]:
        """Return the values that no directive asked for."""
        return () if self._reordered else self._values[self._next :]


def _direct(out: Writer, match: re.Match[str], arguments: _Arguments) -> None:
    arguments.bad_index = False
    style = _style(out, match, arguments)
    arguments.seek(match["third"])
    verb = match["verb"]
    if verb is None:
        out.write("%!(NOVERB)")
    elif verb == "%":
        out.write("%")
    elif arguments.bad_index:
        out.write(f"%!{verb}(BADINDEX)")
    else:
        found, value = arguments.take()
        if found:
            _Printer(out, verb, style.for_verb(verb)).write(value)
        else:
            out.write(f"%!{verb}(MISSING)")


def _style(out: Writer, match: re.Match[str], arguments: _Arguments) -> Style:
    flags = match["flags"]
    arguments.seek(match["first"])
    width = _measure(match["width"], arguments)
    if match["width"] and width is None:
        out.write("%!(BADWIDTH)")
    if match["first"] and (match["width"] or "*") != "*":
        arguments.bad_index = True
    arguments.seek(match["second"])
    precision = _measure(match["precision"], arguments)
    if match["precision"] and (precision is None or precision < 0):
        out.write("%!(BADPREC)")
        precision = None
    elif match["dot"] and precision is None:
        precision = 0
    minus = "-" in flags or (width or 0) < 0
    return Style(
        minus=minus,
        plus="+" in flags,
        sharp="#" in flags,
        space=" " in flags,
        zero="0" in flags and not minus,
        width=abs(width or 0),
        precision=precision,
    )


def _measure(text: str | None, arguments: _Arguments) -> int | None:
    if not text:
        return None
    if text == "*":
        return arguments.number()
    if len(text) > 7 or int(text) > LIMIT:
        raise Fault(f"a width or precision of {text} is too much")
    return int(text)


def _null(verb: str, style: Style, depth: int) -> str:
    if verb != "v":
        return f"%!{verb}(<nil>)"
    return "interface {}(nil)" if style.go_syntax and depth else style.pad("<nil>")


def _misfit(value: object, verb: str, style: Style) -> str:
    return f"%!{verb}({go_type(value)}={_scalar(value, 'v', style)})"


def _scalar(value: object, verb: str, style: Style) -> str | None:
    """Return the text of a value that has no parts; None if the verb does not fit."""
    if isinstance(value, (Time, Duration, Named)) and verb in "vsxXq":
        return _string(str(value), verb, style)
    if isinstance(value, bool):
        return style.pad(str(value).lower()) if verb in "tv" else None
    if isinstance(value, int):
        return _integer(value, verb, style)
    if isinstance(value, float):
        return show_float(value, verb, style)
    if isinstance(value, str):
        return _string(value, verb, style)
    return None


def _integer(value: int, verb: str, style: Style) -> str | None:
    if verb in "cqU":
        character = chr(value) if 0 <= value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF else "\ufffd"
        if verb == "U":
            code = f"U+{value & _U64:0{max(4, style.precision or 0)}X}"
            shown = style.sharp and character.isprintable() and ord(character) == value
            return replace(style, zero=False).pad(f"{code} '{character}'" if shown else code)
        return style.pad(character if verb == "c" else quote_rune(character, ascii_only=style.plus))
    return show_integer(value, verb, style)


def _string(text: str, verb: str, style: Style) -> str | None:
    if verb in "xX":
        return style.pad(hexadecimal(text, verb, style.precision, spaced=style.space, prefixed=style.sharp))
    cut = text if style.precision is None else text[: style.precision]
    if style.go_syntax:
        return style.pad(quote(cut))
    if verb in "sv":
        return style.pad(cut)
    if verb == "q":
        return style.pad(quote(cut, ascii_only=style.plus, raw=style.sharp))
    return None


@dataclass(frozen=True, slots=True)
class _Printer:
    """Writes values by one verb, and their parts by the same."""

    out: Writer
    verb: str
    style: Style

    def write(self, value: object, depth: int = 0, *, followed: bool = False) -> None:
        """Write one value; `followed` says that Go went along the pointer to it already."""
        if depth > _DEPTH:
            raise Fault(f"a value is nested deeper than {_DEPTH}")
        verb, style = self.verb, self.style
        if verb == "T":
            cut = None if value is None else style.precision
            self.out.write(style.pad(go_type(value)[:cut]))
        elif value is None:
            self.out.write(_null(verb, style, depth))
        elif isinstance(value, Map):
            entries = [(key, value.get(key)) for key in sorted(value.entries)]
            self.write_parts(f"{value.type}{{" if style.go_syntax else "map[", entries, depth)
        elif isinstance(value, (Sample, Root)):
            self.write_struct(value, depth, followed=followed)
        elif isinstance(value, tuple):
            self.write_parts(f"{go_type(value)}{{" if style.go_syntax else "[", value, depth)
        else:
            text = _scalar(value, verb, style)
            self.out.write(_misfit(value, verb, style) if text is None else text)

    def write_parts(self, opening: str, parts: Sequence[object], depth: int) -> None:
        """Write the elements of a list, or the pairs of a map."""
        self.out.write(opening)
        for index, part in enumerate(parts):
            self.write_gap(index)
            if isinstance(part, tuple) and opening.startswith("map["):
                self.write(part[0], depth + 1)
                self.out.write(":")
                self.write(part[1], depth + 1)
            else:
                self.write(part, depth + 1)
        self.out.write("}" if self.style.go_syntax else "]")

    def write_struct(self, value: Sample | Root, depth: int, *, followed: bool) -> None:
        if isinstance(value, Sample) and depth:
            self.out.write(_ADDRESS)
            return
        names = self.style.go_syntax or self.style.with_names
        self.out.write("&" if isinstance(value, Sample) and not followed else "")
        self.out.write(f"{go_type(value).lstrip('*') if self.style.go_syntax else ''}{{")
        for index, (name, field) in enumerate(value.fields().items()):
            self.write_gap(index)
            self.out.write(f"{name}:" if names else "")
            self.write(field, depth + 1)
        self.out.write("}")

    def write_gap(self, index: int) -> None:
        if index:
            self.out.write(", " if self.style.go_syntax else " ")
