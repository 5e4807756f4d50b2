"""Expands parsed templates, with the semantics of Go's text/template and Prometheus' option missingkey=zero.

Work is bounded: by characters (`values.LIMIT`), by steps and by depth, so that
no template, whatever the data, can hold up an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from engine.errors import TemplateError
from engine.lang.template import nodes, prometheus  # noqa: F401 - the latter registers its functions
from engine.lang.template.functions import FUNCTIONS, Query, Surroundings, read_field
from engine.lang.template.lexer import error_at
from engine.lang.template.printing import Writer, show
from engine.lang.template.values import Fault, Map, Root, clean, go_type, is_true

STEPS = 100_000
"""The most commands and turns of loops that one expansion may take; a function's work on long texts counts for more."""

_DEPTH = 100  # of blocks, pipelines and templates within each other; some six frames of Python each
_ABSENT = object()  # a pipeline's value before its first command
_DEFAULTS: Mapping[str, object] = {"labels": {}, "externalLabels": {}, "externalURL": ""}

Escape = Callable[[str], str]


class _Break(Exception):
    """Leaves a loop."""


class _Continue(Exception):
    """Goes on with a loop's next turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A parsed template, to be expanded any number of times."""

    tree: nodes.Tree

    @property
    def text(self) -> str:
        """What it was parsed from."""
        return self.tree.text

    def render(
        self,
        data: Mapping[str, object],
        *,
        query: Query | None = None,
        now: float | None = None,
        escape: Escape | None = None,
    ) -> str:
        """Return the expanded text, or raise TemplateError.

        `data` holds by name what `$name` and `.Name` give: `labels`, `value`, `externalLabels`, `externalURL`
        as Prometheus has them, and what else there is to know, such as `detect`. `escape` is applied to all
        that an action inserts, never to the template's own text. `now` is in Unix seconds.
        """
        root = Root({**_DEFAULTS, **data})
        around = Surroundings(query, now, str(root.data["externalURL"]), _refuse)
        run = _Run(self.tree, around, escape)
        try:
            return clean(run.expand(self.tree.body, root, list(_variables(root))))
        except RecursionError:
            raise TemplateError("the template is nested too deeply") from None


def _variables(root: Root) -> Iterator[tuple[str, object]]:
    yield "", root
    for name in root.data:
        yield name, _Lazy(root, name)


@dataclass(frozen=True, slots=True)
class _Lazy:
    """An injected variable, looked at when it is read: what is wrong with it concerns only who reads it."""

    root: Root
    name: str


def _refuse(name: str, value: object) -> str:
    raise AssertionError(name, value)


def _weight(values: Sequence[object]) -> int:
    """Return how many steps a function's work on these values is worth."""
    return sum(len(value) for value in values if isinstance(value, str)) // 16


