"""A module of sloth-runner that is not there is nil, and the error of a script that uses it says what to use."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM
from spyweb.specs.linting.names import ABSENT
from tests.fakes.lua_library import LuaLibrary
from tests.fakes.vm import FakeCallbacks, run_to_end

SPAWN = "sloth-runner's goroutine is not part of this version: use parallel(f, g) or parallel_map(list, f, limit)"


def refused(lua: VM, source: str) -> str:
    ended, reason, _ = run_to_end(lua, source)
    assert ended is Ended.ERROR
    return reason.decode()


@pytest.mark.parametrize(
    ("source", "begins"),
    [
        ("\ngoroutine.spawn(print)", "x.lua:2: attempt to index a nil value (global 'goroutine'); "),
        ("goroutine(print)", "x.lua:1: attempt to call a nil value (global 'goroutine'); "),
    ],
)
def test_the_error_of_a_module_that_is_not_there_says_what_to_use(lua: VM, source: str, begins: str) -> None:
    reason = refused(lua, source)
    assert reason.startswith(begins + SPAWN)


@pytest.mark.parametrize("catch", ["pcall(spawn)", "xpcall(spawn, function(err) return err end)"])
def test_an_error_that_was_caught_says_it_too_and_only_once(lua: VM, callbacks: FakeCallbacks, catch: str) -> None:
    script = f"local function spawn() goroutine.spawn() end local ok, err = {catch} print(err) error(err, 0)"
    assert refused(lua, script).count(SPAWN) == 1
    assert callbacks.lines[0][1].decode().count(SPAWN) == 1


def test_pcall_gives_what_it_gave(lua: VM) -> None:
    script = """
      assert(select('#', pcall(print)) == 1 and select('#', pcall(select, 1, nil, nil, nil)) == 4)
      local value = {}
      assert(select(2, pcall(error, value)) == value and select('#', pcall(error)) == 2)
      assert(select(2, pcall(function() nobody.x() end)) == "x.lua:5: attempt to index a nil value (global 'nobody')")
    """
    assert run_to_end(lua, script)[:2] == (Ended.SUCCESS, b"")


@pytest.mark.parametrize(("name", "use"), ABSENT.items())
def test_each_is_the_one_that_the_linter_knows(name: str, use: str) -> None:
    vm = LuaLibrary(ops={"_require": lambda name: [None, b"nothing there"]})
    reason = f"sloth-runner's {name} is not part of this version" + (f": {use}" if use else "")
    assert vm.error(f"require('{name}')") == f"script.lua:1: nothing there; {reason}"


def test_a_script_may_test_the_names_and_have_globals_of_its_own_by_them(lua: VM) -> None:
    script = """
      for _, name in ipairs({NAMES}) do assert(_G[name] == nil, name) end
      if user or event then error('there is none') end
      local who = user or 'anon'
      service = { start = function() return who end }
      function import(x) return x end
      assert(service.start() == 'anon' and import(1) == 1)
    """.replace("NAMES", ", ".join(f"'{name}'" for name in ABSENT))
    assert run_to_end(lua, script)[:2] == (Ended.SUCCESS, b"")


@pytest.mark.parametrize(
    ("source", "what"), [("nobody.x()", "global 'nobody'"), ("local docker docker.ps()", "local 'docker'")]
)
def test_a_nil_of_another_name_or_of_a_local_is_told_as_ever(lua: VM, source: str, what: str) -> None:
    assert refused(lua, source) == f"x.lua:1: attempt to index a nil value ({what})"
