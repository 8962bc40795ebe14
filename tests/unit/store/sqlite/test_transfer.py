"""Entries that come from elsewhere, on a database: their versions, their history, and what they are bound to."""

from __future__ import annotations

import sqlite3

import pytest

from spyweb.errors import StoreError
from spyweb.model import HistoryRule
from spyweb.store.crypto.sealing import PLAIN, Codec, codec_for
from spyweb.store.model.entries import NO_HISTORY, Entry, HistoryRules, Loaded, PortableEntry, Put, Replacement
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.entries import WriteEffects, find_entry, write
from spyweb.store.sqlite.scanning import find_history, find_version
from spyweb.store.sqlite.transfer import Loading, load, move

NOW = 5_000
OLD, NEW = "job:old", "job:new"
RULES: HistoryRules = {OLD: HistoryRule(versions=5), NEW: HistoryRule(versions=5)}
SEALED = codec_for(bytes(range(32)))


def item(key: bytes, value: bytes = b"loaded", **changes: int | None) -> PortableEntry:
    entry = Entry(value=value, version=1, created_ms=1_000, updated_ms=2_000)
    return PortableEntry(namespace=OLD, key=key, entry=replace_in(entry, **changes))


def replace_in(entry: Entry, **changes: int | None) -> Entry:
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    return Entry(**(fields | changes))


def put(
    database: sqlite3.Connection, key: bytes, value: bytes = b"v", *, at: int = NOW, namespace: str = OLD,
    codec: Codec = PLAIN, expires_ms: int | None = None,
) -> None:  # fmt: skip
    effects = WriteEffects(history=RULES[namespace])
    write(database, EntryContext(codec, namespace, key, at), Replacement(lambda: Put(value, expires_ms)), effects)


def take_in(
    database: sqlite3.Connection, *items: PortableEntry, keep: bool = False, history: HistoryRules = NO_HISTORY
) -> Loaded:
    return load(database, Loading(PLAIN, items, not keep, NOW, history))


def entry(database: sqlite3.Connection, key: bytes, namespace: str = OLD, codec: Codec = PLAIN) -> Entry | None:
    return find_entry(database, EntryContext(codec, namespace, key, NOW))


def past(database: sqlite3.Connection, key: bytes, namespace: str = OLD, codec: Codec = PLAIN) -> list[object]:
    """Every version that there is, newest first."""
    found = find_history(database, EntryContext(codec, namespace, key, NOW), None, None)
    return [each.value for each in found]


# Loading


def test_an_entry_keeps_its_own_moments(database: sqlite3.Connection) -> None:
    take_in(database, item(b"a", expires_ms=9_000))
    assert entry(database, b"a") == Entry(
        value=b"loaded", version=1, created_ms=1_000, updated_ms=2_000, expires_ms=9_000
    )


def test_it_keeps_its_version_where_none_is_here(database: sqlite3.Connection) -> None:
    take_in(database, item(b"a", version=7), item(b"b", version=0))
    assert [found.version for key in (b"a", b"b") if (found := entry(database, key))] == [7, 1]


def test_over_one_that_is_here_the_version_counts_on(database: sqlite3.Connection) -> None:
    put(database, b"a")
    put(database, b"a")
    take_in(database, item(b"a", version=70))
    found = entry(database, b"a")
    assert found
    assert (found.value, found.version) == (b"loaded", 3)


def test_over_one_that_is_gone_but_has_a_history_it_counts_on_too(database: sqlite3.Connection) -> None:
    put(database, b"a")
    put(database, b"a", b"last")
    database.execute("DELETE FROM entry")
    take_in(database, item(b"a"), history=RULES)
    found = entry(database, b"a")
    assert found
    assert found.version == 2, "version 1 is history"


def test_what_is_replaced_becomes_history_where_that_is_kept(database: sqlite3.Connection) -> None:
    put(database, b"a", b"mine")
    take_in(database, item(b"a"), history=RULES)
    assert past(database, b"a") == [b"loaded", b"mine"]


