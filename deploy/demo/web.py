"""JSON over HTTP on loopback, past any proxy that the environment names."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HttpFailure(RuntimeError):
    """A server answered with an error, or did not answer."""


def fetch(
    url: str,
    body: Mapping[str, object] | None = None,
    *,
    method: str | None = None,
    timeout: float = 10.0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The body of the answer; POST if there is something to send."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - only servers of our own are asked
        url, data=data, method=method, headers={"Content-Type": "application/json", **headers}
    )
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise HttpFailure(
            f"{request.get_method()} {url}: {error.code} {error.read().decode(errors='replace')[:500]}"
        ) from error
    except OSError as error:
        raise HttpFailure(f"{request.get_method()} {url}: {error}") from error
    return content


def fetch_json(
    url: str,
    body: Mapping[str, object] | None = None,
    *,
    method: str | None = None,
    timeout: float = 10.0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """The decoded answer."""
    return json.loads(fetch(url, body, method=method, timeout=timeout, headers=headers))


def answers(url: str, timeout: float = 2.0) -> bool:
    """True if the address answers with success."""
    try:
        fetch(url, timeout=timeout)
    except HttpFailure:
        return False
    return True
