"""What SQLite alone has to get right: ranges of keys, leaps over namespaces, and bounds."""

from __future__ import annotations

import sqlite3

import pytest

from spyweb.errors import TooLarge
from spyweb.model import MIB
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.model.entries import Order, Put, Replacement
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.entries import NO_EFFECTS, write
from spyweb.store.sqlite.scanning import ITEM_COST, KeyRange, find_namespaces, gather, within

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


def test_namespaces_are_found_without_a_look_at_every_row(database: sqlite3.Connection) -> None:
    for namespace in ("scope:b", "scope:a", "state"):
        put(database, b"k", namespace)
    for number in range(2_000):
        put_row = (number.to_bytes(2, "big"),)
        database.execute("INSERT INTO entry VALUES ('scope:a', ?, 's', 'v', NULL, 1, 1, 1)", put_row)
    steps: list[None] = []
    database.set_progress_handler(lambda: steps.append(None), 100)

    assert find_namespaces(database, "scope:", NOW, None) == ["scope:a", "scope:b"]
    assert len(steps) < 20


def test_items_are_given_as_long_as_they_fit() -> None:
    texts = [b"a", b"bb", b"ccc"]
    exactly = 3 * ITEM_COST + 6

    assert list(within(exactly, texts, len)) == list(within(None, texts, len)) == texts
    with pytest.raises(TooLarge):
        list(within(exactly - 1, texts, len))


def test_no_more_is_taken_than_what_shows_that_it_is_too_much() -> None:
    texts = iter([b"x" * MIB] * 10)

    with pytest.raises(TooLarge, match=r"^the answer would be larger than 2.5 MB$"):
        list(within(5 * MIB // 2, texts, len))

    assert len(list(texts)) == 7
