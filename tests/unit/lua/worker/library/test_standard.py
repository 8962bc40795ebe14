from __future__ import annotations

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.lua_library import LuaLibrary


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("tostring(3.0)", b"3"),
        ("tostring(-0.0)", b"0"),
        ("tostring(2.5)", b"2.5"),
        ("tostring(1e15)", b"1000000000000000"),
        ("tostring(1e300)", b"1e+300"),
        ("tostring(1/0)", b"inf"),
        ("tostring(nil)", b"nil"),
        ("tostring('a\\0')", b"a\0"),
        ("tostring(setmetatable({}, {__tostring = function() return 'me' end}))", b"me"),
        ("string.format('%s %s', 3.0, 2.5)", b"3 2.5"),
        ("string.format('%d', 2.7)", b"2"),
        ("string.format('%d %i', -2.7, 1e3)", b"-2 1000"),
        ("string.format('%x', 255.9)", b"ff"),
        ("string.format('%5.1f|%g|%%|%s', 2.0, 0.5, 'x')", b"  2.0|0.5|%|x"),
        ("string.format('%-6s|%03d', 7.0, 5.9)", b"7     |005"),
        ("('%s'):format(1.0)", b"1"),
        ("string.format('%q', 'a\\nb')", b'"a\\\nb"'),
        ("table.concat(string.split('a,b,,c'), '|')", b"a|b||c"),
        ("#string.split('')", 1),
        ("table.concat(('a--b--'):split('--'), '|')", b"a|b|"),
        ("table.concat(('a.b'):split('.'), '|')", b"a|b"),
        ("table.concat(('abc'):split(''), '|')", b"a|b|c"),
        ("math.round(0.49999999999999994)", 0),
        ("math.sign(-0.5)", -1),
        ("math.sign(0)", 0),
        ("math.clamp(5, 1, 3)", 3),
        ("math.clamp(-5.5, 1, 3)", 1),
        ("math.clamp(2, 1, 3)", 2),
        ("table.find({'a', 'b', 'a'}, 'a')", 1),
        ("table.find({'a', 'b', 'a'}, 'a', 2)", 3),
        ("table.find({'a'}, 'x')", None),
        ("#table.create(3, 'x')", 3),
        ("#table.create(3)", 0),
        ("unpack({1, 2})", 1),
        ("(loadstring('return 5'))()", 5),
        ("os.clock()", 12.5),
        ("os.date('!%Y-%m-%d', 86400.9)", b"1970-01-02"),
        ("os.date('!*t', 0).year", 1970),
        ("os.difftime(5, 3)", 2),
        ("math.type(os.time())", b"integer"),
        ("utf8.char(8364)", "€".encode()),
        ("rawlen('abc') + rawlen({1})", 4),
        ("next({})", None),
        ("rawget(setmetatable({}, {__index = {a = 1}}), 'a')", None),
    ],
)
def test_the_standard_library_as_luau_scripts_expect_it(vm: LuaLibrary, expression: str, value: object) -> None:
    [found] = vm.run(f"return ({expression})")
    assert found == value
    assert type(found) is type(value)


def test_what_is_dangerous_is_absent(vm: LuaLibrary) -> None:
    names = ["io", "package", "debug", "python", "dofile", "loadfile", "newproxy", "setfenv", "warn"]
    names += ["os.exit", "os.execute", "os.getenv", "string.dump"]
    assert {name: vm.value(name) for name in names} == dict.fromkeys(names)


