"""Our Lua, compiled once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spyweb.lua.worker.vm import VM, Bytecode, compile_lua_files, init_of
from tests.fakes.lua_library import LuaLibrary
from tests.fakes.vm import FakeCallbacks


@pytest.fixture(scope="session")
def bytecode() -> Bytecode:
    return compile_lua_files()


@pytest.fixture(scope="module")
def vm() -> LuaLibrary:
    return LuaLibrary()


@pytest.fixture
def callbacks() -> FakeCallbacks:
    return FakeCallbacks()


@pytest.fixture
def lua(bytecode: Bytecode, callbacks: FakeCallbacks) -> Iterator[VM]:
    """The Lua of a worker as it is, prelude and all."""
    vm = VM(bytecode, init_of({"ops": ["echo"], "engine": {}}), 16 << 20, callbacks, main_count=1000)
    yield vm
    vm.close()
