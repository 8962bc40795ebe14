"""Additions in a row do what each would have done after the other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.store.adding import add_many, add_one
from spyweb.store.changes import Desk
from spyweb.store.encoding import LARGEST
from spyweb.store.migrate import load_migrations, migrate
from spyweb.store.protocol import Addition
from spyweb.store.sealing import PLAIN
from tests.fakes.stores import counting

NOW = 1000
Row = tuple[str, bytes, str, object, int | None]
Asked = tuple[Desk, Addition]

cells = st.sampled_from([("i", 5), ("i", LARGEST - 1), ("s", b"7"), ("f", 1.5)])
expiries = st.sampled_from([None, NOW + 2, NOW + 100, NOW - 1])
keys = st.integers(0, 40).map(lambda number: b"k%d" % number)
entries = st.dictionaries(keys, st.tuples(cells, expiries), max_size=12)
additions = st.lists(st.tuples(keys, st.integers(-2, 3), st.integers(NOW, NOW + 4)), min_size=1, max_size=70)


@contextmanager
def table(rows: list[Row]) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, Path("memory"), load_migrations(), 0)
    connection.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?, 1, 10, 20)", rows)
    try:
        yield connection
    finally:
        connection.close()


def rows_of(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT rowid, * FROM entry ORDER BY rowid").fetchall()


def ask(key: bytes, delta: int, now_ms: int) -> Asked:
    addition = counting(delta)
    assert isinstance(addition, Addition)
    return Desk(PLAIN, "state", key, now_ms), addition


@given(entries=entries, asked=additions)
def test_many_at_once_leave_the_same_entries_and_results_as_one_by_one(
    entries: dict[bytes, tuple[tuple[str, object], int | None]], asked: list[tuple[bytes, int, int]]
) -> None:
    rows: list[Row] = [("state", key, *cell, expires_ms) for key, (cell, expires_ms) in entries.items()]
    several = [ask(*each) for each in asked]
    with table(rows) as together, table(rows) as apart:
        assert outcome_together(together, several) == outcome_apart(apart, several)
        assert rows_of(together) == rows_of(apart)


def outcome_together(connection: sqlite3.Connection, several: list[Asked]) -> list[object]:
    return [shown(result) for result in add_many(connection, several)]


def outcome_apart(connection: sqlite3.Connection, several: list[Asked]) -> list[object]:
    results: list[object] = []
    for each in several:
        try:
            results.append(shown(add_one(connection, *each)))
        except Exception as error:  # noqa: BLE001 - an op's own failure is its result
            results.append(shown(error))
    return results


def shown(result: object) -> object:
    return repr(result) if isinstance(result, Exception) else result


@pytest.mark.parametrize("count", [2, 9, 33])
def test_one_key_is_read_once_and_written_once(count: int) -> None:
    with table([("state", b"k", "i", 1, None)]) as connection:
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        assert add_many(connection, [ask(b"k", 1, NOW)] * count)[-1] == count + 1
        assert len(seen) == 2
        (row,) = rows_of(connection)
        assert row[6] == count + 1  # its version
