"""Small plug-ins that exist while a test of this folder runs, so that no test depends on what ships."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from engine.model.duration import Duration
from engine.registry import action, detector, enricher, guardrail, load_plugins, notifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Rising:
    details: ClassVar[Mapping[str, str]] = {"eta": "seconds until then"}

    per_hour: float
    direction: Literal["up", "down"] = "up"
    bound: float | str | None = None

    def __post_init__(self) -> None:
        if self.per_hour <= 0:
            raise ValueError(f"per_hour must be positive, not {self.per_hour}")

    @property
    def inputs(self) -> Mapping[str, str]:
        return {"bound": self.bound} if isinstance(self.bound, str) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    range: Duration = Duration(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    text: str
    times: int = 1
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    period: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    most: int = 3

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError("most must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Radio:
    channel: int = 1
    send_resolved: bool = True


PLUGINS = (
    (detector, "rising", Rising),
    (enricher, "picture", Picture),
    (action, "tell", Tell),
    (guardrail, "rest", Rest),
    (guardrail, "tries", Tries),
    (notifier, "radio", Radio),
)


@pytest.fixture(autouse=True, scope="module")
def plugins() -> Iterator[None]:
    load_plugins()
    for registry, name, cls in PLUGINS:
        registry(name)(cls)
    yield
    for registry, name, _ in PLUGINS:
        del registry._classes[name]
