"""Load exported entries, or move entries from one namespace to another: all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from spyweb.errors import StoreError
from spyweb.store.encoding import Cell
from spyweb.store.encryption import Codec, Place
from spyweb.store.model.entries import HistoryRules, Loaded, PortableEntry
from spyweb.store.sqlite.changes import EntryContext, Row, is_live
from spyweb.store.sqlite.entries import archive, find_last_version, find_row, put_row

IN_BOTH = """
    SELECT old.key FROM entry AS old JOIN entry AS new ON new.namespace = :new AND new.key = old.key
    WHERE old.namespace = :old AND (old.expires_ms IS NULL OR old.expires_ms > :now)
        AND (new.expires_ms IS NULL OR new.expires_ms > :now)
    ORDER BY old.key LIMIT 1
"""
# The history of a deleted key is not moved if the other namespace has that key: it has its own history.
MOVING = """
    namespace = :old AND key NOT IN (
        SELECT key FROM entry WHERE namespace = :new AND (expires_ms IS NULL OR expires_ms > :now)
    )
"""
# Expired entries are not moved; moved entries replace expired ones, and a history without an entry.
MAKE_ROOM = [
    "DELETE FROM entry WHERE namespace = :old AND expires_ms <= :now",
    "DELETE FROM entry WHERE namespace = :new AND key IN (SELECT key FROM entry WHERE namespace = :old)",
    f"DELETE FROM past WHERE namespace = :new AND key IN (SELECT key FROM past WHERE {MOVING})",
]
# Where the other namespace has the same keys, its own entries are replaced, with their history.
GIVE_WAY = [
    f"DELETE FROM {table} WHERE namespace = :new AND key IN (SELECT key FROM entry WHERE namespace = :old)"
    for table in ("past", "entry")
]
TABLES = ["past", "entry"]  # in this order: once the entries are moved, the other namespace has their keys


def load(
    connection: sqlite3.Connection,
    codec: Codec,
    items: Sequence[PortableEntry],
    replace: bool,
    history: HistoryRules,
    now_ms: int,
) -> Loaded:
    """Write the entries, unless one that is here is to be kept."""
    written = kept = expired = 0
    for item in items:
        entry, context = item.entry, EntryContext(codec, item.namespace, item.key, now_ms)
        row = find_row(connection, item.namespace, item.key)
        live = row if row and is_live(row, now_ms) else None
        if entry.expires_ms is not None and entry.expires_ms <= now_ms:
            expired += 1
        elif live and not replace:
            kept += 1
        else:
            rule = history.get(item.namespace)
            last_version = row.version if row else find_last_version(connection, context) if rule else 0
            version = last_version + 1 if last_version else max(entry.version, 1)
            cell = codec.write(Place(item.namespace, item.key, version), entry.value)
            moments = (entry.created_ms, entry.updated_ms)
            new = Row(*cell, entry.expires_ms, version, *moments, live.rowid if live else 0)
            put_row(connection, context, new, row)
            if live and rule:
                archive(connection, context, live, rule)
            written += 1
    return Loaded(written=written, kept=kept, expired=expired)


def move(connection: sqlite3.Connection, codec: Codec, old: str, new: str, force: bool, now_ms: int) -> int:
    if old == new:
        return 0
    names: dict[str, str | int] = {"old": old, "new": new, "now": now_ms}
    if force:
        for statement in GIVE_WAY:
            connection.execute(statement, names)
    if clash := connection.execute(IN_BOTH, names).fetchone():
        key = clash[0].decode("utf-8", "replace")
        raise StoreError(f"{old} can't be moved to {new}: both have the key {key!r}")
    for statement in MAKE_ROOM:
        connection.execute(statement, names)
    if not codec.is_plain:
        for table in TABLES:
            reseal(connection, table, codec, names)
    moved = [connection.execute(f"UPDATE {table} SET namespace = :new WHERE {MOVING}", names) for table in TABLES]
    return moved[-1].rowcount


def reseal(connection: sqlite3.Connection, table: str, codec: Codec, names: Mapping[str, str | int]) -> None:
    """Encrypt the moved values again, since each is bound to its namespace."""
    old, new = str(names["old"]), str(names["new"])
    rows = connection.execute(f"SELECT key, version, type, value, rowid FROM {table} WHERE {MOVING}", names)
    for key, version, kind, column, rowid in rows.fetchall():
        value = codec.read(Place(old, key, version), Cell(kind, column))
        sealed = codec.write(Place(new, key, version), value)
        connection.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (sealed.column, rowid))
