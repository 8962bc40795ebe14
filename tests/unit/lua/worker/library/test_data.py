from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.fixture(scope="module")
def vm() -> LuaLibrary:
    return LuaLibrary(ops={"data.parse_yaml": lambda *given: [b"parsed", list(given)]})


def test_json_is_that_of_json_encode(vm: LuaLibrary) -> None:
    assert vm.run("return data.to_json{b = 1, a = {true}}") == [b'{"a":[true],"b":1}', None]
    assert vm.run("return data.to_json(nil)") == [b"null", None]
    assert vm.run("return data.parse_json('{\"a\": [1]}')") == [{b"a": [1]}, None]


def test_what_json_can_not_hold_is_nil_and_a_message(vm: LuaLibrary) -> None:
    assert vm.run("return data.to_json{a = {print}}") == [None, b"JSON can't hold a function at a[1]"]
    assert vm.run("return data.to_json(0/0)") == [None, b"JSON can't hold NaN"]
    assert vm.run("return data.parse_json('{')") == [None, b"expected a string as key at the end of the text"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("data.to_json(print)", "'data.to_json' (value expected, got function)"),
        ("data.to_yaml(print)", "'data.to_yaml' (value expected, got function)"),
        ("data.to_json(coroutine.create(print))", "'data.to_json' (value expected, got thread)"),
        ("data.parse_json({})", "'data.parse_json' (string expected, got table)"),
        ("json_decode({}, 'mine')", "'json_decode' (string expected, got table)"),
    ],
)
def test_a_wrong_type_raises(vm: LuaLibrary, call: str, expected: str) -> None:
    assert vm.error(call) == f"script.lua:1: bad argument #1 to {expected}"


def test_yaml_is_parsed_by_the_daemon(vm: LuaLibrary) -> None:
    assert vm.run("return data.parse_yaml('a: 1')") == [b"parsed", [b"a: 1"]]
