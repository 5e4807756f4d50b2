"""Tells a Slack channel: one message an incident, changed in place as the incident goes on.

An edit makes no sound in Slack. So what a person must hear again (a reminder, new alerts) is also a short
reply in the message's thread that is shown in the channel; progress and resolution are edits only.

Charts are shared into the message's thread and then shown inside the message, where a person sees them
without a click. Sharing comes first because Slack refuses to show a file in a channel that it was not shared
with. If Slack will not show one yet, because it is still looking at it, the message stays as it is with the
chart in its thread, and the next update tries again. Nothing about a chart can lose the text.

A call that timed out may have been carried out. It is tried again all the same: a message told twice is
better than one not told.
"""

from __future__ import annotations

import logging
import math
import queue
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from engine.clients.secret import SecretFile
from engine.clients.wording import fault, one_line
from engine.clock import Stopwatch
from engine.errors import NotifyError
from engine.model.notification import Notification, Reason, Receipt
from engine.notify.slack_blocks import Block, Message, charts_of, compose
from engine.registry import notifier

if TYPE_CHECKING:
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError

_LOG = logging.getLogger(__name__)

_TIMEOUT = 10.0  # seconds, for one notification with all its calls
_LEAST = 1.0  # seconds that must be left for a call to be worth a try
_SLOW = 60.0  # seconds between tries of what waits for a person