def test_os_holds_nothing_but_time(vm: LuaLibrary) -> None:
    names = vm.value("(function() local t = {} for n in pairs(os) do t[#t + 1] = n end table.sort(t) return t end)()")
    assert names == [b"clock", b"date", b"difftime", b"time"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("string.format('%d', 'x')", "bad argument #2 to 'format' (number expected, got string)"),
        ("string.format('%d', 1e300)", "bad argument #2 to 'format' (number has no integer representation)"),
        ("string.format('%d', 0/0)", "bad argument #2 to 'format' (number has no integer representation)"),
        ("string.format('%s')", "bad argument #2 to 'format' (no value)"),
        ("string.format('%y', 1)", "invalid conversion '%y' to 'format'"),
        ("string.format('%y', 1.5)", "invalid conversion '%y' to 'format'"),
        ("string.format({}, 1.5)", "bad argument #1 to 'format' (string expected, got table)"),
        ("string.split({})", "bad argument #1 to 'split' (string expected, got table)"),
        ("string.split('a', true)", "bad argument #2 to 'split' (string expected, got boolean)"),
        ("math.round('x')", "bad argument #1 to 'round' (number expected, got string)"),
        ("math.clamp(1, 3, 2)", "bad argument #3 to 'clamp' (max must be greater than or equal to min)"),
        ("table.find(1)", "bad argument #1 to 'find' (table expected, got number)"),
        ("table.find({}, 1, 0)", "bad argument #3 to 'find' (index out of range)"),
        ("table.create(-1)", "bad argument #1 to 'create' (size out of range)"),
        ("table.create({})", "bad argument #1 to 'create' (integer expected, got table)"),
        ("table.clear(5)", "bad argument #1 to 'clear' (table expected, got number)"),
        ("rawget(1)", "bad argument #1 to 'rawget' (table expected, got number)"),
        ("rawset({}, nil, 1)", "table index is nil"),
        ("rawset('', 1, 1)", "bad argument #1 to 'rawset' (table expected, got string)"),
        ("rawlen(5)", "bad argument #1 to 'rawlen' (table or string expected, got number)"),
        ("next(nil)", "bad argument #1 to 'next' (table expected, got nil)"),
        ("os.date('%Ez')", "bad argument #1 to 'date' (invalid conversion specifier '%Ez')"),
        ("os.date('%')", "bad argument #1 to 'date' (invalid conversion specifier '%')"),
        ("os.date('*t', 1e300)", "bad argument #2 to 'date' (number has no integer representation)"),
        ("bit32.band(1, {})", "bad argument #2 to 'band' (number expected, got table)"),
        ("bit32.bnot()", "bad argument #1 to 'bnot' (number expected, got nil)"),
        ("bit32.lshift(1, 'x')", "bad argument #2 to 'lshift' (number expected, got string)"),
        ("bit32.extract(1, 40)", "trying to access non-existent bits"),
        ("bit32.extract(1, -1)", "bad argument #2 to 'extract' (field cannot be negative)"),
        ("bit32.replace(1, 2, 3, 0)", "bad argument #4 to 'replace' (width must be positive)"),
    ],
)
def test_errors_read_like_luas_own_and_carry_the_scripts_line(vm: LuaLibrary, script: str, message: str) -> None:
    assert vm.error(f"\n{script}") == f"script.lua:2: {message}"


def test_a_huge_date_is_an_error_and_no_crash(vm: LuaLibrary) -> None:
    assert "date result cannot be represented" in vm.error("os.date('*t', math.maxinteger)")


def test_clone_clear_and_find_see_fields_as_they_are(vm: LuaLibrary) -> None:
    script = """
      local meta = {__index = {x = 1}}
      local original = setmetatable({1, 2, a = {}}, meta)
      local copy = table.clone(original)
      copy[1] = 9
      local cleared = table.clone(original)
      table.clear(cleared)
      return original[1], copy.a == original.a, copy.x, next(cleared), cleared.x
    """
    assert vm.run(script) == [1, True, 1, None, 1]


def test_what_a_script_put_into_a_library_stays_and_pairs_lists_what_loads_later_too() -> None:
    fresh = LuaLibrary()
    found = fresh.run("table.find = 'mine' return table.find, type(table.clone), table.nothing")
    assert found == [b"mine", b"function", None]
    assert fresh.run("string.split = nil string.shout = string.upper return ('a'):shout()") == [b"A"]
    script = "local names = {} for name in pairs(bit32) do names[name] = true end return names.bxor, names.nothing"
    assert fresh.run(script) == [True, None]


words = st.integers(0, 2**32 - 1)
SHIFTS = st.integers(-40, 40)


