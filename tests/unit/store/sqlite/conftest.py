"""A database with the newest schema, for tests of what runs on a connection's thread, and a store in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from spyweb.model import Durability
from spyweb.store.sqlite.store import Store, open_up_to_date
from tests.fakes.clock import FakeClock
from tests.fakes.stores import RULES, opened


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_up_to_date(tmp_path / "spyweb.db", Durability.NORMAL, 0)
    yield connection
    connection.close()


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    async with opened("sqlite", path, clock, RULES) as store:
        yield store
