"""The functions of Prometheus' package template, added to `functions.FUNCTIONS` by being imported.

The tests hold them against `promtool`; `now`, `toDuration` and `urlQueryEscape` are newer than 3.5 and follow
the documentation. `tmpl`, which Prometheus has in console templates only, works everywhere.
"""

from __future__ import annotations

import ipaddress
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from engine.errors import EngineError
from engine.lang.template import times
from engine.lang.template.functions import Surroundings, function
from engine.lang.template.numerals import parse_float, shortest
from engine.lang.template.printing import Writer, sprintf
from engine.lang.template.quoting import escape_query
from engine.lang.template.values import Fault, Map, Sample, Samples, clean, go_type, string_map
from engine.model.duration import Duration

_INT64 = 1 << 63
_HOST_PORT = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^\[\]:]*)):(?P<port>[^\[\]:]*)", re.DOTALL
)
_GROUP = re.compile(r"\$(?:\$|(?P<name>\w+)|\{(?P<braced>\w+)\})?")
_MID_WORD = ".:'\u00b7\u0387\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"


@function("query", "string", asks=True)
def _query(around: Surroundings, expr: str) -> Samples:
    if around.query is None:
        raise Fault("queries are not available here")
    try:
        result = around.query(expr)
    except EngineError as error:
        raise Fault(str(error)) from error
    return Samples(Sample(string_map(labels), float(value)) for labels, value in result)


@function("first", "samples")
def _first(samples: Samples) -> Sample:
    if not samples:
        raise Fault("first() called on vector with no elements")
    return samples[0]


@function("label", "string", "sample")
def _label(name: str, sample: Sample) -> object:
    return sample.labels.get(name)


@function("value", "sample")
def _value(sample: Sample) -> float:
    return sample.value


@function("strvalue", "sample")
def _strvalue(sample: Sample) -> object:
    return sample.labels.get("__value__")


@function("sortByLabel", "string", "samples")
def _sort_by_label(name: str, samples: Samples) -> Samples:
    return Samples(sorted(samples, key=lambda sample: str(sample.labels.get(name))))


@function("args", rest="any")
def _args(*values: object) -> Map:
    return Map("map[string]interface {}", {f"arg{index}": value for index, value in enumerate(values)})


@function("tmpl", "string", "any", asks=True)
def _tmpl(around: Surroundings, name: str, value: object) -> str:
    return around.invoke(name, value)


@function("safeHtml", "string")
def _safe_html(text: str) -> str:
    return text


@function("externalURL", asks=True)
def _external_url(around: Surroundings) -> str:
    return around.external_url


@function("pathPrefix", asks=True)
def _path_prefix(around: Surroundings) -> str:
    return urlsplit(around.external_url).path


@function("tableLink", "string")
def _table_link(expr: str) -> str:
    return f"/graph?g0.expr={escape_query(expr)}&g0.tab=1"


@function("graphLink", "string")
def _graph_link(expr: str) -> str:
    return f"/graph?g0.expr={escape_query(expr)}&g0.tab=0"


@function("urlQueryEscape", "string")
def _url_query_escape(text: str) -> str:
    return escape_query(text)


@function("stripPort", "string")
def _strip_port(address: str) -> str:
    host, port = _split_host_port(address)
    return address if port is None else host


@function("stripDomain", "string")
def _strip_domain(address: str) -> str:
    host, port = _split_host_port(address)
    if _is_ip(host):
        return address
    name = host.split(".")[0]
    if not port:
        return name
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _split_host_port(address: str) -> tuple[str, str | None]:
    """Return host and port; if Go's net.SplitHostPort would refuse, all of it and None."""
    match = _HOST_PORT.fullmatch(address)
    if match is None:
        return address, None
    return match["plain"] if match["bracketed"] is None else match["bracketed"], match["port"]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


@function("title", "string")
def _title(text: str) -> str:
    """Put the first letter of every word in title case; words go on over a single mark as in it's and a.b."""
    out, titled = [], False
    for index, character in enumerate(text):
        if not _in_word(character):
            inside = 0 < index < len(text) - 1 and _in_word(text[index - 1]) and _in_word(text[index + 1])
            titled = titled and character in _MID_WORD and inside
        elif not titled and character.isalpha():
            out.append(character.title())
            titled = True
            continue
        out.append(character)
    return "".join(out)


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


@function("toUpper", "string")
def _to_upper(text: str) -> str:
    return "".join(upper if len(upper := character.upper()) == 1 else character for character in text)


@function("toLower", "string")
def _to_lower(text: str) -> str:
    return "".join(character.lower()[0] for character in text)  # one for one, as Go maps letters


@function("match", "string", "string")
def _match(pattern: str, text: str) -> bool:
    return _compile(pattern).search(clean(text)) is not None


