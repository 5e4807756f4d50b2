"""What Slack takes in a message: its published block schemas and limits as a table, and its words of refusal.

https://docs.slack.dev/reference/block-kit/blocks. Only what a message of this project may
contain is known here; any other block is refused as unsupported, which is what a test wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

Check = Callable[[object, str], Iterator[str]]

MAX_TEXT = 40_000
# Slack publishes no limit over all blocks. It was seen to take 9,597 characters and to refuse 11,341.
MAX_ALL_BLOCKS = 10_000


def _string(most: int, *, least: int = 1, pattern: str = "") -> Check:
    def check(value: object, at: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield f"must be a string [json-pointer:{at}]"
        elif len(value) > most:
            yield f"must be less than {most + 1} characters [json-pointer:{at}]"
        elif len(value.strip()) < least:
            yield f"must be more than {least - 1} characters [json-pointer:{at}]"
        elif pattern and not re.search(pattern, value):
            yield f"input must match regex pattern: {pattern} [json-pointer:{at}]"

    return check


def _flag(value: object, at: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"must be a boolean [json-pointer:{at}]"


def _list(item: Check, most: int) -> Check:
    def check(value: object, at: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"must be an array [json-pointer:{at}]"
            return
        if len(value) > most:
            yield f"no more than {most} items allowed [json-pointer:{at}]"
        if not value:
            yield f"no fewer than 1 items allowed [json-pointer:{at}]"
        for index, element in enumerate(value):
            yield from item(element, f"{at}/{index}")

    return check


def _object(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    known = {**required, **(optional or {})}

    def check(value: object, at: str) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"must be an object [json-pointer:{at}]"
            return
        yield from (
            f"missing required field: {name} [json-pointer:{at}]" for name in required if name not in value
        )
        for name, part in value.items():
            if name in known:
                yield from known[name](part, f"{at}/{name}")
            elif name != "type":
                yield f"invalid additional property: {name} [json-pointer:{at}]"

    return check


def _by_type(**kinds: Check) -> Check:
    def check(value: object, at: str) -> Iterator[str]:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind not in kinds:
            yield f"unsupported type: {kind} [json-pointer:{at}/type]"
        else:
            yield from kinds[str(kind)](value, at)

    return check


def _plain(most: int) -> Check:
    return _by_type(plain_text=_object({"text": _string(most)}, {"emoji": _flag}))


def _text(most: int) -> Check:
    mrkdwn = _object({"text": _string(most)}, {"verbatim": _flag})
    return _by_type(plain_text=_object({"text": _string(most)}, {"emoji": _flag}), mrkdwn=mrkdwn)


def _either(check: Check, *names: str) -> Check:
    """Demand exactly one of the named fields, or with `+` at the start of the first at least one."""
    several, fields = names[0].startswith("+"), [name.lstrip("+") for name in names]

    def checked(value: object, at: str) -> Iterator[str]:
        yield from check(value, at)
        given = [name for name in fields if isinstance(value, Mapping) and name in value]
        if not given or (len(given) > 1 and not several):
            yield f"must provide one of {', '.join(fields)} [json-pointer:{at}]"

    return checked


_ID = {"block_id": _string(255)}
_URL = _string(3000, pattern="^https?://")
_PICTURE = {
    "image_url": _URL,
    "slack_file": _either(
        _object({}, {"id": _string(100, pattern="^F[A-Z0-9]{8,}$"), "url": _URL}), "id", "url"
    ),
}
_IMAGE_ELEMENT = _either(_object({"alt_text": _string(2000)}, _PICTURE), "image_url", "slack_file")
_CONFIRM = _object(
    {"title": _plain(100), "text": _text(300), "confirm": _plain(30), "deny": _plain(30)},
    {"style": _string(20)},
)
_BUTTON = _object(
    {"text": _plain(75)},
    {
        "action_id": _string(255),
        "url": _URL,
        "value": _string(2000),
        "style": _string(20, pattern="^(primary|danger)$"),
        "confirm": _CONFIRM,
        "accessibility_label": _string(75),
    },
)
_CONTEXT_ELEMENT = _by_type(plain_text=_text(3000), mrkdwn=_text(3000), image=_IMAGE_ELEMENT)
_BLOCK = _by_type(
    header=_object({"text": _plain(150)}, _ID),
    divider=_object({}, _ID),
    section=_either(
        _object(
            {},
            {
                "text": _text(3000),
                "fields": _list(_text(2000), 10),
                "accessory": _by_type(image=_IMAGE_ELEMENT, button=_BUTTON),
                "expand": _flag,
                **_ID,
            },
        ),
        "+text",
        "fields",
    ),
    context=_object({"elements": _list(_CONTEXT_ELEMENT, 10)}, _ID),
    image=_either(
        _object({"alt_text": _string(2000)}, {"title": _plain(2000), **_PICTURE, **_ID}),
        "image_url",
        "slack_file",
    ),
    actions=_object({"elements": _list(_by_type(button=_BUTTON), 25)}, _ID),
)
_BLOCKS = _list(_BLOCK, 50)


def problems(blocks: object) -> list[str]:
    """Return what Slack would find wrong with a message's blocks, in its words; none for no blocks at all."""
    return [] if blocks == [] else list(_BLOCKS(blocks, "/blocks"))


def characters(value: object) -> int:
    """Return how many characters of text there are in blocks."""
    if isinstance(value, Mapping):
        return sum(
            len(part) if name == "text" and isinstance(part, str) else characters(part)
            for name, part in value.items()
        )
    return sum(map(characters, value)) if isinstance(value, list) else 0
