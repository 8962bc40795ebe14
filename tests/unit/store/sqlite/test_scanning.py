"""What SQLite alone has to get right: ranges of keys, leaps over namespaces, and bounds."""

from __future__ import annotations

import sqlite3
from functools import partial

import pytest

from spyweb.model import HistoryRule
from spyweb.store.encryption import PLAIN
from spyweb.store.model.entries import Order, Put, Replacement
from spyweb.store.sqlite import scanning
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.entries import NO_EFFECTS, WriteEffects, write
from spyweb.store.sqlite.scanning import KeyRange, find_history, find_page, gather
from spyweb.store.sqlite.transfer import move

NOW = 5_000


def put(database: sqlite3.Connection, key: bytes, namespace: str = "state") -> None:
    write(database, EntryContext(PLAIN, namespace, key, NOW), Replacement(lambda: Put(b"v")), NO_EFFECTS)


@pytest.mark.parametrize(
    ("prefix", "least", "found"),
    [
        (b"b", b"b2", [b"b2", b"b3", b"b\xff\xff"]),
        (b"b", b"a", [b"b1", b"b2", b"b3", b"b\xff\xff"]),
        (b"b\xff", b"", [b"b\xff\xff"]),
        (b"", b"b3", [b"b3", b"b\xff\xff", b"c"]),
    ],
)
def test_a_range_goes_from_its_least_key_to_the_end_of_its_prefix(
    database: sqlite3.Connection, prefix: bytes, least: bytes, found: list[bytes]
) -> None:
    for key in (b"a", b"b1", b"b2", b"b3", b"b\xff\xff", b"c"):
        put(database, key)
    items = gather(database, PLAIN, KeyRange("state", prefix, NOW, least), list, Order.KEY, None)

    assert [key for key, _ in items] == found


def test_a_page_of_an_export_ends_with_the_value_that_fills_it(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "PAGE_BYTES", 3)
    for number in range(5):
        put(database, b"k%d" % number)
    first = find_page(database, PLAIN, None, 0, NOW)
    second = find_page(database, PLAIN, None, first[-1][1], NOW)
    assert [[each.key for each, _ in page] for page in (first, second)] == [[b"k0", b"k1", b"k2"], [b"k3", b"k4"]]
    assert find_page(database, PLAIN, None, second[-1][1], NOW) == []


def test_a_history_without_an_entry_gives_way_to_that_of_an_entry_that_is_moved_there(
    database: sqlite3.Connection,
) -> None:
    for namespace, values in (("job:new", (b"forgotten", b"deleted")), ("job:old", (b"first", b"second"))):
        for value in values:
            context = EntryContext(PLAIN, namespace, b"a", NOW)
            write(database, context, Replacement(partial(Put, value)), WriteEffects(history=HistoryRule(versions=5)))
        if namespace == "job:new":
            database.execute("DELETE FROM entry")
    move(database, PLAIN, "job:old", "job:new", False, NOW)
    found = find_history(database, EntryContext(PLAIN, "job:new", b"a", NOW), None, None)
    assert [each.value for each in found] == [b"second", b"first"]
