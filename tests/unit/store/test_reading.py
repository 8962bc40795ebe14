"""Entries that are read together are what each would be by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from spyweb.errors import StoreError
from spyweb.store.batch import Kind, Op, commit
from spyweb.store.changes import Desk
from spyweb.store.migrate import load_migrations, migrate
from spyweb.store.protocol import Entry
from spyweb.store.reading import find, find_entry
from spyweb.store.sealing import PLAIN

NOW = 1000


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, Path("memory"), load_migrations(), 0)
    rows: list[tuple[bytes, str, int, int | None]] = [(b"k%d" % number, "i", number, None) for number in range(40)]
    rows += [(b"expired", "i", 1, NOW), (b"later", "i", 2, NOW + 1), (b"broken", "x", 3, None)]
    connection.executemany("INSERT INTO entry VALUES ('state', ?, ?, ?, ?, 4, 10, 20)", rows)
    connection.execute("INSERT INTO entry VALUES ('other', X'6B30', 's', X'', NULL, 1, 11, 12)")  # k0
    yield connection
    connection.close()


def desk(key: bytes, namespace: str = "state") -> Desk:
    return Desk(PLAIN, namespace, key, NOW)


def committed(connection: sqlite3.Connection, desks: Sequence[Desk]) -> list[object]:
    loop = asyncio.new_event_loop()
    batch = [Op(Kind.READ, find, (each,), loop.create_future(), None) for each in desks]
    loop.close()
    return commit(connection, batch)


@pytest.mark.parametrize(("count", "statements"), [(1, 1), (2, 1), (32, 1), (33, 2 + 2)])
def test_so_many_are_so_many_statements(table: sqlite3.Connection, count: int, statements: int) -> None:
    seen: list[str] = []
    table.set_trace_callback(seen.append)

    found = committed(table, [desk(b"k%d" % number) for number in range(count)])

    assert found == [
        Entry(value=number, version=4, created_ms=10, updated_ms=20, expires_ms=None) for number in range(count)
    ]
    assert len(seen) == statements


def test_each_is_what_it_would_be_by_itself(table: sqlite3.Connection) -> None:
    desks = [desk(key) for key in (b"later", b"k1", b"none", b"k1", b"expired", b"k0")] + [desk(b"k0", "other")]

    found = committed(table, desks)

    assert found == [find_entry(table, each) for each in desks]
    assert [each.value if isinstance(each, Entry) else each for each in found] == [2, 1, None, 1, None, 0, b""]


def test_what_cannot_be_read_fails_alone(table: sqlite3.Connection) -> None:
    before, broken, after = committed(table, [desk(b"k1"), desk(b"broken"), desk(b"k2")])

    assert isinstance(before, Entry)
    assert isinstance(after, Entry)
    assert isinstance(broken, StoreError)
