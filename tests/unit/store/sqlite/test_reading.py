"""Entries that are read together are what each would be by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import pytest

from spyweb.errors import StoreError
from spyweb.store import protocol
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.reading import find, find_entry
from tests.fakes.tables import Entry, committed, entry_table

NOW = 1000


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    rows: list[Entry] = [("state", b"k%d" % number, "i", number, None) for number in range(40)]
    rows += [("state", b"expired", "i", 1, NOW), ("state", b"later", "i", 2, NOW + 1)]
    rows += [("state", b"broken", "x", 3, None), ("other", b"k0", "s", b"", None)]
    with entry_table(rows) as connection:
        yield connection


def context(key: bytes, namespace: str = "state") -> EntryContext:
    return EntryContext(PLAIN, namespace, key, NOW)


def found_together(connection: sqlite3.Connection, contexts: Sequence[EntryContext]) -> list[object]:
    return committed(connection, OpKind.READ, find, [(each,) for each in contexts])


@pytest.mark.parametrize(("count", "statements"), [(1, 1), (2, 1), (32, 1), (33, 2 + 2)])
def test_so_many_are_so_many_statements(table: sqlite3.Connection, count: int, statements: int) -> None:
    seen: list[str] = []
    table.set_trace_callback(seen.append)

    found = found_together(table, [context(b"k%d" % number) for number in range(count)])

    assert found == [
        protocol.Entry(value=number, version=1, created_ms=10, updated_ms=20, expires_ms=None)
        for number in range(count)
    ]
    assert len(seen) == statements


def test_each_is_what_it_would_be_by_itself(table: sqlite3.Connection) -> None:
    contexts = [context(key) for key in (b"later", b"k1", b"none", b"k1", b"expired", b"k0")] + [
        context(b"k0", "other")
    ]

    found = found_together(table, contexts)

    assert found == [find_entry(table, each) for each in contexts]
    assert [each.value if isinstance(each, protocol.Entry) else each for each in found] == [2, 1, None, 1, None, 0, b""]


def test_what_cannot_be_read_fails_alone(table: sqlite3.Connection) -> None:
    before, broken, after = found_together(table, [context(b"k1"), context(b"broken"), context(b"k2")])

    assert isinstance(before, protocol.Entry)
    assert isinstance(after, protocol.Entry)
    assert isinstance(broken, StoreError)
