"""The service's log: the engine's decisions and troubles, as key-values with constant messages."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog

from engine.model.event import LASTING, Event, Kind

_TROUBLE = frozenset({Kind.FAILED, Kind.MISSED, Kind.NOT_NOTIFIED, Kind.TROUBLE})


class _Stderr:
    """Standard error that may be lost: a full disk or a reader that went away must not stop an evaluation."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def log_to_stderr(log_format: str, log_level: str) -> None:
    """Set up logging: `text` for people, `json` for collectors."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(log_level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=_Stderr()),  # type: ignore[arg-type]  # it only prints
    )
    _route_other_loggers(renderer, log_level)


def _route_other_loggers(renderer: structlog.typing.Processor, log_level: str) -> None:
    """Give the warnings of libraries, and of modules that log by themselves, the same form."""
    handler = logging.StreamHandler(_Stderr())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(
        handlers=[handler], level=max(logging.WARNING, logging.getLevelName(log_level.upper()))
    )


def log_event(event: Event) -> None:
    """Write one event to the log; those of every evaluation are left to the metrics."""
    if event.kind not in LASTING:
        return
    log = structlog.get_logger("engine")
    unplanned = event.kind is Kind.RUN and "state" not in event.data
    write = log.warning if event.kind in _TROUBLE or unplanned else log.info
    write(event.kind.value, subject=event.subject, reason=event.reason, **event.data)
