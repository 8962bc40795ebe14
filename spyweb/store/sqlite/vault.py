"""Check the key of a database with encrypted values, and rewrite them for another; on a connection's thread."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spyweb.errors import StoreError
from spyweb.store.encoding import Cell
from spyweb.store.encryption import PLAIN, Codec, Place, SealingCodec
from spyweb.store.sqlite.damage import has_table

KNOWN_PLACE, KNOWN_VALUE = Place("", b"", 0), b"spyweb"
PAGE_ROWS = 1000
REMAINS = "remains"  # an empty table: it says that free pages still contain old values

# Where values are stored: table, then the columns of the row's number, the version, the type and the value.
VALUES = [
    ("entry", "rowid", "version", "type", "value"),
    ("past", "rowid", "version", "type", "value"),
    ("event", "id", "old_version", "old_type", "old_value"),
    ("event", "id", "new_version", "new_type", "new_value"),
]


def find_seal(connection: sqlite3.Connection) -> Cell | None:
    if not has_table(connection, "seal"):
        return None
    row = connection.execute("SELECT type, value FROM seal").fetchone()
    return Cell(*row) if row else None


def check_key(connection: sqlite3.Connection, path: Path | str, codec: Codec) -> None:
    """Raise StoreError unless the values can be read with this codec, or have not been encrypted yet."""
    seal = find_seal(connection)
    if seal is None:
        return
    if not isinstance(codec, SealingCodec):
        raise StoreError(f"{path}: its values are encrypted, and no key is given: see [store] key_file")
    try:
        codec.read(KNOWN_PLACE, seal)
    except StoreError as error:
        raise StoreError(f"{path}: its values are encrypted with another key than this; nothing was changed") from error


def codec_of(connection: sqlite3.Connection, codec: Codec) -> Codec:
    """Return the codec of the stored values: a key that was just set has not encrypted any yet."""
    return PLAIN if find_seal(connection) is None else codec


def encrypt_first(connection: sqlite3.Connection, codec: Codec) -> None:
    """Encrypt the values that were written before there was a key."""
    if not codec.is_plain and find_seal(connection) is None:
        rewrite(connection, PLAIN, codec)


def rewrite(connection: sqlite3.Connection, old: Codec, new: Codec) -> None:
    """Rewrite all values, or none.  The caller then calls `purge`."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        rewrite_values(connection, old, new)
        connection.execute(f"CREATE TABLE IF NOT EXISTS {REMAINS} (id)")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def rewrite_values(connection: sqlite3.Connection, old: Codec, new: Codec) -> None:
    """Rewrite all values in the open transaction."""
    for columns in VALUES:
        rewrite_table(connection, old, new, columns)
    connection.execute("DELETE FROM recording")  # of runs: not worth rewriting
    connection.execute("DELETE FROM seal")
    if isinstance(new, SealingCodec):
        connection.execute("INSERT INTO seal VALUES (1, ?, ?)", new.write(KNOWN_PLACE, KNOWN_VALUE))


def purge(connection: sqlite3.Connection) -> bool:
    """Remove values as they were before a rewrite from the file; return whether none is left.

    It may have been interrupted, so each opening calls it again.  Raises sqlite3.Error, for instance on a full disk.
    """
    if not has_table(connection, REMAINS):
        return True
    connection.execute("VACUUM")
    is_held_up, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not is_held_up:  # by a reader
        connection.execute(f"DROP TABLE {REMAINS}")
    return not is_held_up


def rewrite_table(connection: sqlite3.Connection, old: Codec, new: Codec, columns: tuple[str, ...]) -> None:
    table, number, version, kind, value = columns
    select = f"""
        SELECT {number}, namespace, key, {version}, {kind}, {value} FROM {table}
        WHERE {number} > ? AND {version} IS NOT NULL ORDER BY {number} LIMIT {PAGE_ROWS}
    """
    after = 0
    while rows := connection.execute(select, (after,)).fetchall():
        after = rows[-1][0]
        rewritten = []
        for row in rows:
            place = Place(*row[1:4])
            rewritten.append((new.write(place, old.read(place, Cell(*row[4:]))).column, row[0]))
        connection.executemany(f"UPDATE {table} SET {value} = ? WHERE {number} = ?", rewritten)