@given(words, words, SHIFTS)
@example(2**31, 2**32 - 1, 40)
@example(2**32 - 1, 0, -40)
def test_bit32_is_32_bit_arithmetic(vm: LuaLibrary, left: int, right: int, by: int) -> None:
    mask = 2**32 - 1
    signed = struct.unpack("<i", struct.pack("<I", left))[0]
    turned = by % 32
    script = """
      local a, b, n = ...
      return bit32.band(a, b), bit32.bor(a, b), bit32.bxor(a, b), bit32.bnot(a), bit32.btest(a, b), bit32.lshift(a, n),
        bit32.rshift(a, n), bit32.arshift(a, n), bit32.lrotate(a, n), bit32.rrotate(a, n), bit32.byteswap(a),
        bit32.countlz(a), bit32.countrz(a)
    """
    assert vm.run(script, left, right, by) == [
        left & right,
        left | right,
        left ^ right,
        ~left & mask,
        left & right != 0,
        (left << by) & mask if by >= 0 else left >> -by,
        left >> by if by >= 0 else (left << -by) & mask,
        (signed >> by) & mask if by >= 0 else (left << -by) & mask,
        ((left << turned) | (left >> (32 - turned))) & mask,
        ((left >> turned) | (left << (32 - turned))) & mask,
        int.from_bytes(left.to_bytes(4, "little"), "big"),
        32 - left.bit_length(),
        (left & -left).bit_length() - 1 if left else 32,
    ]


@given(words, words, st.integers(0, 31), st.data())
def test_bit32_extract_gives_what_replace_put(
    vm: LuaLibrary, bits: int, new: int, field: int, data: st.DataObject
) -> None:
    width = data.draw(st.integers(1, 32 - field))
    script = "local a, b, f, w = ... local r = bit32.replace(a, b, f, w) return bit32.extract(r, f, w), r"
    part = (2**width - 1) << field
    expected = (bits & ~part) | (new << field & part)
    assert vm.run(script, bits, new, field, width) == [new & (2**width - 1), expected]


def test_bit32_takes_numbers_modulo_2_to_32_and_cuts_fractions(vm: LuaLibrary) -> None:
    assert vm.run("return bit32.band(-1), bit32.band(2^32 + 5), bit32.band(3.9), bit32.band('7'), bit32.band()") == [
        2**32 - 1, 5, 3, 7, 2**32 - 1,
    ]  # fmt: skip
    assert vm.run("return bit32.band(2^100), bit32.band(1/0), bit32.lshift(1, math.mininteger)") == [0, 0, 0]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_round_goes_to_the_nearest_and_halves_away_from_zero(vm: LuaLibrary, number: float) -> None:
    [rounded] = vm.run("return math.round(...)", number)
    below = math.floor(abs(number))
    expected = math.copysign(below + (abs(number) - below >= 0.5), number)
    assert rounded == expected


USES = """
  return json_encode({a = {1, 'x\\n'}, b = {}}), json_decode('{"a":[1,"\\\\u00e9"]}').a[1], dump({1, x = 'y'}),
    copy({1})[1], deep_copy({{1}})[1][1], env_get('A'), bit32.band(7, 3), math.round(2.5), table.find({5}, 5),
    #string.split('a,b'), string.format('%d', 2.5), tostring(1.0), os.date('!%Y', 0.5), require('m'),
    table.isfrozen(table.freeze({1}))
"""
EXPECTED: list[object] = [
    b'{"a":[1,"x\\n"],"b":{}}', 1, b'{\n  1,\n  x = "y",\n}', 1, 1, b"v", 3, 3, 1, 2, b"2", b"1", b"1970", b"module",
    True,
]  # fmt: skip
KEPT = """
  local json_encode, json_decode, dump, copy = json_encode, json_decode, dump, copy
  local deep_copy, env_get = deep_copy, env_get
  local require, tostring, os, string, table, math, bit32 = require, tostring, os, string, table, math, bit32
  local format, split, find, isfrozen, freeze, round, band = string.format, string.split, table.find, table.isfrozen,
    table.freeze, math.round, bit32.band
"""
TRAP = "local trap = function() error('trap') end "
POISONS = [
    "local all = _G for name in pairs(all) do all[name] = nil end",
    TRAP + "local all, type = _G, type for k, v in next, all do if type(v) == 'function' then all[k] = trap end end",
    TRAP
    + "for _, lib in next, {string, table, math, utf8, coroutine, os} do for k in next, lib do lib[k] = trap end end",
    TRAP + "setmetatable(_G, {__index = trap, __newindex = trap})",
    TRAP + "setmetatable(string, {__index = trap}) setmetatable(table, {}) setmetatable(math, {})",
    "string.format = nil table.concat = nil string.gsub = nil string.find = nil math.type = nil next = nil type = nil",
]


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("loaded_before", [False, True])
def test_a_script_that_replaces_what_it_finds_breaks_no_function_it_had(poison: str, loaded_before: bool) -> None:
    vm = LuaLibrary(ops={"_require": lambda name: [name, b"return 'module'"]}, env={"A": "v"})
    first = f"(function() {USES} end)()" if loaded_before else ""
    uses = USES.replace("bit32.band", "band").replace("math.round", "round").replace("table.find", "find")
    uses = uses.replace("string.split", "split").replace("string.format", "format")
    uses = uses.replace("table.isfrozen", "isfrozen").replace("table.freeze", "freeze").replace("os.date", "date")
    assert vm.run(f"{first} {KEPT} local date = os.date do {poison} end {uses}") == EXPECTED


