from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.limits import NUMBER_KEYS
from spyweb.lua import wire
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL
from spyweb.store.encoding import OVER_NUMBER_KEYS
from tests.fakes.lua_library import LuaLibrary, ScriptFailed
from tests.fakes.values import same

integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False).map(  # none that is an integer of Lua's
    lambda number: number if not number.is_integer() or abs(number) >= 2**63 else number * 2.0**63 or 0.5
)
scalars = st.one_of(st.booleans(), integers, floats, st.binary(max_size=300))
keys = st.one_of(st.binary(max_size=40), integers.filter(lambda key: key not in (0, 1)), floats)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=20), st.dictionaries(keys, inner, min_size=0, max_size=20)
    ),
    max_leaves=40,
)


@pytest.fixture(scope="module")
def vm() -> LuaLibrary:
    return LuaLibrary()


def is_array(value: dict[object, object]) -> bool:
    return bool(value) and set(value) == set(range(1, len(value) + 1))


def as_seen(value: object) -> object:
    """What comes back for what was passed: a table with the keys 1..n is a list."""
    if isinstance(value, list):
        return [as_seen(member) for member in value]
    if isinstance(value, dict):
        if is_array(value):
            return [as_seen(value[index]) for index in range(1, len(value) + 1)]
        return {key: as_seen(member) for key, member in value.items()}
    return value


@given(st.lists(st.one_of(st.none(), values), max_size=40))
def test_python_to_lua_to_python_keeps_values(vm: LuaLibrary, passed: list[object]) -> None:
    assert same(vm.run("return ...", *passed), as_seen(passed))


@given(st.lists(values, max_size=10))
def test_lua_to_python_to_lua_keeps_values(vm: LuaLibrary, passed: list[object]) -> None:
    [shown, *values_of_lua] = vm.run("return dump({...}), ...", *passed)
    assert vm.run("return dump({...})", *values_of_lua) == [shown]


@given(st.floats())
def test_an_integral_float_arrives_as_the_integer_and_any_other_as_it_was(vm: LuaLibrary, number: float) -> None:
    [back] = vm.run("return ...", number)
    if number.is_integer() and -(2**63) <= number < 2**63:
        assert type(back) is int
        assert back == number
    elif math.isnan(number):
        assert isinstance(back, float)
        assert math.isnan(back)
    else:
        assert same(back, number)


@given(st.integers(2**63, 2**64 - 1))
def test_an_unsigned_integer_that_lua_cannot_hold_becomes_the_nearest_float(vm: LuaLibrary, number: int) -> None:
    assert vm.run("return math.type(...), ...", number) == [b"float", float(number)]


@given(st.text(max_size=300))
def test_texts_of_the_daemon_arrive_as_their_utf8(vm: LuaLibrary, text: str) -> None:
    encodable = text.encode("utf-8", "replace").decode()
    assert vm.run("return ...", encodable) == [encodable.encode()]


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_every_size_of_string_list_and_map_crosses(vm: LuaLibrary, size: int) -> None:
    text, row, table = b"\xff" * size, list(range(size)), {b"%d" % key: key for key in range(size)}
    assert vm.run("return ...", text, row or table, table) == [text, row or table, table]


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(vm: LuaLibrary, packed: bytes) -> None:
    try:
        vm.decode(packed)
    except ScriptFailed:
        return


@given(st.lists(values, min_size=1, max_size=5), st.data())
def test_a_string_cut_anywhere_is_refused(vm: LuaLibrary, passed: list[object], data: st.DataObject) -> None:
    packed = wire.pack(passed)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(ScriptFailed):
        vm.decode(cut)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x01",
        b"\xc0",
        b"\x80",
        b"\x90\x90",
        b"\x91\xc1",
        b"\x91\x81\xc0\x01",
        b"\x91\x81\xcb\x7f\xf8\0\0\0\0\0\0\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\x91\xc6\xff\xff\xff\xff",
        b"\x91\xdf\xff\xff\xff\xff\x01",
        b"\x91\xc7\0\x63",
        b"\x91\xd4\x04\0",
        b"\x91" * 100_000,
    ],
)
def test_what_the_daemon_never_writes_is_an_error(vm: LuaLibrary, packed: bytes) -> None:
    with pytest.raises(ScriptFailed):
        vm.decode(packed)
    assert vm.run("return 1") == [1]


