"""What the table of entries keeps beside the value."""

from __future__ import annotations

import sqlite3
from functools import partial

import pytest

from spyweb.model import Value
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.model.entries import KEEP, Addition, Drop, Entry, Leave, Put, Replacement, Transform
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.entries import NO_EFFECTS, put_sum, set_expiry, write


def read(database: sqlite3.Connection) -> tuple[object, ...]:
    row: tuple[object, ...] = database.execute(
        "SELECT type, value, expires_ms, version, created_ms, updated_ms FROM entry"
    ).fetchone()
    return row


def change(database: sqlite3.Connection, now_ms: int, transform: Transform, key: bytes = b"k") -> object:
    return write(database, EntryContext(PLAIN, "global", key, now_ms), transform, NO_EFFECTS)


def put(database: sqlite3.Connection, value: bytes, now_ms: int, key: bytes = b"k") -> None:
    change(database, now_ms, Replacement(lambda: Put(value)), key)


def expire(database: sqlite3.Connection, at_ms: int, now_ms: int) -> None:
    assert set_expiry(database, EntryContext(PLAIN, "global", b"k", now_ms), at_ms)


def test_every_write_counts_up_the_version_and_keeps_the_moment_of_creation(database: sqlite3.Connection) -> None:
    put(database, b"1", 1000)
    assert change(database, 2000, partial(put_sum, 0, 1)) == 2
    expire(database, 9000, 3000)
    put(database, b"v", 4000)

    assert read(database) == ("s", b"v", None, 4, 1000, 4000)


def test_writing_an_expired_entry_creates_it_anew_with_a_version_never_seen(database: sqlite3.Connection) -> None:
    put(database, b"1", 1000)
    expire(database, 2000, 1000)
    put(database, b"2", 2500, b"new")
    put(database, b"v", 2500)

    rows = database.execute("SELECT key, version, created_ms FROM entry ORDER BY rowid").fetchall()
    assert rows == [(b"new", 1, 2500), (b"k", 3, 2500)]


@pytest.mark.parametrize("decision", [Put(b"new", 9000, "put"), Put(7), Drop("gone"), Leave("left")])
@pytest.mark.parametrize("expires_ms", [None, 2000, 1500])
def test_what_is_replaced_without_a_look_is_as_after_a_look(
    database: sqlite3.Connection, decision: Put | Drop | Leave, expires_ms: int | None
) -> None:
    found = []
    for transform in (Replacement(lambda: decision), lambda _: decision):
        database.execute("DELETE FROM entry")
        put(database, b"1", 1000)
        if expires_ms:
            expire(database, expires_ms, 1000)
        given = change(database, 1500, transform)
        found.append((given, database.execute("SELECT * FROM entry").fetchall()))

    assert found[0] == found[1]


@pytest.mark.parametrize("before", [None, 1, 2**63 - 1, b"7", 1.5])
@pytest.mark.parametrize("expires_ms", [None, 2000, 1500])
def test_what_is_added_without_the_rule_is_as_with_it(
    database: sqlite3.Connection, before: Value, expires_ms: int | None
) -> None:
    found: list[object] = []
    for transform in (Addition(2, lambda total: total, add_up), add_up):
        database.execute("DELETE FROM entry")
        if before is not None:
            change(database, 1000, Replacement(lambda: Put(before, expires_ms)))
        found.append((change(database, 1500, transform), database.execute("SELECT * FROM entry").fetchall()))

    assert found[0] == found[1]


def add_up(entry: Entry | None) -> Put | Leave:
    """Add 2 to an integer, where the sum fits into 64 bits."""
    number = entry.value if entry else 0
    if type(number) is not int or number > 2**62:
        return Leave("refused")
    return Put(number + 2, KEEP, number + 2)
