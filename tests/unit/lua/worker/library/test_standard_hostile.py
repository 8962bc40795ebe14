"""Scripts that replace what we might have leaned on, or pass tables that lie."""

from __future__ import annotations

import pytest

from spyweb.errors import OpError
from tests.fakes.lua_library import LuaLibrary

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


def test_a_value_raised_by_an_op_is_not_touched() -> None:
    def refuse() -> list[object]:
        raise OpError("not allowed here")

    vm = LuaLibrary(ops={"http_get": refuse})
    assert vm.error("\n\nhttp_get()") == "script.lua:3: not allowed here"


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


@pytest.mark.parametrize("call", ["table.freeze", "table.clone", "copy", "deep_copy"])
def test_a_finalizer_put_into_a_metatable_later_is_never_armed(call: str) -> None:
    vm = LuaLibrary()
    vm.run(f"""
      local meta = {{}}
      local object = setmetatable({{}}, meta)
      meta.__gc = function() armed = true end
      pcall({call}, object)
    """)
    vm.used_bytes()  # collects
    assert vm.value("armed") is None