class _Run:
    """One expansion of a template."""

    def __init__(self, tree: nodes.Tree, around: Surroundings, escape: Escape | None) -> None:
        self.tree, self.escape = tree, escape
        self.around = Surroundings(around.query, around.now, around.external_url, self._invoke_function)
        self.out = Writer()
        self.scope: list[tuple[str, object]] = []
        self.steps = 0
        self.depth = 0
        self.position = 0  # of what is being evaluated, for messages

    def expand(self, body: nodes.Body, root: object, scope: list[tuple[str, object]]) -> str:
        self.scope = scope
        try:
            self.walk(body, root)
        except Fault as fault:
            self.fail(str(fault))
        return self.out.text()

    def fail(self, message: str) -> NoReturn:
        raise error_at(self.tree.text, self.position, message)

    def step(self, position: int, weight: int = 1) -> None:
        self.position = position
        self.steps += weight
        if self.steps > STEPS:
            self.fail(f"the template takes more than {STEPS} steps")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            self.fail(f"templates, blocks and parentheses are nested deeper than {_DEPTH}")

    # Blocks

    def walk(self, body: nodes.Body, dot: object) -> None:
        self.deeper()
        for node in body:
            match node:
                case nodes.Text():
                    self.out.write(node.text)
                case nodes.Action():
                    self.insert(node, dot)
                case nodes.If():
                    self.branch(node, dot)
                case nodes.Range():
                    self.range(node, dot)
                case nodes.Invoke():
                    self.invoke(node, dot)
                case nodes.Jump(word="break"):
                    raise _Break
                case nodes.Jump():
                    raise _Continue
        self.depth -= 1

    def insert(self, node: nodes.Action, dot: object) -> None:
        value = self.pipeline(node.pipeline, dot)
        if not node.pipeline.variables:
            self.position = node.pipeline.position
            text = show(value)
            self.out.write(self.escape(clean(text)) if self.escape else text)

    def branch(self, node: nodes.If, dot: object) -> None:
        scope = len(self.scope)
        value = self.pipeline(node.pipeline, dot)
        if is_true(value):
            self.walk(node.body, value if node.sets_dot else dot)
        else:
            self.walk(node.otherwise, dot)
        del self.scope[scope:]

    def range(self, node: nodes.Range, dot: object) -> None:
        scope = len(self.scope)
        value = self.pipeline(node.pipeline, dot)
        within, depth, turns = len(self.scope), self.depth, 0
        for key, element in self.elements(value, node.pipeline):
            turns += 1
            self.step(node.pipeline.position)
            self.set_loop_variables(node.pipeline, key, element)
            try:
                self.walk(node.body, element)
            except _Continue:
                pass
            except _Break:
                break
            finally:
                self.depth = depth
                del self.scope[within:]
        if not turns:
            self.walk(node.otherwise, dot)
        del self.scope[scope:]

    def elements(self, value: object, pipeline: nodes.Pipeline) -> Iterator[tuple[object, object]]:
        if isinstance(value, Map):
            return iter([(key, value.get(key)) for key in sorted(value.entries)])
        if isinstance(value, tuple):
            return iter(list(enumerate(value)))
        if value is None:
            return iter([])
        if isinstance(value, int) and not isinstance(value, bool):
            if len(pipeline.variables) > 1:
                raise Fault(f"can't use {value} to iterate over more than one variable")
            return ((number, number) for number in range(value))
        raise Fault(f"range can't iterate over a {go_type(value)}")

    def set_loop_variables(self, pipeline: nodes.Pipeline, key: object, element: object) -> None:
        values = (key, element) if len(pipeline.variables) > 1 else (element,)
        for index, (name, value) in enumerate(zip(pipeline.variables, values, strict=False)):
            if pipeline.assigns:
                self.assign(name, value)
            else:
                self.scope[index - len(pipeline.variables)] = (name, value)

    def invoke(self, node: nodes.Invoke, dot: object) -> None:
        self.step(node.position)
        value = self.pipeline(node.pipeline, dot) if node.pipeline else None
        self.position = node.position
        self.walk_defined(node.name, value)

    def walk_defined(self, name: str, value: object) -> None:
        if name not in self.tree.defined:
            raise Fault(f"template {name!r} is not defined")
        outer, self.scope = self.scope, [("", value)]
        self.walk(self.tree.defined[name], value)
        self.scope = outer

    def _invoke_function(self, name: str, value: object) -> str:
        """Expand a template for the function `tmpl`; what is made of the text escapes it."""
        out, escape = self.out, self.escape
        self.out, self.escape = Writer(), None
        try:
            self.walk_defined(name, value)
            return self.out.text()
        finally:
            self.out, self.escape = out, escape

    # Values

    def lookup(self, name: str) -> object:
        for known, value in reversed(self.scope):
            if known == name:
                return value.root.variable(value.name) if isinstance(value, _Lazy) else value
        root = self.scope[0][1]
        return root.variable(name) if isinstance(root, Root) else self.fail(f"undefined variable ${name}")

    def assign(self, name: str, value: object) -> None:
        for index in range(len(self.scope) - 1, -1, -1):
            if self.scope[index][0] == name:
                self.scope[index] = (name, value)
                return
        self.fail(f"undefined variable ${name}")

    def pipeline(self, pipeline: nodes.Pipeline, dot: object) -> object:
        self.deeper()
        value: object = _ABSENT
        for command in pipeline.commands:
            self.step(command.position)
            value = self.command(command, dot, value)
        for name in pipeline.variables:
            if pipeline.assigns:
                self.assign(name, value)
            else:
                self.scope.append((name, value))
        self.depth -= 1
        return value

    def command(self, command: nodes.Command, dot: object, last: object) -> object:
        """Evaluate one command; `last` is the value of the one before it in the pipeline."""
        first, *others = command.operands
        if isinstance(first, nodes.Call):
            return self.call(first, others, dot, last)
        if isinstance(first, nodes.Nil):
            self.fail("nil is not a command")
        arguments = [self.operand(other, dot) for other in others]
        if last is not _ABSENT:
            arguments.append(last)
        self.position = first.position
        return self.operand(first, dot, arguments)

    def call(self, call: nodes.Call, others: Sequence[nodes.Operand], dot: object, last: object) -> object:
        if call.name in ("and", "or"):
            return self.decide(call, others, dot, last)
        arguments = [self.operand(other, dot) for other in others]
        if last is not _ABSENT:
            arguments.append(last)
        self.step(call.position, _weight(arguments))
        try:
            value = FUNCTIONS[call.name](self.around, arguments)
        except Fault as fault:
            self.fail(f"error calling {call.name}: {fault}")
        self.step(call.position, _weight([value]))
        return value

    def decide(self, call: nodes.Call, others: Sequence[nodes.Operand], dot: object, last: object) -> object:
        """Evaluate `and` and `or` up to the argument that decides."""
        value: object = _ABSENT
        for other in others:
            value = self.operand(other, dot)
            if is_true(value) is (call.name == "or"):
                return value
        if last is not _ABSENT:
            return last
        if value is _ABSENT:
            self.fail(f"error calling {call.name}: wrong number of arguments: want at least 1, got 0")
        return value

    def operand(self, operand: nodes.Operand, dot: object, arguments: Sequence[object] = ()) -> object:
        """Return the value of an operand; only a method at the end of a chain takes arguments."""
        match operand:
            case nodes.Field():
                return self.fields(dot, operand.names, operand.position, arguments)
            case nodes.Variable(fields=(_, *_)):
                value = self.lookup(operand.name)
                return self.fields(value, operand.fields, operand.position, arguments)
            case nodes.Chain():
                value = self.operand(operand.of, dot)
                return self.fields(value, operand.names, operand.position, arguments)
        if arguments:
            self.fail("can't give arguments to what is not a function")
        return self.whole(operand, dot)

    def whole(self, operand: nodes.Operand, dot: object) -> object:
        """Return the value of an operand without fields."""
        self.position = operand.position
        match operand:
            case nodes.Literal():
                return operand.value
            case nodes.Dot():
                return dot
            case nodes.Call():
                return self.call(operand, (), dot, _ABSENT)
            case nodes.Variable():
                return self.lookup(operand.name)
            case nodes.Pipeline():
                return self.pipeline(operand, dot)
        return None  # which is what `nil` is

    def fields(
        self, value: object, names: Sequence[str], position: int, arguments: Sequence[object]
    ) -> object:
        self.position = position
        for name in names[:-1]:
            value = read_field(value, name)
        return read_field(value, names[-1], arguments)
