from __future__ import annotations

from collections.abc import Callable

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM, Bytecode, StepKind, init_of
from tests.fakes.vm import FakeCallbacks

VARIABLES = wire.pack([{"env": {"A": "1"}, "rules": []}])
INIT = init_of({"ops": ["echo", "http_get", "state.get"], "engine": {"os": "linux"}})._replace(variables=VARIABLES)


class Watched(dict[str, bytes]):
    """Our Lua files, and which of them were loaded, in order."""

    def __init__(self, bytecode: Bytecode) -> None:
        super().__init__(bytecode)
        self.loaded: list[str] = []

    def __getitem__(self, name: str) -> bytes:
        self.loaded.append(name)
        return super().__getitem__(name)


@pytest.fixture
def run(bytecode: Bytecode) -> Callable[[bytes], tuple[VM, list[str]]]:
    """Runs a script to its end; gives its VM and what that has loaded for what the script looked up."""

    def run(script: bytes) -> tuple[VM, list[str]]:
        watched = Watched(bytecode)
        vm = VM(watched, INIT, 64 << 20, FakeCallbacks(), main_count=0)
        assert watched.loaded == ["lasting"]
        assert vm.compile(b"x.lua", script) is None
        vm.begin(1, "run", wire.pack([{"job": "x"}, False]))
        assert vm.start(1)[:2] == (StepKind.END, Ended.SUCCESS)
        assert watched.loaded[1:3] == ["compile", "run"]
        return vm, [name for name in watched.loaded[3:] if name not in ("globals", "runtime")]

    return run


@pytest.mark.parametrize(
    ("script", "files"),
    [
        (
            b"local n = tonumber('1') function helper() end assert(type(n) == 'number' and pcall(error) == false)",
            ["protected"],
        ),
        (b"if debug_mode == nil then count = (count or 0) + 1 end", []),
        (b"return tostring(1.0)", ["values"]),
        (b"log('x') print('y')", ["log", "values"]),
        (b"return ('x'):upper() .. string.lower('Y') .. os.time()", ["standard"]),
        (b"local encode = json_encode", []),
        (b"for _ = 1, 3 do json_encode({}) json_decode('1') end", ["json", "values"]),
        (b"return engine.os .. env_get('A')", ["engine"]),
        (b"assert(http_get and not http_post)", []),
    ],
)
def test_what_a_script_does_not_look_up_is_not_loaded(
    run: Callable[[bytes], tuple[VM, list[str]]], script: bytes, files: list[str]
) -> None:
    assert run(script)[1] == files


@pytest.mark.parametrize(
    "script", [b"next({})", b"local r = rawget", b"for _ in pairs(_G) do end", b"dump(1)", b"next({}) table.freeze({})"]
)
def test_whoever_could_look_behind_the_globals_finds_all_of_them_and_each_file_once(
    run: Callable[[bytes], tuple[VM, list[str]]], script: bytes
) -> None:
    _, files = run(script)

    assert {"standard", "values", "log", "engine", "access", "protected"} <= set(files)
    assert len(files) == len(set(files))


def test_whoever_looks_in_vain_again_and_again_gets_a_plain_table(run: Callable[[bytes], tuple[VM, list[str]]]) -> None:
    assert run(b"for _ = 1, 50 do local x = nobody end")[1] == []
    assert "standard" in run(b"for _ = 1, 100 do local x = nobody end")[1]
    assert "standard" in run(b"for i = 1, 100 do _G['name' .. i] = i end assert(name1 == 1 and name100 == 100)")[1]
