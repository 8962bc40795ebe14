from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.lua_library import LuaLibrary

integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def nested(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, min_size=1, max_size=6), st.dictionaries(texts, inner, max_size=6)),
        max_leaves=30,
    )


values = nested(st.one_of(st.booleans(), integers, floats, texts))


@pytest.fixture(scope="module")
def vm() -> LuaLibrary:
    return LuaLibrary()


def as_python(value: object) -> object:
    """A Lua value as Python's json would give it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [as_python(member) for member in value]
    if isinstance(value, dict):
        return {as_python(key): as_python(member) for key, member in value.items()}
    return value


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_what_python_writes_is_read_as_python_reads_it(
    vm: LuaLibrary, value: object, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    [decoded, problem] = vm.run("return json_decode(...)", text.encode())
    assert problem is None
    assert as_python(decoded) == value


@given(values)
def test_what_lua_writes_python_reads_back(vm: LuaLibrary, value: object) -> None:
    [written] = vm.run("return json_encode(...)", value)
    assert isinstance(written, bytes)
    assert json.loads(written) == value


@given(nested(st.one_of(st.booleans(), integers, texts)))
def test_the_text_is_compact_with_sorted_keys(vm: LuaLibrary, value: object) -> None:
    expected = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    assert vm.run("return json_encode(...)", value) == [expected.encode()]


@given(st.binary(max_size=60))
def test_any_bytes_come_back_from_a_string(vm: LuaLibrary, data: bytes) -> None:
    assert vm.run("local s = ... return json_decode(json_encode(s))", data) == [data, None]
    assert vm.run("local s = ... return json_decode(json_encode({[s] = 1}))", data) == [{data: 1}, None]


def accepted_by_python(text: bytes) -> bool:
    def refuse(_: str) -> object:
        raise ValueError("not JSON")

    try:
        json.loads(text.decode("utf-8", "surrogateescape"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


JSON_LIKE = st.lists(
    st.sampled_from(
        [*'{}[],:"\\ntfeE+-.019 \n\t\0', "true", "false", "null", "NaN", '"a"', '"\\u12', "\\ud800", "1.5", "é", "\x7f"]
    )
).map("".join)


@given(st.one_of(JSON_LIKE.map(str.encode), st.binary(max_size=30)))
def test_a_text_is_accepted_exactly_when_python_accepts_it(vm: LuaLibrary, text: bytes) -> None:
    [value, problem] = vm.run("return json_decode(...)", text)
    infinite = isinstance(problem, bytes) and problem.startswith(b"number out of range")
    bom = text.startswith(b"\xef\xbb\xbf")
    assert (problem is None) == accepted_by_python(text) or infinite or bom
    assert problem is None or value is None
