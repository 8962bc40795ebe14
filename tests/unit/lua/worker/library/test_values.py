from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.fixture(scope="module")
def vm() -> LuaLibrary:
    return LuaLibrary(env={"TOKEN": "secret", "SPYWEB_ODD": "twice"})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("dump(nil)", "nil"),
        ("dump(3.0)", "3"),
        ("dump('a\"\\n\\0')", '"a\\"\\n\\000"'),
        ("dump('é')", '"é"'),
        ("dump({})", "{}"),
        ("dump(print)", "<function>"),
        ("dump({1, {2}})", "{\n  1,\n  {\n    2,\n  },\n}"),
        (
            "dump({b = 1, a = 2, [10] = 3, [2.5] = 4, ['x y'] = 5, [true] = 6})",
            '{\n  [2.5] = 4,\n  [10] = 3,\n  a = 2,\n  b = 1,\n  ["x y"] = 5,\n  [true] = 6,\n}',
        ),
        ("(function() local t = {} t.me = t return dump(t) end)()", "{\n  me = <cycle>,\n}"),
    ],
)
def test_dump_is_readable_and_sorted(vm: LuaLibrary, expression: str, text: str) -> None:
    assert vm.value(expression) == text.encode()


def test_dump_stops_at_some_depth(vm: LuaLibrary) -> None:
    assert b"<deeper>" in vm.run("local t = {1} for _ = 1, 100000 do t = {t} end return dump(t)")[0]  # type: ignore[operator]


def test_dump_shows_null_by_name(vm: LuaLibrary) -> None:
    assert vm.decoded(b"\x91\x81\xa1a\xc7\0\x04", "return dump(...)") == [b"{\n  a = <null>,\n}"]


def test_copy_is_shallow_and_deep_copy_is_not_and_null_and_the_empty_array_stay_what_they_are(vm: LuaLibrary) -> None:
    script = """
      local inner, null, empty = {1}, state.null, JSON_EMPTY_ARRAY
      local original = setmetatable({a = inner, b = inner}, {__index = {c = 3}})
      original.me = original
      local shallow, deep = copy(original), deep_copy(original)
      inner[1] = 2
      return shallow.a[1], shallow.c, shallow.me == original, deep.a[1], deep.c, deep.me == deep, deep.a == deep.b,
        copy('x'), deep_copy(nil), deep_copy(empty) == empty, copy(null) == null, copy(empty) == empty,
        deep_copy({null})[1] == null, copy({empty})[1] == empty
    """
    assert vm.run(script) == [2, 3, True, 1, 3, True, True, b"x", None, *[True] * 5]


def test_deep_copy_has_no_depth_limit(vm: LuaLibrary) -> None:
    script = """
      local t = {} for _ = 1, 200000 do t = {t} end
      local copied, depth = deep_copy(t), 0
      while copied[1] do copied, depth = copied[1], depth + 1 end
      return depth
    """
    assert vm.run(script) == [200_000]


def test_a_copy_does_not_carry_a_finalizer(vm: LuaLibrary) -> None:
    """A metatable that got its __gc after it was set would otherwise arm it."""
    for name in ("copy", "deep_copy", "table.clone"):
        script = f"local m = {{}} local t = setmetatable({{}}, m) m.__gc = function() end {name}(t)"
        assert "__gc is not available" in vm.error(script)


def test_env_get_shows_spyweb_variables_only(vm: LuaLibrary) -> None:
    assert vm.run("return env_get('TOKEN'), env_get('SPYWEB_TOKEN'), env_get('PATH'), env_get('SPYWEB_ODD')") == [
        b"secret",
        b"secret",
        None,
        b"twice",
    ]
    assert vm.error("env_get(1)") == "script.lua:1: bad argument #1 to 'env_get' (string expected, got number)"


def test_engine_says_where_it_runs(vm: LuaLibrary) -> None:
    assert vm.run("return engine.os, engine.lua_version, engine.server_url") == [b"linux", b"lua54", None]


def test_an_absent_family_says_so_and_can_be_replaced() -> None:
    vm = LuaLibrary()
    for call, told in (("cdp.open('x')", "cdp.open"), ("cdp{}", "cdp"), ("cdp:go()", "cdp.go")):
        assert vm.error(call) == f"script.lua:1: {told} is not part of this version"
    assert vm.run("cdp = {open = function() return 1 end} return cdp.open()") == [1]