_TO_HEAR = frozenset({Reason.NEW_ALERTS, Reason.REPEAT, Reason.ESCALATION})
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"})
_TOO_MUCH = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "block_mismatch"})
_PASSING = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)
_TOKEN = frozenset(
    {"invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "missing_scope"}
)
_CHANNEL = frozenset(
    {"channel_not_found", "not_in_channel", "is_archived", "restricted_action", "no_permission"}
)


_WORD = re.compile(r"[\w.:-]+")


@notifier("slack")
@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """One message an incident in a Slack channel, kept up to date until it is resolved.

    The bot needs the scopes `chat:write` and `files:write`, and must be invited to the channel.
    """

    channel: str  # name or id
    token_file: str  # read anew at each delivery, so a token can be replaced without a restart
    # Unlike with mail or pagers: to resolve is an edit that makes no sound, and without it the channel would
    # show as firing what has long ended.
    send_resolved: bool = True
    api_url: str = "https://slack.com/api/"

    updates_in_place: ClassVar[bool] = True

    def notify(self, notification: Notification, previous: Receipt | None) -> Receipt:
        delivery = _Delivery(self._client(), self.channel, Stopwatch())
        receipt = delivery.tell(notification, dict(previous or {}))
        return delivery.show_charts(notification, receipt)

    def _client(self) -> WebClient:
        from slack_sdk import WebClient  # noqa: PLC0415 - costs 0.1 s, and most commands tell nobody

        try:
            token = SecretFile(self.token_file).read()
        except OSError as error:
            what = f"slack: {error}; put the bot's token there, the file is read at each delivery"
            raise NotifyError(what, retryable=True, reason="token_file", retry_after=_SLOW) from None
        # No retry handlers: they sleep in the calling thread. Who calls knows better when to try again.
        client = WebClient(token=token, base_url=self.api_url, retry_handlers=[])
        client.proxy = (
            None  # urllib then heeds HTTPS_PROXY and NO_PROXY; the client's own way ignores the second
        )
        return client


@dataclass(frozen=True, slots=True)
class _Delivery:
    """The calls of one notification, within one time limit."""

    client: WebClient
    channel: str
    watch: Stopwatch

    def tell(self, notification: Notification, receipt: dict[str, str]) -> dict[str, str]:
        """Post or update the message, and return the receipt to keep."""
        message = compose(notification, receipt)
        if "ts" not in receipt or "channel" not in receipt:
            return self._post(message)
        try:
            self._update(message, receipt)
            if notification.reason in _TO_HEAR:
                self._remind(message, receipt)
        except NotifyError as error:
            if error.reason != "message_gone":
                raise
            return self._post(compose(notification))
        return receipt

    def _post(self, message: Message) -> dict[str, str]:
        answer = self._lightened(
            message.blocks,
            lambda blocks: self._call(
                "chat.postMessage",
                channel=self.channel,
                text=message.text,
                blocks=blocks,
                unfurl_links=False,
                unfurl_media=False,
            ),
        )
        # An update wants the channel's id, which only the answer tells.
        return {"channel": _part(answer, "channel"), "ts": _part(answer, "ts")}

    def _update(self, message: Message, receipt: Receipt) -> None:
        channel, ts = receipt["channel"], receipt["ts"]
        self._lightened(
            message.blocks,
            lambda blocks: self._call(
                "chat.update", channel=channel, ts=ts, text=message.text, blocks=blocks
            ),
        )

    def _remind(self, message: Message, receipt: Receipt) -> None:
        self._call(
            "chat.postMessage",
            channel=receipt["channel"],
            thread_ts=receipt["ts"],
            text=message.text,
            reply_broadcast=True,
            unfurl_links=False,
        )

    def _lightened(
        self, blocks: list[Block], send: Callable[[list[Block]], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Send all of it; if Slack refuses, without charts; if it still refuses, the text alone."""
        lighter = [block for block in blocks if block["type"] != "image"]
        tries = [blocks, *([lighter] if len(lighter) < len(blocks) else [])]
        for attempt in tries:
            try:
                return send(attempt)
            except NotifyError as error:
                if error.reason != "blocks_refused":
                    raise
                _LOG.warning("Slack refused blocks, sending less: %s", error)
        return send([])

    def show_charts(self, notification: Notification, receipt: dict[str, str]) -> Receipt:
        """Upload the charts that are not there yet and show them in the message; log what fails."""
        uploaded = dict(receipt)
        try:
            for chart in charts_of(notification):
                if chart.key not in uploaded:
                    uploaded[chart.key] = self._upload(chart.picture.png, chart.picture.title, receipt)
            if uploaded != receipt:
                self._update(compose(notification, uploaded), receipt)
        except NotifyError as error:
            _LOG.warning("The message was told, its chart was not shown: %s", error)
        return uploaded

    def _upload(self, png: bytes, title: str, receipt: Receipt) -> str:
        answer = self._guarded(
            "files.upload",
            lambda: self.client.files_upload_v2(
                content=png,
                filename="chart.png",
                title=title,
                channel=receipt["channel"],
                thread_ts=receipt["ts"],
            ),
        )
        return _part(answer, "files", 0, "id")

    def _call(self, method: str, **payload: Any) -> Mapping[str, Any]:
        return self._guarded(method, lambda: self.client.api_call(method, json=payload))

    def _guarded(self, method: str, call: Callable[[], Any]) -> Mapping[str, Any]:
        """Make a call within what is left of the time, and translate every way in which it can fail."""
        from http.client import HTTPException  # noqa: PLC0415 - loads TLS

        from slack_sdk.errors import SlackApiError, SlackClientError  # noqa: PLC0415

        left = _TIMEOUT - self.watch.seconds()
        if left < _LEAST:
            raise NotifyError(f"slack: {method}: no time left", retryable=True, reason="timeout")
        self.client.timeout = math.ceil(left)
        try:
            answer: Mapping[str, Any] = _bounded(call, left).data
        except SlackApiError as error:
            self._refuse(method, error)
        except TimeoutError:
            raise NotifyError(
                f"slack: {method}: no answer in time", retryable=True, reason="timeout"
            ) from None
        except (OSError, HTTPException) as error:
            self._unreachable(method, error)
        except (SlackClientError, ValueError) as error:
            raise _strange(f"{method}: {type(error).__name__}") from None
        return answer

    def _unreachable(self, method: str, error: Exception) -> NoReturn:
        from urllib.error import HTTPError  # noqa: PLC0415

        if isinstance(error, HTTPError):  # to the transfer of a file's bytes
            error.close()
            what = f"slack: {method}: HTTP {error.code}"
            raise NotifyError(what, retryable=True, reason="server_error") from None
        late = isinstance(getattr(error, "reason", None), TimeoutError)  # urllib wraps the real one
        words = "no answer in time" if late else f"cannot reach Slack: {fault(error)}"
        reason = "timeout" if late else "unreachable"
        raise NotifyError(f"slack: {method}: {words}", retryable=True, reason=reason) from None

    def _refuse(self, method: str, error: SlackApiError) -> NoReturn:
        status = int(error.response.status_code)
        data = error.response.data if isinstance(error.response.data, Mapping) else {}
        word = one_line(str(data.get("error", "no reason given")))
        what = f"slack: {method} to {self.channel}"
        if status == 429 or word in ("ratelimited", "rate_limited"):
            wait = _seconds(error.response.headers)
            raise NotifyError(
                f"{what}: rate limited", retryable=True, reason="rate_limited", retry_after=wait
            ) from None
        if status >= 500 or word in _PASSING:
            raise NotifyError(
                f"{what}: HTTP {status}, {word}", retryable=True, reason="server_error"
            ) from None
        if not _WORD.fullmatch(word):  # the client's complaint of a page that is no answer of Slack's
            raise _strange(f"{method}: HTTP {status}, {word}") from None
        raise _refusal(what, word, data) from None


def _part(answer: object, *path: str | int) -> str:
    """Return what lies in an answer at `path`."""
    value: Any = answer
    try:
        for step in path:
            value = value[step]
    except (LookupError, TypeError):
        raise _strange(f"an answer without {'.'.join(map(str, path))}") from None
    return str(value)


def _strange(what: str) -> NotifyError:
    return NotifyError(f"slack: not an answer of Slack's: {what}", retryable=True, reason="bad_answer")


def _bounded(call: Callable[[], Any], seconds: float) -> Any:
    """Return what `call` returns; TimeoutError after `seconds`, whatever it waits for.

    The client's own limit is between two bytes, and does not hold for the look-up of a name. A call that
    overstays is left behind in its thread.
    """
    outcome: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            outcome.put((None, error))

    threading.Thread(target=run, name="slack", daemon=True).start()
    try:
        answer, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return answer


def _refusal(what: str, word: str, data: Mapping[str, Any]) -> NotifyError:
    """Return the error for a refusal; what an operator can put right while the engine runs is retried."""
    if word in _TOKEN:
        # A wrong token file is replaced, a scope is granted, and nobody should have to restart anything.
        way_out = "put a bot token with chat:write and files:write into the token file"
        return NotifyError(
            f"{what}: {word}; {way_out}", retryable=True, reason="unauthorized", retry_after=_SLOW
        )
    if word in _CHANNEL:
        way_out = "invite the bot to the channel, or correct `channel`"
        return NotifyError(f"{what}: {word}; {way_out}", retryable=True, reason="channel", retry_after=_SLOW)
    if word in _GONE:
        return NotifyError(f"{what}: {word}", retryable=False, reason="message_gone")
    details = data.get("response_metadata", {}).get("messages", []) if word in _TOO_MUCH else []
    reason = "blocks_refused" if word in _TOO_MUCH else "rejected"
    return NotifyError(": ".join([what, word, *map(str, details[:3])]), retryable=False, reason=reason)


def _seconds(headers: Mapping[str, str]) -> float | None:
    found = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
    return float(found) if found.isdigit() else None
