"""How to be let in by a server of Prometheus' kind: headers, secrets in files, TLS."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from engine.clients.secret import SecretFile
from engine.model.settings import BasicAuth

_SECRET_HEADER = re.compile("auth|token|key|secret|cookie|password", re.IGNORECASE)


class Door(Protocol):
    """What settings say of a server."""

    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def bearer_token_file(self) -> str | None: ...
    @property
    def basic_auth(self) -> BasicAuth | None: ...


class Access:
    """The headers by which a server knows us. Threads may share it; files are read again when they change."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._token = SecretFile(door.bearer_token_file) if door.bearer_token_file else None
        self._password = SecretFile(door.basic_auth.password_file) if door.basic_auth else None

    def headers(self) -> tuple[dict[str, str], list[str]]:
        """Return the headers to send, and all that must not be told; OSError names a bad file."""
        authorization, secrets = self._authorization()
        return {**self._door.headers, **authorization}, [*secrets, *self._given()]

    def _authorization(self) -> tuple[dict[str, str], list[str]]:
        if self._token is not None:
            token = self._token.read()
            return {"Authorization": f"Bearer {token}"}, [token]
        if self._password is not None and self._door.basic_auth is not None:
            password = self._password.read()
            pair = base64.b64encode(f"{self._door.basic_auth.username}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}, [pair, password]
        return {}, []

    def _given(self) -> Iterator[str]:
        """Yield the secrets that stand in the settings themselves."""
        yield urlsplit(self._door.url).password or ""
        yield from (value for name, value in self._door.headers.items() if _SECRET_HEADER.search(name))
