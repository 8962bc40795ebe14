"""Our Lua, compiled once for all tests here."""

from __future__ import annotations

import pytest

from spyweb.lua.worker.vm import Parts, compile_parts


@pytest.fixture(scope="session")
def parts() -> Parts:
    return compile_parts()
