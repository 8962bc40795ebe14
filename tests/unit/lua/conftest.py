"""Our Lua, compiled once for all tests here."""

from __future__ import annotations

import pytest

from spyweb.lua.worker.vm import Bytecode, compile_lua_files
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
