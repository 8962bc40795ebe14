"""Store keys, the sessions of browsers and the audit trail in SQLite."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from sys import maxsize
from typing import Any

import msgspec
from msgspec.structs import astuple

from spyweb.store.model.access import AccessKey, AuditLine, BrowserSession, KeyId, NewAuditLine, NewKey
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import StorePart, columns_of, insert_into, on_writer, read_as

COLUMNS = columns_of(AccessKey)
SCOPES, JOBS = (AccessKey.__struct_fields__.index(name) for name in ("scopes", "jobs"))
ADD = f"""
    INSERT INTO access_key (name, handle, hash, scopes, jobs, created_ms) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING {COLUMNS}
"""
ADD_SESSION = """
    INSERT INTO browser_session (hash, access_key, created_ms, seen_ms)
    SELECT ?1, ?2, ?3, ?4 WHERE CAST(?2 AS bigint) IS NULL OR EXISTS (SELECT 1 FROM access_key WHERE id = ?2)
    ON CONFLICT DO NOTHING
"""
MAKE_LINK_KEY = "INSERT INTO link_key (id, key) VALUES (1, ?) ON CONFLICT DO NOTHING"
ADD_LINE = insert_into("audit", columns_of(NewAuditLine))
LIST_LINES = f"SELECT {columns_of(AuditLine)} FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"


class AccessKeys(StorePart):
    """Reads on the writer's connection: there are few keys, and they are read once."""

    @on_writer(OpKind.READ)
    def all(self, connection: sqlite3.Connection) -> list[AccessKey]:
        """Return the keys, by name."""
        return [read_key(row) for row in connection.execute(f"SELECT {COLUMNS} FROM access_key ORDER BY name")]

    @on_writer(OpKind.WRITE, rings=True)
    def add(self, connection: sqlite3.Connection, key: NewKey) -> AccessKey | None:
        """Add a key; give None where one has this name or handle."""
        scopes, jobs = (msgspec.json.encode(texts).decode() for texts in (key.scopes, key.jobs))
        values = (key.name, key.handle, key.hash, scopes, jobs, key.created_ms)
        added = [read_key(row) for row in connection.execute(ADD, values).fetchall()]
        return added[0] if added else None

    @on_writer(OpKind.WRITE, rings=True)
    def remove(self, connection: sqlite3.Connection, name: str) -> bool:
        """Remove a key, and the sessions that began with it; give False where there is none."""
        return connection.execute("DELETE FROM access_key WHERE name = ?", (name,)).rowcount > 0

    @on_writer(OpKind.WRITE)
    def used(self, connection: sqlite3.Connection, key: KeyId, at_ms: int) -> None:
        """Note that a key was used."""
        connection.execute("UPDATE access_key SET used_ms = ?2 WHERE id = ?1", (key, at_ms))

    @on_writer(OpKind.READ)
    def sessions(self, connection: sqlite3.Connection) -> list[BrowserSession]:
        """Return the sessions, the one seen last at the end."""
        rows = connection.execute(
            "SELECT hash, access_key, created_ms, seen_ms FROM browser_session ORDER BY seen_ms, hash"
        )
        return [read_as(BrowserSession, row) for row in rows]

    @on_writer(OpKind.WRITE, rings=True)
    def add_session(self, connection: sqlite3.Connection, session: BrowserSession) -> None:
        """Add a session; nothing where its key was removed."""
        connection.execute(ADD_SESSION, astuple(session))

    @on_writer(OpKind.WRITE)
    def session_seen(self, connection: sqlite3.Connection, hash_: bytes, at_ms: int) -> None:
        """Note that a session was used; nothing where it has ended, maybe at another node."""
        connection.execute("UPDATE browser_session SET seen_ms = ?2 WHERE hash = ?1", (hash_, at_ms))

    @on_writer(OpKind.SEVERAL, rings=True)
    def end_sessions(self, connection: sqlite3.Connection, hashes: list[bytes]) -> None:
        connection.executemany("DELETE FROM browser_session WHERE hash = ?", [(each,) for each in hashes])

    @on_writer(OpKind.SEVERAL)
    def link_key(self, connection: sqlite3.Connection) -> bytes:
        """Return the secret that signs links in messages, the same for ever; it is made at the first call."""
        connection.execute(MAKE_LINK_KEY, (secrets.token_bytes(32),))
        key: bytes = connection.execute("SELECT key FROM link_key").fetchone()[0]
        return key


def read_key(row: Sequence[Any]) -> AccessKey:
    scopes, jobs = msgspec.json.decode(row[SCOPES]), msgspec.json.decode(row[JOBS])
    return read_as(AccessKey, row, scopes=scopes, jobs=jobs)


class AuditTrail(StorePart):
    """Lists on the writer's connection, after the latest additions.  A trigger of its table deletes old rows."""

    @on_writer(OpKind.WRITE)
    def add(self, connection: sqlite3.Connection, line: NewAuditLine) -> None:
        connection.execute(ADD_LINE, astuple(line))

    @on_writer(OpKind.READ)
    def list(self, connection: sqlite3.Connection, *, limit: int, before: int | None = None) -> list[AuditLine]:
        """Return lines, newest first, older than the one with this id."""
        below = maxsize if before is None else before
        return [read_as(AuditLine, row) for row in connection.execute(LIST_LINES, (below, limit))]
