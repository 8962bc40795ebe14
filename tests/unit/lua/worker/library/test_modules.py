from __future__ import annotations

from collections.abc import Mapping

import pytest

from spyweb.specs.linting.names import MEMBERS
from tests.fakes.lua_library import LuaLibrary


class Project:
    """Serves modules as the daemon does, and remembers what was asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.asked: list[str] = []

    def require(self, name: bytes) -> list[object]:
        self.asked.append(name.decode())
        path = name.decode().replace(".", "/") + ".lua"
        if path in self.files:
            return [path.encode(), self.files[path]]
        return [None, f"module '{name.decode()}' not found: tried {path}".encode()]


def make_vm(**files: bytes) -> tuple[LuaLibrary, Project]:
    project = Project({f"{name}.lua".replace("__", "/"): source for name, source in files.items()})
    return LuaLibrary(ops={"_require": project.require}), project


def test_two_spellings_of_one_file_are_one_module() -> None:
    vm, _ = make_vm(lib__a=b"return {}")
    assert vm.run("return require('lib.a') == require('lib/a')") == [True]


def test_a_module_runs_once_and_is_kept_also_where_its_value_is_false_and_none_is_true() -> None:
    greet = b"count = (count or 0) + 1 return {name = ..., path = select(2, ...)}"
    vm, project = make_vm(greet=greet, quiet=b"x = 1", no=b"return false")
    script = "local a, b = require('greet'), require('greet') return a == b, count, a.name, a.path"
    assert vm.run(script) == [True, 1, b"greet", b"greet.lua"]
    assert vm.run("return require('quiet'), require('no'), require('no'), x") == [True, False, False, 1]
    assert project.asked == ["greet", "quiet", "no"]


def test_modules_share_globals_with_the_script_also_those_assigned_later() -> None:
    vm, _ = make_vm(fetch=b"return function() return http_post() end")
    assert vm.run("local f = require('fetch') function http_post() return 'stub' end return f()") == [b"stub"]


def test_a_module_that_failed_is_tried_again() -> None:
    vm, project = make_vm(flaky=b"tries = (tries or 0) + 1 if tries < 3 then error('not yet') end return tries")
    assert vm.error("require('flaky')") == "flaky.lua:1: not yet"
    assert vm.run("return pcall(require, 'flaky')") == [False, b"flaky.lua:1: not yet"]
    assert vm.run("return require('flaky'), require('flaky')") == [3, 3]
    assert project.asked == ["flaky"] * 3


def test_a_circle_is_named() -> None:
    vm, _ = make_vm(a=b"return require('b')", b=b"return require('c')", c=b"local b = require('b')")
    assert vm.error("require('a')") == "c.lua:1: module 'b' requires itself: b.lua -> c.lua -> b.lua"
    assert "requires itself" in vm.error("require('b')")


def test_two_coroutines_may_load_the_same_module_at_the_same_time() -> None:
    vm, _ = make_vm(slow=b"coroutine.yield() return {}")
    script = """
      local a = coroutine.create(require)
      local b = coroutine.create(require)
      coroutine.resume(a, 'slow') coroutine.resume(b, 'slow')
      local _, first = coroutine.resume(a)
      local _, second = coroutine.resume(b)
      return type(first), first == second, first == require('slow')
    """
    assert vm.run(script) == [b"table", True, True]


def test_an_abandoned_load_leaves_nothing_behind() -> None:
    vm, _ = make_vm(slow=b"if not ready then coroutine.yield() end return 'loaded'")
    assert vm.run("coroutine.wrap(require)('slow') ready = true return require('slow')") == [b"loaded"]


def test_state_is_built_in_unless_the_project_has_one() -> None:
    vm, _ = make_vm()
    assert vm.run("state = {get = 1} return require('state') == state") == [True]
    vm, _ = make_vm(state=b"return 'mine'")
    assert vm.run("state = {} return require('state')") == [b"mine"]
    vm, _ = make_vm()
    assert vm.error("state = nil require('state')").startswith("script.lua:1: module 'state' not found")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("\nrequire('nope')", "script.lua:2: module 'nope' not found: tried nope.lua"),
        (
            "require('bad')",
            "script.lua:1: error loading module 'bad' from file 'bad.lua':\n\tbad.lua:1: unexpected symbol near '='",
        ),
        *[
            (f"helpers = {{}} require('{name}')", f"script.lua:1: module '{name}' not found: tried ")
            for name in ("print", "_G", "JSON_EMPTY_ARRAY", "helpers", "lib.log", "task")
        ],
        *[
            (f"require({value})", "script.lua:1: bad argument #1 to 'require' (string expected")
            for value in ("nil", "{}", "5")
        ],
    ],
)
def test_what_is_no_module_raises_at_the_line_of_require(script: str, message: str) -> None:
    vm, project = make_vm(bad=b"x = = 1")
    assert vm.error(script).startswith(message)
    assert project.asked == [] or "bad argument" not in message


@pytest.mark.parametrize("name", [*(name.decode() for name in MEMBERS), "engine", "values", "Values"])
def test_what_is_a_global_can_be_required(name: str) -> None:
    vm, _ = make_vm()
    assert vm.run(f"local it = require('{name}') return it ~= nil and it == {name}") == [True]


def test_a_file_of_the_project_comes_before_a_global_of_its_name() -> None:
    vm, _ = make_vm(log=b"return 'mine'", docker=b"return 'ours'")
    assert vm.run("return require('log'), require('docker')") == [b"mine", b"ours"]


def test_a_module_that_is_not_there_says_what_to_use() -> None:
    vm, _ = make_vm()
    told = vm.error("local pkg = require('pkg')")
    assert told.startswith("script.lua:1: module 'pkg' not found: tried ")
    assert told.endswith("; sloth-runner's pkg is not part of this version: use the machine's own tool, with exec.run")
    assert vm.run("return pcall(require, 'pkg')")[0] is False
