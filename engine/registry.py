"""Plug-in points: one decorator each.

A plug-in is a frozen dataclass. Its name is the word users write in YAML, its
fields are the schema of what they write under it, and its docstring is its page
in the documentation. So adding one means adding one file::

    @detector("forecast")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Forecast:
        \"\"\"Bad when the signal will cross a bound within `horizon`.\"\"\"

        horizon: Duration
        above: float | None = None

There is no central list: a plug-in is found by being in its package, or by the
entry point group `engine.plugins`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

T = TypeVar("T")


class Registry:
    """Names to plug-in classes, for one kind of plug-in."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._classes: dict[str, type] = {}

    def __call__(self, name: str) -> Callable[[type[T]], type[T]]:
        def register(cls: type[T]) -> type[T]:
            if (known := self._classes.get(name)) is not None:
                raise ValueError(f"two {self.kind}s are called {name!r}: {known} and {cls}")
            self._classes[name] = cls
            return cls

        return register

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(sorted(self._classes))

    def get(self, name: str) -> type:
        """Return the class registered as `name`, or raise LookupError with a hint."""
        # One file a plug-in, called as it is: the others need not be imported for it.
        if name not in self._classes and name.isidentifier() and self._has_module(name):
            importlib.import_module(f"{self.package}.{name}")
        if name not in self._classes:
            load_plugins()
        try:
            return self._classes[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._classes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(self)}"
            raise LookupError(f"no {self.kind} is called {name!r}{hint}") from None

    def _has_module(self, name: str) -> bool:
        package = importlib.import_module(self.package)
        return any(module.name == name for module in pkgutil.iter_modules(package.__path__))

    def name_of(self, plugin: object) -> str:
        """Return the YAML word of a plug-in instance."""
        return next(name for name, cls in self._classes.items() if cls is type(plugin))


detector = Registry("detector", "engine.detect")
enricher = Registry("enricher", "engine.enrich")
notifier = Registry("notifier", "engine.notify")
action = Registry("action", "engine.remediate.actions")
guardrail = Registry("guardrail", "engine.remediate.guardrails")


@cache
def load_plugins() -> None:
    """Import every module of the plug-in packages, and the entry points of others.

    Plug-in modules import their third-party clients inside functions, so that this stays cheap.
    """
    for registry in (detector, enricher, notifier, action, guardrail):
        package = importlib.import_module(registry.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{registry.package}.{module.name}")
    for plugin in entry_points(group="engine.plugins"):
        plugin.load()
