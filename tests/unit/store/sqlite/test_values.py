"""Writes of values: damaged ones, and that a write without a look leaves what one with a look would."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial

import pytest

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.encryption import PLAIN
from spyweb.store.model.entries import (
    KEEP,
    Addition,
    Blind,
    ChangeEvent,
    Drop,
    Entry,
    Leave,
    Put,
    Replacement,
    Transform,
    Watch,
)
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.entries import NO_EFFECTS, put_sum, set_expiry, write
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import PRICES, kept
from tests.fakes.stores import LOGGED, all_items, counting, put, until_told


async def test_counting_leaves_a_trail_where_one_is_wanted(store: Store) -> None:
    await put(store, b"k", 1, namespace=LOGGED)
    await store.values.transform(LOGGED, b"k", counting(1))

    assert [entry.value for entry in await store.values.history(LOGGED, b"k")] == [2, 1]


async def damage(store: Store, namespace: str, key: bytes) -> None:
    """As a disk may."""
    statement = "UPDATE entry SET type = 'j', value = '{' WHERE namespace = ? AND key = ?"
    await store._connections.writer.submit(
        OpKind.WRITE, lambda connection: connection.execute(statement, (namespace, key))
    )


async def test_a_damaged_value_is_told_with_its_key_and_can_be_written_over_and_deleted(store: Store) -> None:
    for key in (b"a", b"b", b"c", b"d"):
        await put(store, key, {b"x": 1})
        await damage(store, "state", key)
    with pytest.raises(StoreError, match="the value of b'a' in state can't be read"):
        await store.values.read("state", b"a")
    with pytest.raises(StoreError, match="the value of b'a' in state can't be read"):
        await store.values.get("state", b"a")

    await put(store, b"a", 1)
    assert await store.values.transform("state", b"b", Blind(lambda is_there: Drop(is_there)))
    assert await store.values.transform("state", b"c", Blind(lambda is_there: Put(2, None, is_there)))
    await store.values.delete("state", b"d")

    assert [(key, entry.value) for key, entry in await all_items(store, "state")] == [(b"a", 1), (b"c", 2)]


async def test_of_values_that_are_read_together_only_the_damaged_one_is_refused(store: Store) -> None:
    for key in (b"a", b"b", b"c"):
        await put(store, key, [key])
    await damage(store, "state", b"b")

    answers = [store.values.get("state", key) for key in (b"a", b"b", b"absent", b"c", b"b")]
    told = await asyncio.gather(*answers, return_exceptions=True)

    assert [type(each) if isinstance(each, Exception) else each for each in told] == [
        [b"a"], StoreError, None, [b"c"], StoreError,
    ]  # fmt: skip


async def test_a_change_of_a_damaged_value_is_told_without_it_and_holds_up_no_other(store: Store) -> None:
    heard: list[ChangeEvent] = []
    store.events.watch([Watch(job=PRICES, namespace=LOGGED)])
    store.events.follow(Watch(namespace=LOGGED), heard.append)
    await put(store, b"a", [1], namespace=LOGGED)
    await damage(store, LOGGED, b"a")
    await put(store, b"a", 2, namespace=LOGGED)
    await put(store, b"b", 3, namespace=LOGGED)
    await until_told()

    changes = [(b"a", None, [1]), (b"a", None, 2), (b"b", None, 3)]
    assert [(event.key, event.old, event.new) for event in heard] == changes
    assert [(event.key, event.old, event.new) for event in await kept(store)] == changes


def read_columns(database: sqlite3.Connection) -> tuple[object, ...]:
    row: tuple[object, ...] = database.execute(
        "SELECT type, value, expires_ms, version, created_ms, updated_ms FROM entry"
    ).fetchone()
    return row


def change_at(database: sqlite3.Connection, now_ms: int, transform: Transform, key: bytes = b"k") -> object:
    return write(database, EntryContext(PLAIN, "global", key, now_ms), transform, NO_EFFECTS)


def put_text(database: sqlite3.Connection, value: bytes, now_ms: int, key: bytes = b"k") -> None:
    change_at(database, now_ms, Replacement(lambda: Put(value)), key)


def expire(database: sqlite3.Connection, at_ms: int, now_ms: int) -> None:
    assert set_expiry(database, EntryContext(PLAIN, "global", b"k", now_ms), at_ms)


def test_every_write_counts_up_the_version_and_keeps_the_moment_of_creation(database: sqlite3.Connection) -> None:
    put_text(database, b"1", 1000)
    assert change_at(database, 2000, partial(put_sum, 0, 1)) == 2
    expire(database, 9000, 3000)
    assert change_at(database, 3500, partial(put_sum, 0, 1)) == 3
    assert read_columns(database) == ("s", b"3", 9000, 4, 1000, 3500), "its expiry stays"
    put_text(database, b"v", 4000)

    assert read_columns(database) == ("s", b"v", None, 5, 1000, 4000)


def test_writing_an_expired_entry_creates_it_anew_with_a_version_never_seen(database: sqlite3.Connection) -> None:
    put_text(database, b"1", 1000)
    expire(database, 2000, 1000)
    put_text(database, b"2", 2500, b"new")
    put_text(database, b"v", 2500)

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
        put_text(database, b"1", 1000)
        if expires_ms:
            expire(database, expires_ms, 1000)
        given = change_at(database, 1500, transform)
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
            change_at(database, 1000, Replacement(lambda: Put(before, expires_ms)))
        found.append((change_at(database, 1500, transform), database.execute("SELECT * FROM entry").fetchall()))

    assert found[0] == found[1]


def add_up(entry: Entry | None) -> Put | Leave:
    """Add 2 to an integer, where the sum fits into 64 bits."""
    number = entry.value if entry else 0
    if type(number) is not int or number > 2**62:
        return Leave("refused")
    return Put(number + 2, KEEP, number + 2)
