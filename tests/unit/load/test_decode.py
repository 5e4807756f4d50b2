from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.load import decode
from engine.load.decode import compose
from engine.load.nodes import MappingNode, ScalarNode, SequenceNode, offset_of, place_in, split_lines
from engine.load.playbooks import read_playbook
from engine.load.rules import read_rules
from engine.load.settings import read_settings

FILES = sorted((Path(__file__).parents[2] / "fixtures" / "load").glob("*/*.yaml"))
WORDS = [
    "groups",
    "rules",
    "alert",
    "record",
    "expr",
    "for",
    "labels",
    "annotations",
    "detect",
    "enrich",
    "tests",
]
WORDS += [
    "steps",
    "action",
    "with",
    "guardrails",
    "match",
    "route",
    "receivers",
    "matchers",
    "time_intervals",
    "plugins",
]
WORDS += [
    "input_series",
    "series",
    "values",
    "generate",
    "until",
    "name",
    "interval",
    "rising",
    "radio_configs",
    "weekdays",
]
SCALARS = st.sampled_from(
    [*WORDS, "", "~", "1", "-3:-1", "5m", "{{ $labels.x }}", "{{", 'a="b"', "0+1x3", "sum(", "\u2028", "${X"]
)


def read_all(content: bytes) -> list:
    """Problems of a file taken for each kind of file; each must be at a place that the file has."""
    problems = []
    read_rules("f", content, problems)
    read_playbook("f", content, problems)
    read_settings("f", content, problems)
    last = len(split_lines(content.decode("utf-8", "replace"))) + 1
    assert all(1 <= problem.line <= last and problem.column >= 1 and problem.message for problem in problems)
    return problems


def trees():
    keys = st.sampled_from(WORDS)
    return st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)
    )


@given(st.binary(max_size=200))
def test_no_bytes_raise(content):
    read_all(content)


@given(st.text(alphabet="a:-[]{}&*!|>'\"%@`#,? \n\t\\xuU0\x85\u2028é😀", max_size=60))
def test_no_text_that_looks_like_yaml_raises(text):
    read_all(text.encode())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_no_structure_of_known_words_raises(tree):
    read_all(yaml.safe_dump(tree, allow_unicode=True).encode())


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FILES), st.data())
def test_no_damaged_file_raises(path, data):
    content = path.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 20)))
    read_all(content[:start] + data.draw(st.binary(max_size=5)) + content[end:])


@pytest.mark.parametrize(
    ("content", "line", "column", "message"),
    [
        (b"a: \xff", 1, 4, "the file is not UTF-8: unexpected byte 0xff"),
        ("é: b\nß: ".encode() + b"\xc3(", 2, 4, "the file is not UTF-8: unexpected byte 0xc3"),
        (b"a: 1\nb: \x01", 2, 4, "control character U+0001"),
        (b"\x89PNG\r\n\x1a\n\x00", 1, 1, "the file is not UTF-8"),
        (b"a: " + b"[" * 500, 1, 67, "nested deeper than 64 levels"),
        (b"a: " + b"[" * 100_000, 1, 1003, "exceeded maximum nesting depth"),
        (b"a:\n" + b"\n".join(b" " * i + b"-" for i in range(200)), 65, 64, "nested deeper than 64 levels"),
        (b"a: !!python/object:os.system x", 1, 4, "the tag 'tag:yaml.org,2002:python/object:os.system' has no meaning here"),
        (b"? [a]\n: b", 1, 3, "a key must be text, got a list"),
        (b"a: {<<: 3}", 1, 9, "'<<' takes a mapping or a list of mappings, got '3'"),
        (b"a: b: c", 1, 5, "not YAML: mapping values are not allowed"),
        (b'a: "\\ud800"', 1, 7, "not YAML"),
        (b"#" * (decode.MAX_BYTES + 1), 1, 1, "the file is larger than 4 MiB; split it"),
    ],
)  # fmt: skip
def test_what_is_no_yaml_is_one_problem_at_its_place(content, line, column, message):
    document = compose("f", content)
    (problem,) = document.problems
    assert message in problem.message
    assert (problem.line, problem.column) == (line, column)


