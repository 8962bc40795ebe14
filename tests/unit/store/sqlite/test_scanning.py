"""What SQLite alone has to get right: pages, cursors that stay behind, leaps over namespaces."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from spyweb.errors import TooLarge
from spyweb.model import HistoryRule
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.model.entries import Entry, Order, PortableEntry, Put, Replacement
from spyweb.store.patterns import compile_pattern
from spyweb.store.sqlite import scanning
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.entries import WriteEffects, write
from spyweb.store.sqlite.scanning import (
    ExportedKeys,
    ExportPage,
    KeyRange,
    find_keys,
    find_namespaces,
    find_page,
    gather,
)

NOW = 5_000
SMALL = 10  # bytes that no answer here fits into

Ask = Callable[[sqlite3.Connection], object]


@pytest.fixture
def five(database: sqlite3.Connection) -> sqlite3.Connection:
    """A database with five entries."""
    for number in range(5):
        put(database, b"k%d" % number)
    return database


def put(
    database: sqlite3.Connection, key: bytes, value: bytes = b"v", *, namespace: str = "state", keep: bool = False
) -> None:
    """Write an entry; with `keep` what was there is history."""
    effects = WriteEffects(history=HistoryRule(versions=5) if keep else None)
    write(database, EntryContext(PLAIN, namespace, key, NOW), Replacement(lambda: Put(value)), effects)
    database.commit()


def export(database: sqlite3.Connection) -> Iterator[ExportPage]:
    after: int | None = None
    while after != 0:
        page = find_page(database, PLAIN, None, after or 0, NOW)
        yield page
        after = page.after


def keys_of(page: ExportPage) -> list[bytes]:
    return [item.key for item in page.items]


# Pages


def test_a_page_ends_with_its_last_row(five: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "PAGE_ROWS", 2)
    assert [keys_of(page) for page in export(five)] == [[b"k0", b"k1"], [b"k2", b"k3"], [b"k4"], []]


def test_a_page_ends_with_the_value_that_fills_it(five: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "PAGE_BYTES", 100)
    put(five, b"k1", b"x" * 100)
    pages = [keys_of(page) for page in export(five)]
    assert pages == [[b"k0", b"k1"], [b"k2", b"k3", b"k4"], []]


def test_a_value_larger_than_a_page_has_one_of_its_own(
    five: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "PAGE_BYTES", 1)
    assert [keys_of(page) for page in export(five)] == [[b"k0"], [b"k1"], [b"k2"], [b"k3"], [b"k4"], []]


def test_a_page_holds_what_was_asked_for(five: sqlite3.Connection) -> None:
    put(five, b"mine", namespace="job:a")
    put(five, b"other", namespace="job:b")

    assert keys_of(find_page(five, PLAIN, ["job:a"], 0, NOW)) == [b"mine"]
    assert keys_of(find_page(five, PLAIN, ["job:a", "job:b"], 0, NOW)) == [b"mine", b"other"]
    assert keys_of(find_page(five, PLAIN, [], 0, NOW)) == []


# The keys that an export has told


def item(key: bytes, created_ms: int) -> PortableEntry:
    entry = Entry(value=1, version=1, created_ms=created_ms, updated_ms=created_ms)
    return PortableEntry(namespace="state", key=key, entry=entry)


def test_a_key_that_is_met_again_further_on_was_told() -> None:
    told = ExportedKeys(newest=10, now_ms=NOW)

    assert told.is_first(item(b"a", 1), 1)
    assert told.is_first(item(b"b", 1), 2)
    assert not told.is_first(item(b"a", NOW), 11)


def test_a_key_that_is_new_since_the_export_began_is_told_once() -> None:
    told = ExportedKeys(newest=10, now_ms=NOW)

    assert told.is_first(item(b"c", NOW), 11)
    assert not told.is_first(item(b"c", NOW), 12)
    assert told.is_first(item(b"d", NOW), 13)


def test_a_row_that_took_the_number_of_a_deleted_one_is_known_by_its_age() -> None:
    told = ExportedKeys(newest=10, now_ms=NOW)
    told.is_first(item(b"a", 1), 1)

    assert not told.is_first(item(b"a", NOW), 10)


def test_the_same_key_of_another_namespace_is_another_key() -> None:
    told = ExportedKeys(newest=0, now_ms=NOW)
    other = PortableEntry(namespace="global", key=b"a", entry=item(b"a", NOW).entry)

    assert told.is_first(item(b"a", NOW), 1)
    assert told.is_first(other, 2)


# Cursors


@pytest.mark.parametrize(
    "ask",
    [
        lambda it: find_keys(it, "state", compile_pattern(b"*"), NOW, SMALL),
        lambda it: gather(it, PLAIN, KeyRange("state", b"", NOW), list, Order.KEY, SMALL),
        lambda it: gather(it, PLAIN, KeyRange("state", b"", NOW), list, Order.CREATED, SMALL),
        lambda it: find_namespaces(it, "", NOW, SMALL),
        lambda it: scanning.find_history(it, EntryContext(PLAIN, "state", b"k0", NOW), None, SMALL),
    ],
    ids=["keys", "by key", "by creation", "namespaces", "history"],
)
def test_an_answer_that_is_too_large_does_not_hold_up_what_is_read_next(five: sqlite3.Connection, ask: Ask) -> None:
    for version in range(3):
        put(five, b"k0", b"%d" % version, keep=True)
        put(five, b"k", namespace=f"scope:{version}")
    with pytest.raises(TooLarge) as error:  # which holds on to the frames, and what is in them
        ask(five)

    assert not five.in_transaction
    five.execute("PRAGMA journal_mode = DELETE")  # which is refused as long as a question is open
    assert "larger" in str(error.value)


@pytest.mark.parametrize("order", Order)
def test_who_takes_only_the_first_ones_does_not_hold_up_what_is_read_next(
    five: sqlite3.Connection, order: Order
) -> None:
    first = gather(five, PLAIN, KeyRange("state", b"", NOW), lambda found: list(islice(found, 2)), order, None)

    assert [key for key, _ in first] == [b"k0", b"k1"]
    five.execute("PRAGMA journal_mode = DELETE")


# Ranges


def test_a_range_goes_from_its_least_key_to_the_end_of_its_prefix(database: sqlite3.Connection) -> None:
    for key in (b"a", b"b1", b"b2", b"b3", b"b\xff\xff", b"c"):
        put(database, key)

    def keys(prefix: bytes, least: bytes) -> list[bytes]:
        found = gather(database, PLAIN, KeyRange("state", prefix, NOW, least), list, Order.KEY, None)
        return [key for key, _ in found]

    assert keys(b"b", b"b2") == [b"b2", b"b3", b"b\xff\xff"]
    assert keys(b"b", b"a") == [b"b1", b"b2", b"b3", b"b\xff\xff"]
    assert keys(b"b\xff", b"") == [b"b\xff\xff"]
    assert keys(b"", b"b3") == [b"b3", b"b\xff\xff", b"c"]


def test_order_of_creation_is_not_that_of_keys(database: sqlite3.Connection) -> None:
    for key in (b"c", b"a", b"b"):
        put(database, key)
    put(database, b"c", b"later")  # the same entry

    found = gather(database, PLAIN, KeyRange("state", b"", NOW), list, Order.CREATED, None)
    assert [key for key, _ in found] == [b"c", b"a", b"b"]


def test_namespaces_are_found_without_a_look_at_every_row(database: sqlite3.Connection) -> None:
    put(database, b"k", namespace="scope:b")
    put(database, b"k", namespace="scope:a")
    put(database, b"k", namespace="state")
    for number in range(2_000):
        put_row = (number.to_bytes(2, "big"),)
        database.execute("INSERT INTO entry VALUES ('scope:a', ?, 's', 'v', NULL, 1, 1, 1)", put_row)
    steps: list[None] = []
    database.set_progress_handler(lambda: steps.append(None), 100)

    assert find_namespaces(database, "scope:", NOW, None) == ["scope:a", "scope:b"]
    assert len(steps) < 20


def test_an_empty_database_has_no_newest_row(database: sqlite3.Connection) -> None:
    assert scanning.find_newest(database) == 0
    put(database, b"k")
    assert scanning.find_newest(database) == 1
