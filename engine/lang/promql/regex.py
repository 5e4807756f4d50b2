"""Regular expressions as Go and Prometheus have them: RE2's syntax, `.` matches newlines too."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import cast

import re2

from engine.errors import ExpressionError

_SILENT = re2.Options()
_SILENT.log_errors = False  # the exception says it


@lru_cache(maxsize=4096)
def compile_regex(pattern: str) -> re.Pattern[str]:
    """Return `pattern` compiled; google-re2 offers the interface of `re`, so it is typed as that."""
    try:
        return cast("re.Pattern[str]", re2.compile(f"(?s:{pattern})", _SILENT))
    except re2.error as error:
        reason = str(error.args[0], "utf-8", "replace").replace(f"(?s:{pattern})", pattern)
        raise ExpressionError(
            f"bad regular expression {pattern!r}: {reason}; write it in RE2 syntax"
        ) from None
