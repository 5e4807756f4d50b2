"""Every exception the engine raises on purpose.

* EngineError
  x LoadError              files are wrong; carries every problem found in them
  x ExpressionError        PromQL that the embedded evaluator refuses, with position and hint
  x TemplateError          a template that cannot be parsed or expanded
  x QueryError
    + QueryRejected        the server understood, and said no; do not retry
      - SamplesRejected    so for some of the samples that were written to it
    + QueryUnavailable     no answer, or not a useful one; try the next tick
  x DetectError            a detector failed on data it should have handled
  x NotifyError            `retryable` says whether to try again
  x ActionError            a call failed; `accepted` says whether it may have taken effect
    + ActionTimeout
  x ClusterError           Ray's HTTP API gave no useful answer
  x StoreError
  x AsideError             a calculation in a process of its own failed, died or took too long

A refusal by a guardrail, a muted alert and too little history are not errors;
they are answers, and have types in `engine.model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong with a file, where it is, and the way out. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message}"


class EngineError(Exception):
    """Base of all the engine's own exceptions."""


class LoadError(EngineError):
    """Files are wrong; nothing of them was taken over."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ExpressionError(EngineError):
    """PromQL that the embedded evaluator cannot parse or will not answer; at 1:1 if the place is unknown.

    `beyond` tells that a real server may well answer it: it is newer, experimental, or another server's.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1, *, beyond: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.beyond = beyond


class TemplateError(EngineError):
    """A template that cannot be parsed or expanded."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class QueryError(EngineError):
    """A query gave no result."""


class QueryRejected(QueryError):
    """The server understood the query and refused it."""


class SamplesRejected(QueryRejected):
    """A receiver of samples refused `count` of them for good, and took the others."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


class QueryUnavailable(QueryError):
    """The server gave no useful answer; the next tick may have more luck."""


class DetectError(EngineError):
    """A detector failed on data it should have handled."""


class NotifyError(EngineError):
    """A delivery failed. `retryable` says whether the same message may succeed later."""

    def __init__(
        self, message: str, *, retryable: bool, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.reason = reason  # a short word for the metric's label: rate_limited, timeout, rejected …
        self.retry_after = retry_after  # seconds, if the other side named them


class ActionError(EngineError):
    """A call of a playbook's step failed."""


class ActionTimeout(ActionError):
    """No answer in time; the call may or may not have taken effect."""


class ClusterError(EngineError):
    """Ray's HTTP API gave no useful answer.

    `status` is the HTTP status, None if there was none; `late` tells that there was none in time.
    """

    def __init__(self, message: str, *, status: int | None = None, late: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.late = late


class StoreError(EngineError):
    """State could not be read or written."""


class AsideError(EngineError):
    """A calculation in a process of its own failed, died or took too long."""