def test_what_is_here_stays_where_nothing_is_to_be_replaced(database: sqlite3.Connection) -> None:
    put(database, b"a", b"mine")
    assert take_in(database, item(b"a"), item(b"b"), keep=True) == Loaded(written=1, kept=1, expired=0)
    assert past(database, b"a") == [b"mine"]


def test_what_has_expired_here_stands_in_nobodys_way(database: sqlite3.Connection) -> None:
    put(database, b"a", b"mine", at=1_000, expires_ms=NOW)
    assert take_in(database, item(b"a"), keep=True, history=RULES).written == 1
    assert past(database, b"a") == [b"loaded"]


def test_what_has_expired_on_the_way_is_left_out(database: sqlite3.Connection) -> None:
    put(database, b"a", b"mine")
    assert take_in(database, item(b"a", expires_ms=NOW)) == Loaded(written=0, kept=0, expired=1)
    assert past(database, b"a") == [b"mine"]


# Moving


@pytest.mark.parametrize("codec", [PLAIN, SEALED], ids=["plain", "sealed"])
def test_what_is_moved_can_be_read_where_it_is_now_with_its_history(database: sqlite3.Connection, codec: Codec) -> None:
    put(database, b"a", b"first", codec=codec)
    put(database, b"a", b"second", codec=codec)

    assert move(database, codec, OLD, NEW, False, NOW) == 1

    assert past(database, b"a", NEW, codec) == [b"second", b"first"]
    assert past(database, b"a", OLD, codec) == []


def test_nothing_moves_over_a_live_entry(database: sqlite3.Connection) -> None:
    put(database, b"a")
    put(database, b"b")
    put(database, b"b", namespace=NEW)
    with pytest.raises(StoreError, match=r"^job:old can't be moved to job:new: both have the key 'b'$"):
        move(database, PLAIN, OLD, NEW, False, NOW)
    assert entry(database, b"a", OLD)


@pytest.mark.parametrize("expired", [OLD, NEW])
def test_an_expired_entry_is_in_nobodys_way(database: sqlite3.Connection, expired: str) -> None:
    live = NEW if expired == OLD else OLD
    put(database, b"a", b"live", namespace=live)
    put(database, b"a", b"expired", namespace=expired, at=1_000, expires_ms=NOW)

    move(database, PLAIN, OLD, NEW, False, NOW)

    found = entry(database, b"a", NEW)
    assert found
    assert found.value == b"live"
    assert database.execute("SELECT count(*) FROM entry WHERE namespace = ?", (OLD,)).fetchone() == (0,)


def test_a_history_without_an_entry_gives_way_to_that_of_an_entry(database: sqlite3.Connection) -> None:
    put(database, b"a", b"forgotten", namespace=NEW)
    put(database, b"a", b"deleted", namespace=NEW)
    database.execute("DELETE FROM entry")
    put(database, b"a", b"first")
    put(database, b"a", b"second")

    move(database, PLAIN, OLD, NEW, False, NOW)

    assert past(database, b"a", NEW) == [b"second", b"first"]


def test_the_history_of_a_key_that_is_gone_stays_behind_where_the_other_has_that_key(
    database: sqlite3.Connection,
) -> None:
    put(database, b"a", b"gone")
    put(database, b"a", b"gone too")
    database.execute("DELETE FROM entry")
    put(database, b"a", b"there", namespace=NEW)

    assert move(database, PLAIN, OLD, NEW, False, NOW) == 0

    assert past(database, b"a", NEW) == [b"there"]
    assert past(database, b"a", OLD) == [b"gone"]


def test_to_where_it_is_nothing_moves(database: sqlite3.Connection) -> None:
    put(database, b"a", b"first")
    put(database, b"a", b"second")

    assert move(database, PLAIN, OLD, OLD, False, NOW) == 0

    assert past(database, b"a") == [b"second", b"first"]
    assert find_version(database, EntryContext(PLAIN, OLD, b"a", NOW), 1)
