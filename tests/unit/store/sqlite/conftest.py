"""A database with the newest schema, for tests of what runs on a connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyweb.model import Durability
from spyweb.store.sqlite.store import open_up_to_date


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_up_to_date(tmp_path / "spyweb.db", Durability.NORMAL, 0)
    yield connection
    connection.close()
