"""A store of each kind, for tests of what holds for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.store.sqlite.store import Store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KINDS, RULES, opened


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "spyweb.db", clock, RULES) as store:
        yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spyweb.db"
