"""Finds what a template reads, without expanding it."""

from __future__ import annotations

from engine.lang.template import nodes
from engine.lang.template.values import variable_of

Path = tuple[str, ...]
_VISITS = 1000  # of templates by others; a template that passes on a part of its dot could go on for ever


Scope = dict[str, Path | None]


class _Reader:
    """Follows the dot and the variables through a template: each is a path into the data, or None."""

    def __init__(self, tree: nodes.Tree) -> None:
        self.tree = tree
        self.found: set[Path] = set()
        self.visited: set[tuple[str, Path | None]] = set()
        self.pending: list[tuple[str, Path | None]] = []

    def run(self) -> set[Path]:
        self.body(self.tree.body, (), {"": ()})
        while self.pending:
            name, dot = self.pending.pop()
            self.body(self.tree.defined[name], dot, {"": dot})
        return self.found

    def body(self, body: nodes.Body, dot: Path | None, scope: Scope) -> None:
        for node in body:
            match node:
                case nodes.Action():
                    self.pipeline(node.pipeline, dot, scope)
                case nodes.If():
                    inner = dict(scope)
                    path = self.pipeline(node.pipeline, dot, inner)
                    self.body(node.body, path if node.sets_dot else dot, dict(inner))
                    self.body(node.otherwise, dot, inner)
                case nodes.Range():
                    inner = dict(scope)
                    self.pipeline(node.pipeline, dot, inner)
                    inner.update(dict.fromkeys(node.pipeline.variables))
                    self.body(node.body, None, dict(inner))
                    self.body(node.otherwise, dot, inner)
                case nodes.Invoke():
                    path = self.pipeline(node.pipeline, dot, scope) if node.pipeline else None
                    self.defined(node.name, path)

    def defined(self, name: str, dot: Path | None) -> None:
        """Note that a template is expanded with that dot; each is read once, so that recursion ends."""
        visit = name, dot if len(self.visited) < _VISITS else None
        if name in self.tree.defined and visit not in self.visited:
            self.visited.add(visit)
            self.pending.append(visit)

    def pipeline(self, pipeline: nodes.Pipeline, dot: Path | None, scope: Scope) -> Path | None:
        """Note what a pipeline reads, and return the path of its value if it is nothing but a path."""
        path: Path | None = None
        for command in pipeline.commands:
            path = self.command(command, dot, scope)
        if len(pipeline.commands) > 1:
            path = None
        scope.update(dict.fromkeys(pipeline.variables, path))
        return path

    def command(self, command: nodes.Command, dot: Path | None, scope: Scope) -> Path | None:
        paths = [self.operand(operand, dot, scope) for operand in command.operands]
        first = command.operands[0]
        if isinstance(first, nodes.Call):
            keys = [operand.value for operand in command.operands[2:] if isinstance(operand, nodes.Literal)]
            if first.name == "index" and len(paths) > 1 and len(keys) == len(paths) - 2:
                return self.note(paths[1], tuple(str(key) for key in keys))
            if first.name == "tmpl" and len(paths) == 3 and isinstance(command.operands[1], nodes.Literal):
                self.defined(str(command.operands[1].value), paths[2])
            return None
        return paths[0] if len(paths) == 1 else None

    def operand(self, operand: nodes.Operand, dot: Path | None, scope: Scope) -> Path | None:
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Field():
                return self.note(dot, operand.names)
            case nodes.Variable():
                return self.note(scope.get(operand.name, (operand.name,)), operand.fields)
            case nodes.Chain():
                return self.note(self.operand(operand.of, dot, scope), operand.names)
            case nodes.Pipeline():
                return self.pipeline(operand, dot, scope)
            case _:
                return None

    def note(self, base: Path | None, names: Path) -> Path | None:
        if base is None:
            return None
        path = base + names if base else (variable_of(names[0]), *names[1:]) if names else ()
        if path:
            self.found.add(path)
        return path


def paths_read(tree: nodes.Tree) -> set[Path]:
    """Return every path into the data that a template may read, such as (detect, eta)."""
    return _Reader(tree).run()