LIARS = [
    "__index = function() error('trap') end",
    "__index = function() return 1 end",
    "__newindex = function() error('trap') end",
    "__len = function() return 1e9 end",
    "__len = function() return 'x' end",
    "__pairs = function() error('trap') end",
    "__pairs = function() return 5 end",
    "__eq = function() error('trap') end",
    "__tostring = function() error('trap') end",
    "__tostring = 5",
    "__name = {}",
    "__metatable = false",
    "__call = function() error('trap') end",
    "__mode = 'k'",
]


@pytest.mark.parametrize("liar", LIARS)
def test_lying_metatables_are_not_asked(liar: str) -> None:
    vm = LuaLibrary()
    script = f"""
      local function make() return setmetatable({{'a', {{b = 'c'}}}}, {{{liar}}}) end
      return json_encode(make()), (dump(make()):gsub('%s', '')), rawlen(deep_copy(make())), rawlen(copy(make())),
        make(), json_encode({{x = make()}})
    """
    assert vm.run(script) == [
        b'["a",{"b":"c"}]',
        b'{"a",{b="c",},}',
        2,
        2,
        [b"a", {b"b": b"c"}],
        b'{"x":["a",{"b":"c"}]}',
    ]


@pytest.mark.parametrize("call", ["tostring", "string.format('%s', ...)"])
def test_an_error_in_tostring_stays_catchable(call: str) -> None:
    vm = LuaLibrary()
    called = call if "(" in call else f"{call}(...)"
    script = f"""
      local object = setmetatable({{}}, {{__tostring = function() error({{code = 7}}) end}})
      local ok, err = pcall(function(...) return {called} end, object)
      return ok, err.code
    """
    assert vm.run(script) == [False, 7]


def test_nothing_of_ours_can_be_reached_from_the_globals() -> None:
    script = """
      local seen, found = {}, {}
      local ours = { raw = true, runtime = true, internals = true, emit = true, frozen = true }
      local function walk(value, path)
        if type(value) ~= 'table' or seen[value] then return end
        seen[value] = path
        for key, member in next, value do
          if ours[key] then found[#found + 1] = path end
          walk(member, path .. '.' .. tostring(key))
        end
        walk(getmetatable(value), path .. '!')
      end
      walk(_G, '_G')
      walk(getmetatable(''), 'string meta')
      return #found
    """
    assert LuaLibrary().run(script) == [0]


def test_a_memory_error_inside_the_library_keeps_its_text() -> None:
    """The prelude knows it by this text, and discards the VM."""
    vm = LuaLibrary(memory_limit=4 << 20)
    assert vm.error("local x = ('x'):rep(1500000) return string.format('%s%s', x, x)") == "not enough memory"
    vm = LuaLibrary(memory_limit=4 << 20)
    assert vm.error("local x = ('x'):rep(1500000) return json_encode({x, x})") == "not enough memory"


def test_no_metatable_that_we_set_again_is_within_reach() -> None:
    """No hook runs in a finalizer, so one that a script smuggled in could never be stopped."""
    vm = LuaLibrary(ops={"http_get": lambda: [{"headers": {"a": "b"}}]})
    assert vm.run("return getmetatable(http_get().headers)") == [False]
    assert vm.run("return (pcall(setmetatable, http_get().headers, {}))") == [False]
