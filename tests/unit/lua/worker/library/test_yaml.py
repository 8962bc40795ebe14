from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.extraction.worker.yaml_text import LEVELS, NODES, parse_yaml
from tests.fakes.lua_library import LuaLibrary

VM = LuaLibrary()


def written(expression: str, *arguments: object) -> str:
    text = VM.value(f"data.to_yaml({expression})", *arguments)
    assert isinstance(text, bytes)
    return text.decode()


def refused(expression: str) -> str:
    text, problem = VM.run(f"return data.to_yaml({expression})")
    assert text is None
    assert isinstance(problem, bytes)
    return problem.decode()


def test_it_is_as_people_write_it() -> None:
    source = """{
      name = "nginx", port = 80, on = true, ratio = 0.5, nothing = {}, list = {}, missing = state.null,
      sites = {{host = "a.example", aliases = {"b", "c d"}}, {host = "x: y"}}, deep = {{{1}}, {2, {k = "v"}}},
      motd = "one\\ntwo", path = "/etc/nginx", ["a key"] = "yes", [1] = "2026-11-23",
    }"""
    assert (
        written(source)
        == r"""1: "2026-11-23"
a key: "yes"
deep:
  - - - 1
  - - 2
    - k: v
list: {}
missing: null
motd: "one\ntwo"
name: nginx
nothing: {}
"on": true
path: /etc/nginx
port: 80
ratio: 0.5
sites:
  - aliases:
      - b
      - c d
    host: a.example
  - host: "x: y"
"""
    )


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("nil", "null"),
        ("state.null", "null"),
        ("JSON_EMPTY_ARRAY", "[]"),
        ("{}", "{}"),
        ("3.0", "3"),
        ("1/0", ".inf"),
        ("-1/0", "-.inf"),
        ("0/0", ".nan"),
        ("1e300", "1e+300"),
        ("'x'", "x"),
        ("''", '""'),
        ("'x '", '"x "'),
        ("'Null'", '"Null"'),
        ("'5'", '"5"'),
        ("'-'", '"-"'),
        ("'# x'", '"# x"'),
        ("'a\\1\\127'", '"a\\x01\\x7f"'),
        ("'\\u{85}\\u{2028}\\u{feff}\\u{e9}'", '"\\x85\\u2028\\ufeffé"'),
    ],
)
def test_single_values(expression: str, text: str) -> None:
    assert written(expression) == text + "\n"


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=12)
    | st.sampled_from(["yes", "null", "~", "0x1", "- a", "a: b", " a", "<<", "*a", "1:30", "a #b", "---", "\u2028"]),
    lambda inner: st.lists(inner, min_size=1, max_size=4)
    | st.dictionaries(st.text(max_size=6), inner, min_size=1, max_size=4),
    max_leaves=12,
)  # fmt: skip


def as_bytes(value: object) -> object:
    """What the parser gives of a value: texts as bytes, whole floats as integers."""
    match value:
        case str():
            return value.encode()
        case float() if math.isfinite(value) and value.is_integer() and -(2**63) <= value < 2**63:
            return int(value)
        case list():
            return [as_bytes(each) for each in value]
        case dict():
            return {str(key).encode(): as_bytes(each) for key, each in value.items()}
    return value


@given(VALUES)
def test_what_it_writes_is_read_again_as_it_was(value: object) -> None:
    text = VM.value("data.to_yaml((...))", as_bytes(value))
    assert isinstance(text, bytes)
    found = parse_yaml(text)
    assert found == as_bytes(value)
    assert repr(found) == repr(as_bytes(value)) or "{" in repr(found), "True is not 1"


def test_a_long_key_has_a_line_of_its_own() -> None:
    text = written("{[('k'):rep(2000)] = {{a = ('é'):rep(900)}}}")
    assert text.startswith("? kkk")
    assert parse_yaml(text.encode()) == {b"k" * 2000: [{b"a": "é".encode() * 900}]}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("{a = {b = {print}}}", "a function at a.b[1]"),
        ("{[true] = 1}", "a key of type boolean"),
        ("{[1] = 1, ['1'] = 2}", 'the keys 1 and "1" together'),
        ("{a = '\\255'}", "a text that is not UTF-8 at a"),
        ("{['\\255'] = 1}", "a text that is not UTF-8"),
        ("(function() local t = {} t.t = t return t end)()", "a table inside itself at t"),
        ("('x'):rep(1 << 20)", "more than 1 MB of text"),
        ("{('x'):rep(1 << 20)}", "more than 1 MB of text at [1]"),
    ],
)
def test_what_yaml_can_not_hold_is_nil_and_a_message(expression: str, problem: str) -> None:
    assert refused(expression) == f"YAML can't hold {problem}"


def nested(levels: int) -> str:
    return f"(function() local t = {{}} for _ = 2, {levels} do t = {{t}} end return {{t}} end)()"


def test_it_writes_only_what_is_read() -> None:
    assert parse_yaml(written(nested(LEVELS - 1)).encode()) is not None
    assert "a table nested deeper than 100 levels" in refused(nested(LEVELS + 1))
    many = "(function() local t = {} for i = 1, %d do t[i] = 1 end return t end)()"
    assert parse_yaml(written(many % (NODES - 1)).encode()) is not None
    assert "more than 100000 values" in refused(many % NODES)


def test_no_metamethod_runs() -> None:
    script = """
      local t = setmetatable({1}, {__index = error, __len = error, __pairs = error, __eq = error, __tostring = error})
      return data.to_yaml{t, t}
    """
    assert VM.run(script)[0] == b"- - 1\n- - 1\n"
