"""Entries that come from elsewhere: loaded from an export, or moved from one namespace to another.  All or nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from spyweb.errors import StoreError
from spyweb.store.changes import Desk, Row, is_live
from spyweb.store.encoding import Cell
from spyweb.store.protocol import HistoryRules, Item, Loaded
from spyweb.store.recording import archive, find_last_version, find_row, put_row
from spyweb.store.sealing import Codec, Place

IN_BOTH = """
    SELECT old.key FROM entry AS old JOIN entry AS new ON new.namespace = :new AND new.key = old.key
    WHERE old.namespace = :old AND (old.expires_ms IS NULL OR old.expires_ms > :now)
        AND (new.expires_ms IS NULL OR new.expires_ms > :now)
    LIMIT 1
"""
# Expired entries stay behind, and what is moved takes the place of expired entries and of a history without an entry.
MAKE_ROOM = [
    "DELETE FROM entry WHERE namespace = :old AND expires_ms <= :now",
    "DELETE FROM entry WHERE namespace = :new AND key IN (SELECT key FROM entry WHERE namespace = :old)",
    "DELETE FROM past WHERE namespace = :new AND key IN (SELECT key FROM past WHERE namespace = :old)",
]
TABLES = ["entry", "past"]


class Loading(NamedTuple):
    codec: Codec
    items: Sequence[Item]
    replace: bool
    now_ms: int
    history: HistoryRules


def load(connection: sqlite3.Connection, loading: Loading) -> Loaded:
    fates = Counter(load_item(connection, loading, item) for item in loading.items)
    return Loaded(written=fates[Fate.WRITTEN], kept=fates[Fate.KEPT], expired=fates[Fate.EXPIRED])


class Fate(Enum):
    WRITTEN = 0
    KEPT = 1
    EXPIRED = 2


def load_item(connection: sqlite3.Connection, loading: Loading, item: Item) -> Fate:
    desk = Desk(loading.codec, item.namespace, item.key, loading.now_ms)
    rule = loading.history.get(item.namespace)
    row = find_row(connection, item.namespace, item.key)
    live = row if row and is_live(row, loading.now_ms) else None
    fate = fate_of(item, live, loading)
    if fate is Fate.WRITTEN:
        last_version = row.version if row else find_last_version(connection, desk) if rule else 0
        put_row(connection, desk, loaded_row(desk, item, live, last_version))
        if live and rule:
            archive(connection, desk, live, rule)
    return fate


def fate_of(item: Item, live: Row | None, loading: Loading) -> Fate:
    if item.entry.expires_ms is not None and item.entry.expires_ms <= loading.now_ms:
        return Fate.EXPIRED
    return Fate.KEPT if live and not loading.replace else Fate.WRITTEN


def loaded_row(desk: Desk, item: Item, live: Row | None, last_version: int) -> Row:
    entry = item.entry
    version = last_version + 1 if last_version else max(entry.version, 1)
    cell = desk.codec.write(Place(item.namespace, item.key, version), entry.value)
    rowid = live.rowid if live else 0
    return Row(cell.type, cell.column, entry.expires_ms, version, entry.created_ms, entry.updated_ms, rowid)


def move(connection: sqlite3.Connection, codec: Codec, old: str, new: str, now_ms: int) -> int:
    names = {"old": old, "new": new, "now": now_ms}
    if clash := connection.execute(IN_BOTH, names).fetchone():
        raise in_both(old, new, clash[0])
    for statement in MAKE_ROOM:
        connection.execute(statement, names)
    if not codec.is_plain:
        for table in TABLES:
            reseal(connection, table, codec, old, new)
    moved = [
        connection.execute(f"UPDATE {table} SET namespace = :new WHERE namespace = :old", names) for table in TABLES
    ]
    return moved[0].rowcount


def in_both(old: str, new: str, key: bytes) -> StoreError:
    return StoreError(f"{old} can't be moved to {new}: both have the key {key.decode('utf-8', 'replace')!r}")


def reseal(connection: sqlite3.Connection, table: str, codec: Codec, old: str, new: str) -> None:
    """Each value is bound to its namespace."""
    rows = connection.execute(f"SELECT key, version, type, value, rowid FROM {table} WHERE namespace = ?", (old,))
    for key, version, kind, column, rowid in rows.fetchall():
        value = codec.read(Place(old, key, version), Cell(kind, column))
        sealed = codec.write(Place(new, key, version), value)
        connection.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (sealed.column, rowid))