@function("reReplaceAll", "string", "string", "string")
def _re_replace_all(pattern: str, replacement: str, text: str) -> str:
    text, out, end, previous = clean(text), Writer(), 0, -1
    for match in _compile(pattern).finditer(text):
        if match.start() == match.end() == previous:
            continue  # Go finds no empty match right after another
        out.write(text[end : match.start()])
        _expand(out, replacement, match)
        end = previous = match.end()
    out.write(text[end:])
    return out.text()


def _compile(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - few templates need it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(clean(pattern), options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise Fault(f"bad regular expression {pattern[:100]!r}: {reason}") from None


def _expand(out: Writer, replacement: str, match: Any) -> None:
    """Write `replacement` with `$1`, `$name` and `${name}` filled in; what names no group is empty."""
    end = 0
    for reference in _GROUP.finditer(replacement):
        out.write(replacement[end : reference.start()])
        end = reference.end()
        name = reference["name"] or reference["braced"]
        if name is None:
            out.write("$")
        elif name.isdecimal():
            out.write(match[int(name)] or "" if len(name) < 6 and int(name) <= match.re.groups else "")
        else:
            out.write(match[name] or "" if name in match.re.groupindex else "")
    out.write(replacement[end:])


def _to_float(value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_float(value)
        except ValueError as error:
            raise Fault(str(error)) from None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise Fault(f"can't convert {go_type(value)} to float")


def _four_digits(number: float, unit: str = "") -> str:
    return sprintf("%.4g%s", (number, unit))


def _scaled(number: float, prefixes: Sequence[str], base: float) -> tuple[float, str]:
    """Return the number divided by `base` until it is below it, and the prefix for that."""
    prefix = ""
    for prefix_ in prefixes:
        if abs(number) < base:
            break
        prefix, number = prefix_, number / base
    return number, prefix


def _scaled_up(number: float) -> tuple[float, str]:
    """Return the number times 1000 until it is at least 1, and the prefix for that."""
    prefix = ""
    for prefix_ in "munpfazy":
        if abs(number) >= 1:
            break
        prefix, number = prefix_, number * 1000
    return number, prefix


@function("humanize", "any")
def _humanize(value: object) -> str:
    number = _to_float(value)
    if number == 0 or not math.isfinite(number):
        return _four_digits(number)
    return _four_digits(*(_scaled(number, "kMGTPEZY", 1000) if abs(number) >= 1 else _scaled_up(number)))


@function("humanize1024", "any")
def _humanize_1024(value: object) -> str:
    number = _to_float(value)
    if abs(number) <= 1 or not math.isfinite(number):
        return _four_digits(number)
    return _four_digits(*_scaled(number, ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"), 1024))


@function("humanizeDuration", "any")
def _humanize_duration(value: object) -> str:
    seconds = _to_float(value)
    if not math.isfinite(seconds):
        return _four_digits(seconds)
    if seconds == 0:
        return _four_digits(seconds, "s")
    if abs(seconds) < 1:
        return _four_digits(*_scaled_up(seconds)) + "s"
    sign, size = "-" if seconds < 0 else "", abs(seconds)
    if size < 60:
        return f"{sign}{_four_digits(size)}s"
    minutes, whole_seconds = divmod(int(size), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{days}d", f"{hours}h", f"{minutes}m", f"{whole_seconds}s"]
    return sign + " ".join(parts[0 if days else 1 if hours else 2 :])


@function("humanizePercentage", "any")
def _humanize_percentage(value: object) -> str:
    return _four_digits(_to_float(value) * 100, "%")


@function("humanizeTimestamp", "any")
def _humanize_timestamp(value: object) -> str:
    seconds = _to_float(value)
    return str(_time_of(seconds)) if math.isfinite(seconds) else _four_digits(seconds)


@function("toTime", "any")
def _to_time(value: object) -> times.Time:
    return _time_of(_to_float(value))


def _time_of(seconds: float) -> times.Time:
    """Return the instant, to the millisecond as Prometheus keeps it, cut off towards 1970."""
    if not math.isfinite(seconds):
        raise Fault("value is NaN or Inf")
    if not -_INT64 <= seconds * 1e9 <= _INT64:
        raise Fault(f"{shortest(seconds)} s since 1970 are beyond what a timestamp in nanoseconds can hold")
    milliseconds = (
        int(math.trunc(seconds * 1e9) / 1e6) if seconds < 0 else math.trunc(seconds * 1e9) // 1_000_000
    )
    return times.Time(milliseconds * 1_000_000)


@function("toDuration", "any")
def _to_duration(value: object) -> times.Duration:
    seconds = _to_float(value)
    if not math.isfinite(seconds) or not -_INT64 <= seconds * 1e9 <= _INT64:
        raise Fault(f"{value} s are beyond what a duration can hold, which is 292 years")
    return times.Duration(math.trunc(seconds * 1e9))


@function("parseDuration", "string")
def _parse_duration(text: str) -> float:
    try:
        return Duration.parse(text).total_seconds()
    except ValueError as error:
        raise Fault(str(error)) from None


@function("now", asks=True)
def _now(around: Surroundings) -> float:
    if around.now is None:
        raise Fault("the time is not available here")
    return around.now
