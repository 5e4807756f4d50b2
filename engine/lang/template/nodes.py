"""The parts of a parsed template. `position` is where in the text a part begins, from 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: bool | int | float | str
    position: int


@dataclass(frozen=True, slots=True)
class Nil:
    """`nil`, which is an argument and never a command."""

    position: int


@dataclass(frozen=True, slots=True)
class Dot:
    """`.`, the value that `range`, `with` and `template` set."""

    position: int


@dataclass(frozen=True, slots=True)
class Field:
    """`.A.b`: fields of the dot."""

    names: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name.a.b`; the name is without its `$`, empty for `$` itself."""

    name: str
    fields: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function, by name."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Chain:
    """`(pipeline).a.b`."""

    of: Operand
    names: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Command:
    """A value, or a function or method with its arguments."""

    operands: tuple[Operand, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each the last argument of the next; `variables` take the result."""

    commands: tuple[Command, ...]
    variables: tuple[str, ...]
    assigns: bool  # by `=` to variables that exist, rather than by `:=` to new ones
    position: int


Operand = Literal | Nil | Dot | Field | Variable | Call | Chain | Pipeline


@dataclass(frozen=True, slots=True)
class Text:
    """What stands outside of actions."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """Inserts a value, unless it sets variables."""

    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class If:
    """`if`, and with `sets_dot` `with`."""

    pipeline: Pipeline
    body: Body
    otherwise: Body
    sets_dot: bool


@dataclass(frozen=True, slots=True)
class Range:
    """A loop."""

    pipeline: Pipeline
    body: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Invoke:
    """`template`, and what `block` leaves at its place."""

    name: str
    pipeline: Pipeline | None
    position: int


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue`."""

    word: str


Node = Text | Action | If | Range | Invoke | Jump
Body = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed template; `defined` are those that `define` and `block` name in it."""

    text: str
    body: Body
    defined: Mapping[str, Body] = field(default_factory=dict)
