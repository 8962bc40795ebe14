"""Entries that come from elsewhere: loaded from an export, or moved from one namespace to another.  All or nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from spyweb.errors import StoreError
from spyweb.store.crypto.sealing import Codec, Place
from spyweb.store.encoding import Cell
from spyweb.store.protocol import HistoryRules, Item, Loaded
from spyweb.store.sqlite.bulk import SIZES, Wide
from spyweb.store.sqlite.changes import EntryContext, Row, is_live
from spyweb.store.sqlite.recording import archive, find_last_version, find_row, put_row

IN_BOTH = """
    SELECT old.key FROM entry AS old JOIN entry AS new ON new.namespace = :new AND new.key = old.key
    WHERE old.namespace = :old AND (old.expires_ms IS NULL OR old.expires_ms > :now)
        AND (new.expires_ms IS NULL OR new.expires_ms > :now)
    ORDER BY old.key LIMIT 1
"""
# The history of a key that is gone stays behind where the other namespace has that key: it has its own.
MOVING = """
    namespace = :old AND key NOT IN (
        SELECT key FROM entry WHERE namespace = :new AND (expires_ms IS NULL OR expires_ms > :now)
    )
"""
# Expired entries stay behind, and what is moved takes the place of expired entries and of a history without an entry.
MAKE_ROOM = [
    "DELETE FROM entry WHERE namespace = :old AND expires_ms <= :now",
    "DELETE FROM entry WHERE namespace = :new AND key IN (SELECT key FROM entry WHERE namespace = :old)",
    f"DELETE FROM past WHERE namespace = :new AND key IN (SELECT key FROM past WHERE {MOVING})",
]
TABLES = ["past", "entry"]  # in this order: where the entries have been moved, the other namespace has their keys

FIND_ROWS = Wide(
    """
    SELECT entry.namespace, entry.key, entry.type, NULL, entry.expires_ms, entry.version, entry.created_ms,
        entry.updated_ms, entry.rowid
    FROM (VALUES {rows}) AS wanted CROSS JOIN entry
    ON entry.namespace = wanted.column1 AND entry.key = wanted.column2
    """,
    columns=2,
)
# OR FAIL: what fails undoes the whole load anyway (adding.py).
ADD_ROWS = Wide(
    """
    INSERT OR FAIL INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    SELECT * FROM (VALUES {rows}) WHERE column2 IS NOT NULL
    """,
    columns=8,
)
SET_ROWS = Wide(
    """
    UPDATE OR FAIL entry SET type = new.column1, value = new.column2, expires_ms = new.column3, version = new.column4,
        created_ms = new.column5, updated_ms = new.column6
    FROM (VALUES {rows}) AS new WHERE entry.rowid = new.column7
    """,
    columns=7,
)
DROP_ROW = "DELETE FROM entry WHERE rowid = ?"


class Loading(NamedTuple):
    codec: Codec
    items: Sequence[Item]
    replace: bool
    now_ms: int
    history: HistoryRules


def load(connection: sqlite3.Connection, loading: Loading) -> Loaded:
    fates: Counter[LoadFate] = Counter()
    for some in stretches(loading.items):
        if any(loading.history.get(item.namespace) for item in some):
            fates.update(load_item(connection, loading, item) for item in some)
        else:
            fates.update(load_several(connection, loading, some))
    return Loaded(written=fates[LoadFate.WRITTEN], kept=fates[LoadFate.KEPT], expired=fates[LoadFate.EXPIRED])


def stretches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """As many as a statement takes, none of them twice: the second is to find what the first has written."""
    some: dict[tuple[str, bytes], Item] = {}
    for item in items:
        place = (item.namespace, item.key)
        if place in some or len(some) == SIZES[-1]:
            yield list(some.values())
            some = {}
        some[place] = item
    yield list(some.values())


def load_several(connection: sqlite3.Connection, loading: Loading, items: Sequence[Item]) -> list[LoadFate]:
    """Those whose past is not kept, so that nobody needs the values that are there."""
    rows = find_rows(connection, items)
    arrivals = [arrive(loading, item, rows.get((item.namespace, item.key))) for item in items]
    write_several(connection, loading, [arrival for arrival in arrivals if arrival.fate is LoadFate.WRITTEN])
    return [arrival.fate for arrival in arrivals]


def write_several(connection: sqlite3.Connection, loading: Loading, arrivals: Sequence[Arrival]) -> None:
    added, changed, gone = [], [], []
    for item, row, live, _fate in arrivals:
        context = EntryContext(loading.codec, item.namespace, item.key, loading.now_ms)
        new = loaded_row(context, item, live, row.version if row else 0)
        if live:
            changed.append(new)
        else:
            added.append((item.namespace, item.key, *new[:-1]))
            gone += [(row.rowid,)] if row else []
    connection.executemany(DROP_ROW, gone)
    ADD_ROWS.write(connection, added)
    SET_ROWS.write(connection, changed)


def find_rows(connection: sqlite3.Connection, items: Sequence[Item]) -> dict[tuple[str, bytes], Row]:
    """Without their values, which may be large."""
    found = FIND_ROWS.execute(connection, [(item.namespace, item.key) for item in items])
    return {(namespace, key): Row(*cells) for namespace, key, *cells in found}


class LoadFate(Enum):
    WRITTEN = 0
    KEPT = 1
    EXPIRED = 2


class Arrival(NamedTuple):
    """An item, and what it meets."""

    item: Item
    row: Row | None  # expired or not
    live: Row | None
    fate: LoadFate


def arrive(loading: Loading, item: Item, row: Row | None) -> Arrival:
    live = row if row and is_live(row, loading.now_ms) else None
    return Arrival(item, row, live, fate_of(item, live, loading))


def fate_of(item: Item, live: Row | None, loading: Loading) -> LoadFate:
    if item.entry.expires_ms is not None and item.entry.expires_ms <= loading.now_ms:
        return LoadFate.EXPIRED
    return LoadFate.KEPT if live and not loading.replace else LoadFate.WRITTEN


def load_item(connection: sqlite3.Connection, loading: Loading, item: Item) -> LoadFate:
    context = EntryContext(loading.codec, item.namespace, item.key, loading.now_ms)
    rule = loading.history.get(item.namespace)
    _, row, live, fate = arrive(loading, item, find_row(connection, item.namespace, item.key))
    if fate is LoadFate.WRITTEN:
        last_version = row.version if row else find_last_version(connection, context) if rule else 0
        put_row(connection, context, loaded_row(context, item, live, last_version))
        if live and rule:
            archive(connection, context, live, rule)
    return fate


def loaded_row(context: EntryContext, item: Item, live: Row | None, last_version: int) -> Row:
    entry = item.entry
    version = last_version + 1 if last_version else max(entry.version, 1)
    cell = context.codec.write(Place(item.namespace, item.key, version), entry.value)
    rowid = live.rowid if live else 0
    return Row(cell.type, cell.column, entry.expires_ms, version, entry.created_ms, entry.updated_ms, rowid)


def move(connection: sqlite3.Connection, codec: Codec, old: str, new: str, now_ms: int) -> int:
    if old == new:
        return 0
    names: dict[str, str | int] = {"old": old, "new": new, "now": now_ms}
    if clash := connection.execute(IN_BOTH, names).fetchone():
        raise in_both(old, new, clash[0])
    for statement in MAKE_ROOM:
        connection.execute(statement, names)
    if not codec.is_plain:
        for table in TABLES:
            reseal(connection, table, codec, names)
    moved = [connection.execute(f"UPDATE {table} SET namespace = :new WHERE {MOVING}", names) for table in TABLES]
    return moved[-1].rowcount


def in_both(old: str, new: str, key: bytes) -> StoreError:
    return StoreError(f"{old} can't be moved to {new}: both have the key {key.decode('utf-8', 'replace')!r}")


def reseal(connection: sqlite3.Connection, table: str, codec: Codec, names: Mapping[str, str | int]) -> None:
    """Each value is bound to its namespace."""
    old, new = str(names["old"]), str(names["new"])
    rows = connection.execute(f"SELECT key, version, type, value, rowid FROM {table} WHERE {MOVING}", names)
    for key, version, kind, column, rowid in rows.fetchall():
        value = codec.read(Place(old, key, version), Cell(kind, column))
        sealed = codec.write(Place(new, key, version), value)
        connection.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (sealed.column, rowid))
