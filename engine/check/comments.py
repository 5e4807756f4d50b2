"""`# engine disable <check>` and `# engine snooze 2026-12-31 <check>`: findings that somebody has looked at.

In or right above a rule a comment is about that rule; `# engine disable-file <check>` is about the whole file.
What follows the names is the reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from engine.errors import Problem
from engine.load.records import suggest

_COMMENT = re.compile(r"#\s*engine\s+(?P<word>disable-file|disable|snooze)\b\s*(?P<rest>[^#]*)")
_NAME = re.compile(r"[a-z-]+/[a-z-]+")


@dataclass(frozen=True, slots=True)
class Silence:
    """One comment: from which line to which it holds, for which check, until when."""

    first: int
    last: int
    check: str
    until: date | None  # the last day that it holds; None: for ever

    def covers(self, check: str, line: int, today: date) -> bool:
        """Tell whether it keeps a finding of `check` in `line` back."""
        in_time = self.until is None or today <= self.until
        return in_time and check == self.check and self.first <= line <= self.last


def read_comments(
    path: str, lines: Sequence[str], rules: Sequence[int], known: Collection[str]
) -> tuple[list[Silence], list[Problem]]:
    """Return what the comments of a file say, and what is wrong with them; `rules` are the lines rules start at."""
    silences: list[Silence] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        found = _COMMENT.search(line)
        if found is None:
            continue
        place = path, number, found.start() + 1
        first, last = (1, len(lines)) if found["word"] == "disable-file" else _range(lines, rules, number)
        rest, until = found["rest"].strip(), None
        if found["word"] == "snooze":
            day, _, rest = rest.partition(" ")
            try:
                until = date.fromisoformat(day)
            except ValueError:
                message = f"'# engine snooze' needs a day such as 2026-12-31 before the check, got {day!r}"
                problems.append(Problem(*place, message))
                continue
        names = list(_names(rest))
        if not names:
            problems.append(
                Problem(*place, f"'# engine {found['word']}' needs the name of a check, such as ray/metric")
            )
        for name in names:
            if name not in known:
                problems.append(Problem(*place, f"no check is called {name!r}{suggest(name, known)}"))
            silences.append(Silence(first, last, name, until))
    return silences, problems


def _names(text: str) -> Iterator[str]:
    """Yield the names at the start of a text; the reason begins with the first word that is none."""
    for word in re.split(r"[,\s]+", text):
        if not _NAME.fullmatch(word):
            return
        yield word


def _range(lines: Sequence[str], rules: Sequence[int], number: int) -> tuple[int, int]:
    """Return the lines of the rule that a comment is in, or of the one right below it."""
    at = number
    while at <= len(lines) and lines[at - 1].lstrip().startswith("#"):
        at += 1
    start = at if at in rules else max((each for each in rules if each <= number), default=1)
    end = min((each - 1 for each in rules if each > start), default=len(lines))
    return start, end
