"""Text for Slack's mrkdwn that cannot become anything else: no mention, link, emoji or markup.

What may be copied (a label, an id, a table) goes into code, where nothing has an effect and nothing but the
backtick is changed. Prose gets look-alikes for the few characters that format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.lang.readable import cut, one_line

_BACKTICK = "\N{MODIFIER LETTER GRAVE ACCENT}"
_INERT = str.maketrans({"*": "\N{ASTERISK OPERATOR}", "~": "\N{TILDE OPERATOR}", "`": _BACKTICK})
_ITALIC = re.compile(r"(?<!\w)_|_(?!\w)")
_EMOJI = re.compile(r":(?=[a-z+-][\w+-]*:)")
_NOT_OF_A_URL = re.compile(r"[^!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]")


def escape(text: str) -> str:
    """Return `text` with the three characters replaced that start links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def words(text: str, limit: int = 300) -> str:
    """Return prose on one line, without effect, of at most `limit` characters before it is escaped."""
    inert = one_line(text, limit).translate(_INERT)
    # Only an underscore at a word's edge is markup; names such as ray_tasks stay what can be copied.
    inert = _ITALIC.sub("\N{FULLWIDTH LOW LINE}", inert)
    return escape(_EMOJI.sub("\N{MODIFIER LETTER COLON}", inert))


def code(text: str, limit: int = 120) -> str:
    """Return a code span."""
    return f"`{escape(one_line(text, limit)).replace('`', _BACKTICK) or '-'}`"


def block(lines: Sequence[str], limit: int) -> str:
    """Return a block of code of at most `limit` characters, cut at whole lines."""
    printable = ("".join(char if char.isprintable() else " " for char in line) for line in lines)
    safe = [escape(line).replace("`", _BACKTICK) for line in printable]
    return f"```{fit(safe, limit - 6)}```" if any(map(str.strip, safe)) else "```nothing```"


def fit(lines: Sequence[str], limit: int, joint: str = "\n", *, of: int | None = None) -> str:
    """Return as many whole lines as `limit` characters hold, and how many of all (`of`) are left out."""
    count = len(lines) if of is None else of
    if count == len(lines) and sum(map(len, lines)) + len(joint) * (count - 1) <= limit:
        return joint.join(lines)
    taken, room = list[str](), limit - len(f"{joint}… and {count:,} more")
    for line in lines:
        room -= len(line) + len(joint)
        if room < 0:
            break
        taken.append(line)
    return joint.join([*taken, f"… and {count - len(taken):,} more"])


def link(url: str, title: str) -> str:
    """Return a link, or nothing if a person should not be sent there."""
    if len(url) > 500 or not re.match(r"https?://[^\s/]", url):
        return ""
    target = _NOT_OF_A_URL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)
    return f"<{escape(target)}|{words(title, 60)}>"


def fallback(text: str, limit: int) -> str:
    """Return `text` escaped, and cut so that the escaped form has at most `limit` characters."""
    text = one_line(text, limit)
    while len(safe := escape(text)) > limit:
        text = cut(text, len(text) - max(1, (len(safe) - limit) // 5))
    return safe