def test_the_sentinels_cross_both_ways() -> None:
    vm = LuaLibrary()
    assert vm.run("return JSON_EMPTY_ARRAY, {JSON_EMPTY_ARRAY}") == [[], [[]]]
    assert vm.run("return state.null, {state.null}") == [NULL, [NULL]]
    assert vm.decoded(b"\x92\xc7\0\x04\xc7\0\x05", "return json_encode(...), json_encode(select(2, ...))") == [
        b"null",
        b"[]",
    ]


def test_what_only_lua_has_becomes_an_extension(vm: LuaLibrary) -> None:
    assert vm.run("return print, {f = print}, coroutine.create(print), {[print] = 1}, {[{}] = 2}") == [
        Foreign(Ext.FOREIGN, "function"),
        {b"f": Foreign(Ext.FOREIGN, "function")},
        Foreign(Ext.FOREIGN, "thread"),
        {Foreign(Ext.FOREIGN, "function"): 1},
        {Foreign(Ext.FOREIGN, "table"): 2},
    ]


def test_a_boolean_key_beside_the_number_that_python_takes_it_for_is_not_lost(vm: LuaLibrary) -> None:
    assert vm.run("return {[true] = 'a', [1] = 'b', [0] = 'c'}, {[false] = 'a', [0] = 'b'}") == [
        {Foreign(Ext.FOREIGN, "boolean beside the number 1"): b"a", 1: b"b", 0: b"c"},
        {Foreign(Ext.FOREIGN, "boolean beside the number 0"): b"a", 0: b"b"},
    ]
    assert vm.run("return {[true] = 'a', [false] = 'b', [2] = 'c'}") == [{True: b"a", False: b"b", 2: b"c"}]


def test_tables_of_more_number_keys_than_a_value_may_have_are_as_foreign_as_a_function(vm: LuaLibrary) -> None:
    over = Foreign(Ext.FOREIGN, OVER_NUMBER_KEYS.removeprefix("a "))
    make = "local function t(n) local t = {} for i = 1, n do t[i / 2] = 1 end return t end "
    numbers = [number / 2 for number in range(1, NUMBER_KEYS + 1)]

    assert vm.run(make + f"return t({NUMBER_KEYS})") == [dict.fromkeys(numbers, 1)]
    assert vm.run(make + f"return {{1, t({NUMBER_KEYS + 1}), 'x'}}, {{a = t(2)}}, 5") == [
        [1, over, b"x"],
        {b"a": {0.5: 1, 1: 1}},
        5,
    ]
    assert vm.run(make + f"return t({NUMBER_KEYS}), {{t(2), k = 1}}, {{t(2)}}") == [
        dict.fromkeys(numbers, 1),
        over,
        [over],
    ]


def test_a_cycle_ends_where_it_closes_and_a_shared_table_is_no_cycle(vm: LuaLibrary) -> None:
    assert vm.run("local t = {} t.t = t return t") == [{b"t": Foreign(Ext.CYCLE, "table")}]
    assert vm.run("local t = {1} return {t, t}") == [[[1], [1]]]


def test_the_65th_level_is_cut_off(vm: LuaLibrary) -> None:
    nest = "local t = {{'end'}} for _ = 1, %d do t = {t} end return t"
    deepest: object = vm.run(nest % 62)
    while isinstance(deepest, list):
        deepest = deepest[0]
    assert deepest == b"end"
    cut: object = vm.run(nest % 63)
    while isinstance(cut, list):
        cut = cut[0]
    assert cut == Foreign(Ext.DEEP, "table")


def test_no_code_of_the_script_runs_while_values_are_written(vm: LuaLibrary) -> None:
    script = """
      local function trap() error("a metamethod ran") end
      local names = {"__index", "__newindex", "__len", "__pairs", "__eq", "__tostring", "__lt", "__call", "__name"}
      local meta = {}
      for _, name in ipairs(names) do meta[name] = trap end
      return setmetatable({1, 2}, meta), setmetatable({a = setmetatable({}, meta)}, meta)
    """
    assert vm.run(script) == [[1, 2], {b"a": {}}]


def test_a_list_with_holes_is_a_map_and_keeps_its_places(vm: LuaLibrary) -> None:
    assert vm.run("return {1, nil, 3}, {[2] = 'b'}, {[1] = 'a', [2] = 'b', x = 1}") == [
        {1: 1, 3: 3},
        {2: b"b"},
        {1: b"a", 2: b"b", b"x": 1},
    ]
