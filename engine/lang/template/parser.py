"""Parses templates, with the grammar and the checks of Go's text/template.

As there, functions and variables are checked here and not when the template is
expanded, so that a rule file with a wrong name does not load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from engine.errors import TemplateError
from engine.lang.template import nodes
from engine.lang.template.functions import FUNCTIONS
from engine.lang.template.lexer import Kind, Token, error_at, tokenize
from engine.lang.template.quoting import unquote, unquote_rune
from engine.lang.template.values import Fault, suggest

_DEPTH = 50  # of blocks and parentheses within each other; evaluation recurses as deep
_CONSTANTS = frozenset({Kind.BOOL, Kind.CHARACTER, Kind.NUMBER, Kind.STRING})
_OPERANDS = _CONSTANTS | {Kind.DOT, Kind.FIELD, Kind.NAME, Kind.VARIABLE, Kind.OPEN}


def parse_tree(text: str, variables: Collection[str]) -> nodes.Tree:
    """Return the parsed template, which may read the `variables`; raise TemplateError."""
    return _Parser(text, variables).tree()


class _Parser:
    def __init__(self, text: str, variables: Collection[str]) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.variables = ["", *variables]
        self.defined: dict[str, nodes.Body] = {}
        self.loops = 0
        self.depth = 0

    # Tokens

    def peek(self) -> Token:
        return self.tokens[self.index]

    def next(self) -> Token:
        token = self.tokens[self.index]
        if token.kind is not Kind.END:
            self.index += 1
        return token

    def skip_space(self) -> Token:
        """Return the next token that is no space, without taking it."""
        while self.peek().kind is Kind.SPACE:
            self.next()
        return self.peek()

    def accept(self, kind: Kind, text: str | None = None) -> Token | None:
        """Take the next token that is no space if it is of that kind and text."""
        token = self.skip_space()
        return self.next() if token.kind is kind and text in (None, token.text) else None

    def expect(self, kind: Kind, context: str) -> Token:
        token = self.accept(kind)
        if token is None:
            raise self.unexpected(context)
        return token

    def unexpected(self, context: str) -> TemplateError:
        token = self.peek()
        return error_at(self.text, token.position, f"unexpected {token} in {context}")

    def deeper(self, by: int) -> None:
        self.depth += by
        if self.depth > _DEPTH:
            message = f"blocks and parentheses are nested deeper than {_DEPTH}"
            raise error_at(self.text, self.peek().position, message)

    # Blocks

    def tree(self) -> nodes.Tree:
        body: list[nodes.Node] = []
        while self.peek().kind is not Kind.END:
            if (node := self.node(top=True)) is not None:
                body.append(node)
        return nodes.Tree(self.text, tuple(body), self.defined)

    def body(self, opener: Token) -> nodes.Body:
        """Read up to the `{{ end }}` or `{{ else` that ends a block, whose keyword is then next."""
        found: list[nodes.Node] = []
        self.deeper(1)
        while self.peek().kind is not Kind.END:
            if self.at_end_of_body():
                self.deeper(-1)
                return tuple(found)
            if (node := self.node(top=False)) is not None:
                found.append(node)
        raise error_at(self.text, opener.position, f"{opener} has no {{{{ end }}}}")

    def at_end_of_body(self) -> bool:
        start = self.index
        if self.accept(Kind.LEFT):
            token = self.skip_space()
            if token.kind is Kind.KEYWORD and token.text in ("end", "else"):
                return True
        self.index = start
        return False

    def end(self, opener: Token) -> None:
        if not self.accept(Kind.KEYWORD, "end"):
            token = self.peek()
            raise error_at(self.text, token.position, f"expected {{{{ end }}}} of {opener}, found {token}")
        self.expect(Kind.RIGHT, "end")

    def node(self, *, top: bool) -> nodes.Node | None:
        """Read one text or action; None if it leaves nothing behind."""
        if token := self.accept(Kind.TEXT):
            return nodes.Text(token.text)
        self.expect(Kind.LEFT, "the template")
        token = self.skip_space()
        if token.kind is not Kind.KEYWORD or token.text == "nil":
            return nodes.Action(self.pipeline("the action", Kind.RIGHT))
        self.next()
        readers: dict[str, Callable[[Token], nodes.Node | None]] = {
            "if": self.branch,
            "with": self.branch,
            "range": self.range,
            "break": self.jump,
            "continue": self.jump,
            "template": self.invoke,
            "block": self.block,
        }
        if top:
            readers["define"] = self.define
        if token.text in readers:
            return readers[token.text](token)
        reason = "may not stand within another block" if token.text == "define" else "belongs to no block"
        raise error_at(self.text, token.position, f"unexpected {{{{ {token.text} }}}}: it {reason}")

    def branch(self, keyword: Token) -> nodes.If:
        scope = len(self.variables)
        pipeline = self.pipeline(keyword.text, Kind.RIGHT)
        body = self.body(keyword)
        otherwise: nodes.Body = ()
        if self.accept(Kind.KEYWORD, "else"):
            if again := self.accept(Kind.KEYWORD, keyword.text):  # one {{ end }} closes both
                self.deeper(1)
                otherwise = (self.branch(again),)
                self.deeper(-1)
            else:
                self.expect(Kind.RIGHT, "else")
                otherwise = self.body(keyword)
                self.end(keyword)
        else:
            self.end(keyword)
        del self.variables[scope:]
        return nodes.If(pipeline, body, otherwise, sets_dot=keyword.text == "with")

    def range(self, keyword: Token) -> nodes.Range:
        scope = len(self.variables)
        pipeline = self.pipeline("range", Kind.RIGHT)
        self.loops += 1
        body = self.body(keyword)
        self.loops -= 1
        otherwise: nodes.Body = ()
        if self.accept(Kind.KEYWORD, "else"):
            self.expect(Kind.RIGHT, "else")
            otherwise = self.body(keyword)
        self.end(keyword)
        del self.variables[scope:]
        return nodes.Range(pipeline, body, otherwise)

    def jump(self, keyword: Token) -> nodes.Jump:
        self.expect(Kind.RIGHT, keyword.text)
        if not self.loops:
            raise error_at(
                self.text, keyword.position, f"{{{{ {keyword.text} }}}} outside of {{{{ range }}}}"
            )
        return nodes.Jump(keyword.text)

    def name(self, context: str) -> str:
        if token := self.accept(Kind.STRING):
            return self.unquoted(token)
        raise error_at(self.text, self.peek().position, f"the name of a {context} must be a quoted string")

    def invoke(self, keyword: Token) -> nodes.Invoke:
        name = self.name("template")
        pipeline = None if self.accept(Kind.RIGHT) else self.pipeline("template", Kind.RIGHT)
        return nodes.Invoke(name, pipeline, keyword.position)

    def block(self, keyword: Token) -> nodes.Invoke:
        name = self.name("block")
        pipeline = self.pipeline("block", Kind.RIGHT)
        self.definition(name, keyword)
        return nodes.Invoke(name, pipeline, keyword.position)

    def define(self, keyword: Token) -> None:
        name = self.name("template")
        self.expect(Kind.RIGHT, "define")
        self.definition(name, keyword)

    def definition(self, name: str, keyword: Token) -> None:
        """Read the body of a template of its own: it sees no variables but `$`, and no loop around it."""
        outer, self.variables, loops, self.loops = self.variables, [""], self.loops, 0
        body = self.body(keyword)
        self.end(keyword)
        self.variables, self.loops = outer, loops
        if name not in self.defined or _is_blank(self.defined[name]):
            self.defined[name] = body
        elif not _is_blank(body):
            raise error_at(self.text, keyword.position, f"template {name!r} is defined twice")

    # Pipelines

    def pipeline(self, context: str, closer: Kind) -> nodes.Pipeline:
        start = self.skip_space()
        names, assigns = self.declarations(context)
        commands: list[nodes.Command] = []
        while not self.accept(closer):
            if not (self.skip_space().kind in _OPERANDS or self.peek().text == "nil"):
                raise self.unexpected(context)
            command = self.command()
            if commands and isinstance(command.operands[0], (nodes.Literal, nodes.Nil, nodes.Dot)):
                raise error_at(self.text, command.position, "only functions and methods may follow a '|'")
            commands.append(command)
        if not commands:
            raise error_at(self.text, start.position, f"missing value for {context}")
        return nodes.Pipeline(tuple(commands), names, assigns, start.position)

    def declarations(self, context: str) -> tuple[tuple[str, ...], bool]:
        """Read `$x :=`, `$x =` and in a range `$i, $x :=`, if they are there."""
        start, names = self.index, list[str]()
        while token := self.accept(Kind.VARIABLE):
            names.append(token.text[1:])
            mark = self.skip_space()
            if mark.kind in (Kind.DECLARE, Kind.ASSIGN):
                self.next()
                if mark.kind is Kind.ASSIGN:
                    for name in names:
                        self.check_variable(name, token)
                self.variables += names
                return tuple(names), mark.kind is Kind.ASSIGN
            if mark.kind is not Kind.COMMA:
                break
            if context != "range" or len(names) > 1:
                raise error_at(self.text, mark.position, f"too many variables in {context}")
            self.next()
            if self.skip_space().kind is not Kind.VARIABLE:
                raise self.only_variables()
        if len(names) > 1:
            raise self.only_variables()
        self.index = start
        return (), False

    def only_variables(self) -> TemplateError:
        message = "range can only set variables: $index, $element := …"
        return error_at(self.text, self.peek().position, message)

    def command(self) -> nodes.Command:
        start = self.peek()
        operands: list[nodes.Operand] = []
        while True:
            self.skip_space()
            if (operand := self.operand()) is not None:
                operands.append(operand)
            token = self.peek()
            if token.kind is Kind.SPACE:
                continue
            if token.kind is Kind.PIPE:
                self.next()
            elif token.kind not in (Kind.RIGHT, Kind.CLOSE):
                raise self.unexpected("a command")
            break
        if not operands:
            raise error_at(self.text, start.position, "empty command")
        return nodes.Command(tuple(operands), start.position)

    def operand(self) -> nodes.Operand | None:
        term = self.term()
        if term is None or self.peek().kind is not Kind.FIELD:
            return term
        names = []
        first = self.peek()
        while self.peek().kind is Kind.FIELD:
            names.append(self.next().text[1:])
        if isinstance(term, nodes.Field):
            return nodes.Field((*term.names, *names), term.position)
        if isinstance(term, nodes.Variable):
            return nodes.Variable(term.name, tuple(names), term.position)
        if isinstance(term, (nodes.Literal, nodes.Nil, nodes.Dot)):
            raise error_at(self.text, first.position, f"unexpected {first.text!r} after a constant or a dot")
        return nodes.Chain(term, tuple(names), term.position)

    def term(self) -> nodes.Operand | None:
        token = self.peek()
        if token.kind not in _OPERANDS and token.text != "nil":
            return None
        self.next()
        match token.kind:
            case Kind.OPEN:
                return self.parentheses()
            case Kind.NAME:
                return self.call(token)
            case Kind.VARIABLE:
                return self.variable(token)
            case Kind.FIELD | Kind.DOT | Kind.KEYWORD:
                return _plain(token)
        return self.literal(token)

    def parentheses(self) -> nodes.Pipeline:
        self.deeper(1)
        inner = self.pipeline("the parentheses", Kind.CLOSE)
        self.deeper(-1)
        return inner

    def variable(self, token: Token) -> nodes.Variable:
        self.check_variable(token.text[1:], token)
        return nodes.Variable(token.text[1:], (), token.position)

    def call(self, token: Token) -> nodes.Call:
        if token.text not in FUNCTIONS:
            near = suggest(token.text, FUNCTIONS)
            hint = near if "did you mean" in near else ""  # not the list of all of them
            raise error_at(self.text, token.position, f"function {token.text!r} is not defined{hint}")
        return nodes.Call(token.text, token.position)

    def check_variable(self, name: str, token: Token) -> None:
        if name not in self.variables:
            known = [f"${known}" for known in self.variables if known]
            message = f"undefined variable ${name}{suggest(f'${name}', known)}"
            raise error_at(self.text, token.position, message)

    def literal(self, token: Token) -> nodes.Literal:
        if token.kind is Kind.BOOL:
            return nodes.Literal(token.text == "true", token.position)
        if token.kind is Kind.STRING:
            return nodes.Literal(self.unquoted(token), token.position)
        try:
            number = unquote_rune(token.text) if token.kind is Kind.CHARACTER else number_of(token.text)
        except Fault as fault:
            raise error_at(self.text, token.position, str(fault)) from None
        return nodes.Literal(number, token.position)

    def unquoted(self, token: Token) -> str:
        try:
            return unquote(token.text)
        except Fault as fault:
            raise error_at(self.text, token.position, str(fault)) from None


def _plain(token: Token) -> nodes.Field | nodes.Dot | nodes.Nil:
    if token.kind is Kind.FIELD:
        return nodes.Field((token.text[1:],), token.position)
    return nodes.Dot(token.position) if token.kind is Kind.DOT else nodes.Nil(token.position)


def _is_blank(body: nodes.Body) -> bool:
    return all(isinstance(node, nodes.Text) and not node.text.strip() for node in body)


def number_of(text: str) -> int | float:
    """Return the number that a literal of Go stands for: a float if it has a point or an exponent."""
    if text.endswith("i"):
        raise Fault(f"complex numbers such as {text} are not supported")
    hexadecimal, binary_exponent = re.search("0[xX]", text), re.search("[pP]", text)
    try:
        if not re.search("[.pP]" if hexadecimal else "[.eE]", text):
            return _integer_of(text)
        value = float.fromhex(text.replace("_", "")) if hexadecimal and binary_exponent else float(text)
    except (ValueError, OverflowError):
        raise Fault(f"bad number syntax: {text!r}") from None
    if value in (float("inf"), float("-inf")):
        raise Fault(f"{text} overflows float64")
    return value


def _integer_of(text: str) -> int:
    octal = re.fullmatch(r"[+-]?0[0-7_]+", text)
    number = int(text, 8) if octal else int(text, 0)
    if not -(1 << 63) <= number < 1 << 63:
        raise Fault(f"{text} overflows int")
    return number
