"""Go's quoted strings: reading them, and writing text in their manner, HTML's, JavaScript's and a URL's."""

from __future__ import annotations

import re
from urllib.parse import quote_plus

from engine.lang.template.values import Fault, from_bytes, to_bytes

_NAMED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34}
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{3})|x(?P<byte>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<named>[abfnrtv\\'\"]))"
)
_HTML = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"},
)
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}


def unquote(literal: str) -> str:
    """Return what a string literal of a template stands for, quoted by `"` or by backquotes."""
    body = literal[1:-1]
    if literal[0] == "`":
        return body.replace("\r", "")
    return from_bytes(b"".join(data for data, _ in _pieces(body, "'")))


def unquote_rune(literal: str) -> int:
    """Return the number of a character literal such as 'x'."""
    pieces = _pieces(literal[1:-1], '"')
    if len(pieces) != 1:
        raise Fault(f"malformed character constant: {literal}")
    return pieces[0][1]


def _pieces(body: str, other_quote: str) -> list[tuple[bytes, int]]:
    """Return each character's bytes and number. The quote that needs no escape may not have one."""
    pieces, position = [], 0
    while position < len(body):
        match = _ESCAPE.match(body, position)
        if match is None or match["named"] == other_quote:
            if body[position] == "\\":
                raise Fault(f"invalid escape {body[position : position + 2]!r} in a string")
            pieces.append((to_bytes(body[position]), ord(body[position])))
            position += 1
        else:
            pieces.append(_escaped(match))
            position = match.end()
    return pieces


def _escaped(match: re.Match[str]) -> tuple[bytes, int]:
    if match["named"]:
        return bytes([_NAMED[match["named"]]]), _NAMED[match["named"]]
    if match["byte"] or match["octal"]:
        number = int(match["byte"], 16) if match["byte"] else int(match["octal"], 8)
        if number > 0xFF:
            raise Fault(f"escape {match[0]} is more than a byte")
        return bytes([number]), number
    number = int(match["short"] or match["long"], 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise Fault(f"escape {match[0]} is not a character")
    return chr(number).encode(), number


def quote(text: str, *, ascii_only: bool = False, raw: bool = False) -> str:
    """Return `text` as a string literal of Go; with `raw`, by backquotes where they can hold it."""
    if raw and not re.search("[\x00-\x08\x0a-\x1f\x7f`\ufeff\ud800-\udfff]", text):
        return f"`{text}`"
    return f'"{"".join(_shown(character, chr(34), ascii_only=ascii_only) for character in text)}"'


def quote_rune(character: str, *, ascii_only: bool = False) -> str:
    """Return a character literal."""
    return f"'{_shown(character, chr(39), ascii_only=ascii_only)}'"


def _shown(character: str, mark: str, *, ascii_only: bool) -> str:
    code = ord(character)
    names = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v"}
    if character in (mark, "\\"):
        return f"\\{character}"
    if code in names:
        return f"\\{names[code]}"
    if character.isprintable() and (code < 128 or not ascii_only):
        return character
    if code < 32 or code == 127 or 0xDC80 <= code <= 0xDCFF:  # the last: a byte that is not UTF-8
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def hexadecimal(text: str, verb: str, precision: int | None, *, spaced: bool, prefixed: bool) -> str:
    """Return the bytes of `text` in hexadecimal, at most `precision` of them."""
    digits = [f"{byte:02{verb}}" for byte in to_bytes(text)[:precision]]
    prefix = f"0{verb}" if prefixed and digits else ""
    return " ".join(prefix + pair for pair in digits) if spaced else prefix + "".join(digits)


def escape_html(text: str) -> str:
    """Return `text` for use in HTML."""
    return text.translate(_HTML)


def escape_js(text: str) -> str:
    """Return `text` for use within a string of JavaScript."""

    def escape(character: str) -> str:
        if character in _JS:
            return _JS[character]
        code = ord(character)
        if code >= 32 and (code < 128 or character.isprintable()):
            return character
        return f"\\u{code:04X}"

    return "".join(map(escape, text))


def escape_query(text: str) -> str:
    """Return `text` for use within the query of a URL."""
    return quote_plus(to_bytes(text), safe="")
