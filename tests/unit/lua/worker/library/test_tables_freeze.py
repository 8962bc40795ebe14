from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary

READONLY = "script.lua:1: attempt to modify a readonly table"


@pytest.mark.parametrize(
    "write",
    [
        "t.a = 2",
        "t.b = 2",
        "t[1] = 2",
        "t.a = nil",
        "rawset(t, 'a', 2)",
        "table.insert(t, 1)",
        "table.remove(t)",
        "table.sort(t, function(a, b) return a > b end)",
        "table.clear(t)",
        "table.move({9}, 1, 1, 1, t)",
    ],
)
def test_writing_to_a_frozen_table_raises(vm: LuaLibrary, write: str) -> None:
    assert "attempt to modify a readonly table" in vm.error(f"t = table.freeze({{10, 20, a = 1}}) {write}")
    assert vm.run("return t[1], t[2], t.a, t.b, #t") == [10, 20, 1, None, 2]


@pytest.mark.parametrize("frozen", ["table.freeze({})", "JSON_EMPTY_ARRAY"])
def test_a_plain_write_is_reported_at_its_line(vm: LuaLibrary, frozen: str) -> None:
    assert vm.error(f"local t = {frozen} t.x = 1") == READONLY
    assert vm.error(f"rawset({frozen}, 1, 1)") == READONLY
    assert vm.error(f"table.insert({frozen}, 1)").endswith("attempt to modify a readonly table")
    assert vm.run(f"return pcall(setmetatable, {frozen}, {{}})")[0] is False


def test_it_is_the_same_table_and_every_way_of_reading_sees_its_contents(vm: LuaLibrary) -> None:
    script = """
      local t = {1, 2, 3, a = 'x'}
      local same = table.freeze(t) == t
      local seen, sum, steps = 0, 0, 0
      for _ in pairs(t) do seen = seen + 1 end
      for _, v in ipairs(t) do sum = sum + v end
      for _ in next, t do steps = steps + 1 end
      return same, #t, rawlen(t), rawget(t, 'a'), t.a, seen, sum, steps, select('#', table.unpack(t)),
        table.concat(t, ','), table.find(t, 3), json_encode(t), (dump(t):gsub('%s', '')), next(t) ~= nil,
        table.isfrozen(t), table.isfrozen({})
    """
    assert vm.run(script) == [
        True, 3, 3, b"x", b"x", 4, 6, 4, 3, b"1,2,3",
        3, b'{"1":1,"2":2,"3":3,"a":"x"}', b'{1,2,3,a="x",}', True, True, False,
    ]  # fmt: skip


def test_ops_see_its_contents_and_its_length(vm: LuaLibrary) -> None:
    assert vm.run("return table.freeze({1, {a = table.freeze({})}}), table.freeze({x = 1})") == [
        [1, {b"a": {}}],
        {b"x": 1},
    ]


def test_copies_of_it_can_be_written(vm: LuaLibrary) -> None:
    script = """
      local meta = {__index = {inherited = 1}}
      local t = table.freeze(setmetatable({a = {1}}, meta))
      local results = {}
      for i, copied in ipairs({table.clone(t), copy(t), deep_copy(t)}) do
        copied.b = i
        results[i] = {copied.a[1], copied.b, copied.inherited}
      end
      return results, t.b
    """
    assert vm.run(script) == [[[1, 1, 1], [1, 2, 1], [1, 3, 1]], None]


def test_its_metatable_keeps_working_and_stays_as_it_is(vm: LuaLibrary) -> None:
    script = """
      local meta = {__index = function(self, key) return key .. tostring(self == t) end,
        __add = function() return 'sum' end,
        __call = function(self, x) return self.a + x end, __tostring = function() return 'me' end,
        __len = function() return 7 end,
        __eq = function() return true end, __concat = function() return 'joined' end}
      t = table.freeze(setmetatable({a = 1}, meta))
      return t.a, t.missing, t + 1, t(5), tostring(t), #t, t .. 'x', getmetatable(t) == meta,
        (pcall(setmetatable, t, {}))
    """
    assert vm.run(script) == [1, b"missingtrue", b"sum", 6, b"me", 7, b"joined", True, False]


def test_a_frozen_class_goes_on_serving_its_objects(vm: LuaLibrary) -> None:
    script = """
      local Animal = {}
      Animal.__index = Animal
      function Animal.new(name) return setmetatable({name = name}, Animal) end
      function Animal:speak() return self.name .. '!' end
      Animal.__tostring = function(self) return '<' .. self.name .. '>' end
      local before = Animal.new('cat')
      table.freeze(Animal)
      local after = Animal.new('dog')
      return before:speak(), after:speak(), tostring(after), pcall(function() Animal.speak = 1 end)
    """
    assert vm.run(script)[:4] == [b"cat!", b"dog!", b"<dog>", False]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("5", "bad argument #1 to 'freeze' (table expected, got number)"),
        ("table.freeze({})", "bad argument #1 to 'freeze' (table is already frozen)"),
        ("_G", "bad argument #1 to 'freeze' (the globals can't be frozen)"),
        ("setmetatable({}, {__metatable = 1})", "bad argument #1 to 'freeze' (table has a protected metatable)"),
        ("setmetatable({}, {__metatable = {}})", "bad argument #1 to 'freeze' (table has a protected metatable)"),
        ("JSON_EMPTY_ARRAY", "bad argument #1 to 'freeze' (table is already frozen)"),
    ],
)
def test_what_cannot_be_frozen_is_refused(vm: LuaLibrary, target: str, reason: str) -> None:
    assert vm.error(f"table.freeze({target})") == f"script.lua:1: {reason}"


def test_freezing_is_shallow(vm: LuaLibrary) -> None:
    assert vm.run("local t = table.freeze({a = {}}) t.a.x = 1 return t.a.x") == [1]


def test_a_frozen_table_that_is_dropped_is_collected() -> None:
    vm = LuaLibrary(memory_limit=1 << 30)
    vm.run("table.freeze({})")
    before = vm.used_bytes()
    vm.run("for i = 1, 2000 do local t = {('x'):rep(1000) .. i} t.self = t table.freeze(t) end")
    assert vm.used_bytes() - before < 200_000
