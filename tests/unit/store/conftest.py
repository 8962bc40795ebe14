"""A store of each kind, for tests of what holds for all of them, or of those that a module names as STORES."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.store.sqlite.store import Store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KINDS, RULES, opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames and metafunc.definition.path.parent == Path(__file__).parent:
        metafunc.parametrize("store", getattr(metafunc.module, "STORES", KINDS), indirect=True)


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "spyweb.db", clock, RULES) as store:
        yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spyweb.db"
