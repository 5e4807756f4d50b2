"""Tell on the terminal what the engine decides, from its own log."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.demo.engine_process import Line, follow

_BOLD, _RED, _YELLOW, _GREEN, _FAINT, _PLAIN = (
    "\033[1m",
    "\033[31m",
    "\033[33m",
    "\033[32m",
    "\033[2m",
    "\033[0m",
)
_COLOUR_OF = {"pending": _YELLOW, "firing": _RED, "resolved": _GREEN, "helped": _GREEN, "verifying": _YELLOW}


class Narrator:
    """Prints one line an event, with the seconds since the demo began."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._colours = sys.stdout.isatty()
        self._helped = False
        self._alerts: dict[str, str] = {}  # state of each alert, by fingerprint
        self._names: dict[str, str] = {}  # name of each alert, by fingerprint
        self._told = False  # that it has resolved
        self._healed = ""  # fingerprint of the alert that a run was made for

    def say(self, text: str, style: str = "") -> None:
        """Print one line."""
        seconds = time.monotonic() - self._start
        print(f"{self._styled(f'{seconds:6.1f} s', _FAINT)}  {self._styled(text, style)}", flush=True)

    def block(self, text: str) -> None:
        """Print text that has lines of its own."""
        print("".join(f"          | {line}\n" for line in text.splitlines()), flush=True)

    def places(self, places: Mapping[str, str]) -> None:
        """Print where to look."""
        self.say("Where to look:")
        for what, where in places.items():
            print(f"          {what:24} {where}", flush=True)

    def end(self, text: str) -> None:
        """Print the last line."""
        self.say(text, _BOLD)

    def follow(self, log: Path, *, within: float, alive: Callable[[], bool]) -> bool:
        """Tell what the log says until the healed alert has resolved; False if that does not come in time."""
        deadline = time.monotonic() + within
        for line in follow(log, lambda: time.monotonic() < deadline and alive()):
            self._tell(line)
            if self._helped and self._alerts.get(self._healed) == "resolved" and self._told:
                self.say("The cluster was relieved and the alert has resolved.", _GREEN)
                return True
        self.say("The engine ended." if not alive() else f"Not healed within {within:.0f} s.", _RED)
        return False

    def _tell(self, line: Line) -> None:
        teller: dict[str, Callable[[Line], None]] = {
            "transition": self._transition,
            "run": self._run,
            "notified": self._notified,
            "muted": self._muted,
            "evaluation_failed": self._trouble,
            "notification_failed": self._trouble,
            "trouble": self._trouble,
        }
        if (tell := teller.get(str(line.get("event")))) is not None:
            tell(line)

    def _transition(self, line: Line) -> None:
        state = str(line["after"])
        self._alerts[str(line["subject"])] = state
        self._names[str(line["subject"])] = str(line["alert"])
        self.say(f"{line['alert']} is {state.upper()}: {line['reason']}", _COLOUR_OF.get(state, ""))
        if (summary := line.get("summary")) and state in ("pending", "firing"):
            self.say(f"  {summary}")

    def _run(self, line: Line) -> None:
        state = str(line.get("state", "not planned"))
        self._healed = str(line.get("fingerprint", self._healed))
        self._helped = self._helped or state == "helped"
        self.say(f"{line['playbook']} is {state.upper()}: {line['reason']}", _COLOUR_OF.get(state, _BOLD))

    def _notified(self, line: Line) -> None:
        self._told = self._told or (line["subject"] == self._healed and line.get("state") == "resolved")
        if line["reason"] != "remediation progressed":
            self.say(f"told {line['receiver']} by {line['integration']}: {line['reason']}", _FAINT)

    def _muted(self, line: Line) -> None:
        by = re.search(r'alertname="([^"]*)"', str(line["reason"]))
        alert = self._names.get(str(line["subject"]), "an alert")
        said = f"{by[1]} fires for the same node" if by else line["reason"]
        self.say(f"{alert} is not told: {said}", _FAINT)

    def _trouble(self, line: Line) -> None:
        self.say(f"{line['event']}: {line['reason']}", _RED)

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_PLAIN}" if style and self._colours else text
