"""The session through which prometheus-api-client asks, and what that client lacks.

The client knows no limit of time for a whole answer nor of its size, sends a POST's query in the URL, says
nothing of warnings and of the result's type, and turns each error into a string. All of this is mended here,
below it: what it unwraps as the answer's `result` is an `Answer`. Imported late: requests is slow to import.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from engine.clients.access import Access
from engine.clients.bounds import Bounds, TooLong, connect
from engine.clients.wording import fault, hide, host_of, one_line, root_cause
from engine.errors import QueryError, QueryUnavailable
from engine.model.settings import PrometheusSettings, Tls
from engine.query.answer import Answer, read_answer, too_many

_POOL_SIZE = 64  # connections that are kept; evaluations run in fewer threads
_BYTES_OF_A_SAMPLE = 400  # of JSON, with its share of the labels: Ray's label sets have 200 to 500
_BYTES_AT_LEAST = 4 * 1024 * 1024
_FAULTS = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)
_DROPPED = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)

# urllib3 hands nothing of a request down to its socket, which serves many. Each exchange has one thread.
_bounds: ContextVar[Bounds] = ContextVar("bounds")


class _BoundedSocket(socket.socket):
    """A socket that keeps the bounds of the exchange it is used for."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        bounds = _bounds.get()
        self.settimeout(bounds.left())
        count = super().recv_into(*args, **kwargs)
        bounds.take(count)
        return count

    def send(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_bounds.get().left())
        return super().send(*args, **kwargs)

    def sendall(self, *args: Any, **kwargs: Any) -> None:
        self.settimeout(_bounds.get().left())
        super().sendall(*args, **kwargs)


class _BoundedTlsSocket(_BoundedSocket, ssl.SSLSocket):
    """The same over TLS."""


class _Connection(HTTPConnection):
    """A connection whose sockets are bounded."""

    def _new_conn(self) -> socket.socket:
        bounds = _bounds.get()
        plain = connect(self.host, self.port or self.default_port, bounds)
        bounded = _BoundedSocket(fileno=plain.detach())
        bounded.settimeout(bounds.left())  # holds for a whole TLS handshake
        return bounded


class _TlsConnection(_Connection, HTTPSConnection):
    """The same over TLS. Certificates are read for each connection, so that rotated ones are taken up."""

    def connect(self) -> None:
        self.ssl_context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
        self.ssl_context.sslsocket_class = _BoundedTlsSocket
        super().connect()
        self.is_verified = True  # who sets insecure_skip_verify knows it; no warning at each query


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    """An adapter whose connections are bounded, and which tries nothing twice."""

    def __init__(self) -> None:
        super().__init__(
            pool_connections=1,
            pool_maxsize=_POOL_SIZE,
            max_retries=urllib3.Retry(total=0, redirect=False),
        )

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


class _DirectSession(requests.Session):
    """A session without redirects, which are not even looked at, cookies, and what the environment says."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        adapter = _Adapter()
        self.mount("http://", adapter)
        self.mount("https://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Envelope:
    """What PrometheusConnect takes for a response, and unwraps an Answer from."""

    answer: Answer
    status_code: int = 200

    def json(self) -> dict[str, dict[str, Answer]]:
        return {"data": {"result": self.answer}}


class Session:
    """The session that PrometheusConnect is given. Threads may share it.

    `request` raises QueryRejected and QueryUnavailable only.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self.where = f"Prometheus at {host_of(settings.url)}"
        tls = settings.tls_config or Tls()
        self.verify: bool | str = not tls.insecure_skip_verify and (tls.ca_file or True)
        self.cert = (tls.cert_file, tls.key_file) if tls.cert_file and tls.key_file else tls.cert_file
        self._direct = _DirectSession()
        self._access = Access(settings)

    def mount(self, prefix: str, adapter: object) -> None:
        """Do nothing: PrometheusConnect brings an adapter without bounds."""

    def close(self) -> None:
        """Close all connections."""
        self._direct.close()

    def request(self, method: str, url: str, params: Mapping[str, str], **_: object) -> _Envelope:
        """Send `params` as a form and return the answer."""
        try:
            headers, secrets = self._access.headers()
        except OSError as error:
            raise QueryUnavailable(f"{self.where} was not asked: {error}") from None
        try:
            status, body = self._exchange(url, params, headers)
            return _Envelope(read_answer(status, body, self.where))
        except _FAULTS as error:
            raise self._translate(error) from error
        except QueryError as error:
            # Whoever echoes a request may echo what it was authorised with.
            raise type(error)(hide(str(error), secrets)) from None

    def _exchange(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Return status and body. Tries twice where the server has dropped an idle connection meanwhile."""
        max_bytes = _BYTES_AT_LEAST + _BYTES_OF_A_SAMPLE * self._settings.max_samples
        before = _bounds.set(Bounds(self._settings.timeout.total_seconds(), max_bytes))
        try:
            return self._post(url, form, headers)
        except requests.ConnectionError as error:
            if not isinstance(root_cause(error), _DROPPED):
                raise
            return self._post(url, form, headers)
        finally:
            _bounds.reset(before)

    def _post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, bytes]:
        response = self._direct.post(
            url,
            data=form,
            # Compression costs both sides more than it spares a network nearby, and hides how much there is.
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=_bounds.get().left(),
            stream=True,
            allow_redirects=False,
            verify=self.verify,
            cert=self.cert,
        )
        with response:
            if 300 <= response.status_code < 400:
                raise QueryUnavailable(self._redirected(response))
            encoding = response.headers.get("Content-Encoding", "identity").lower()
            if encoding != "identity":
                raise QueryUnavailable(
                    f"{self.where} answered in {one_line(encoding, 40)}, which it was asked not to do"
                )
            return response.status_code, b"".join(response.raw.stream(2**16, decode_content=False))

    def _redirected(self, response: requests.Response) -> str:
        target = urlsplit(response.headers.get("Location", ""))
        host = target.netloc.rpartition("@")[2]
        place = one_line(f"{target.scheme}://{host}{target.path}" if host else target.path) or "nowhere"
        return (
            f"{self.where} answered {response.status_code}, a redirect to {place}; "
            "set prometheus.url to where Prometheus itself answers"
        )

    def _translate(self, error: BaseException) -> QueryError:
        """Return our error for one of the libraries'."""
        cause = root_cause(error)
        if isinstance(cause, TooLong):
            return too_many(str(cause), self._settings.max_samples)
        if isinstance(cause, TimeoutError):
            allowed = f"{self._settings.timeout} (prometheus.timeout)"
            return QueryUnavailable(f"{self.where} gave no whole answer within {allowed}: {fault(cause)}")
        if isinstance(cause, ssl.SSLError):
            return QueryUnavailable(
                f"{self.where} gave no answer: {fault(cause)}; check prometheus.tls_config"
            )
        if isinstance(cause, (requests.RequestException, ValueError)):
            # Their texts may hold the URL's password or a header's value.
            kind = type(cause).__name__
            return QueryUnavailable(
                f"{self.where} cannot be asked ({kind}); check its url, headers and secrets"
            )
        return QueryUnavailable(f"{self.where} gave no answer: {fault(cause)}")