def test_a_billion_laughs_are_refused_without_being_heard():
    text = "a: &a0 [x]\n" + "".join(f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 40))
    (problem,) = compose("f", text.encode()).problems
    assert problem.message.startswith("the aliases make this too large")


def test_a_byte_order_mark_and_windows_line_ends_move_nothing():
    document = compose("f", b"\xef\xbb\xbfa: 1\r\nb:\r\n  - c\r\n")
    assert isinstance(document.root, MappingNode)
    item = document.root.entries["b"].value
    assert isinstance(item, SequenceNode)
    assert (document.root.column, item.items[0].line, item.items[0].column) == (1, 3, 5)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_both_of_pyyamls_parsers_give_the_same_nodes_at_the_same_places(path, monkeypatch):
    def outline(node):
        if isinstance(node, MappingNode):
            entries = [(outline(key), outline(value)) for key, value in node.entries.values()]
            return (node.line, node.column, entries)
        if isinstance(node, SequenceNode):
            return (node.line, node.column, [outline(item) for item in node.items])
        return node and (node.line, node.column, node.value, node.plain, node.null)

    quick = compose("f", path.read_bytes())
    monkeypatch.setattr(decode, "_LOADER", yaml.SafeLoader)
    slow = compose("f", path.read_bytes())
    assert outline(quick.root) == outline(slow.root)


@pytest.mark.parametrize("text", ['"\\U99999999"', '"\\ud800"', "a: \t- b", "%YAML 9.9\n---", "!<", "&"])
def test_the_parser_without_libyaml_does_not_raise_either(text, monkeypatch):
    monkeypatch.setattr(decode, "_LOADER", yaml.SafeLoader)
    assert compose("f", text.encode()).problems or text.startswith("%")


@pytest.mark.parametrize(
    ("source", "offset", "line", "column"),
    [
        ("k: abc\n", 2, 1, 6),
        ("k: abc\n", 3, 1, 7),
        ("k: 'it''s x'\n", 5, 1, 11),
        ('k: "a\\tb\\u0041c"\n', 4, 1, 15),
        ("k: |\n  one\n    two\n\n  three\n", 6, 3, 5),
        ("k: |\n  one\n    two\n\n  three\n", 11, 5, 3),
        ("k: >-\n    one\n    two\n", 4, 3, 5),
        ("k: &x !!str |2-\n   one\n", 1, 2, 4),
        ("k: one\n   two\n", 4, 2, 4),
        ("k: {a: é, b: 'xyz'}\n", 0, 1, 4),
    ],
)  # fmt: skip
def test_a_place_in_a_text_is_found_again_in_the_file(source, offset, line, column):
    document = compose("f", source.encode())
    node = document.root.entries["k"].value
    if isinstance(node, ScalarNode):
        assert place_in(document.lines, node, offset) == (line, column)
    else:
        assert (node.line, node.column) == (line, column)


@given(st.text(alphabet="ab \"'\n\\{#:", min_size=1, max_size=30), st.sampled_from(['"', "'", "|"]))
def test_every_visible_character_is_found_again(text, style):
    source = yaml.safe_dump({"k": text}, default_style=style, allow_unicode=True)
    document = compose("f", source.encode())
    node = document.root.entries["k"].value
    for offset, char in enumerate(node.value):
        if not char.isspace():
            line, column = place_in(document.lines, node, offset)
            found = document.lines[line - 1][column - 1 :]
            assert found.startswith((char, "\\" + char))


@given(st.text(alphabet="a\n", max_size=20), st.data())
def test_line_and_column_become_an_index(text, data):
    index = data.draw(st.integers(0, len(text)))
    before = text[:index]
    assert offset_of(text, before.count("\n") + 1, index - before.rfind("\n")) == index
