"""Store keys and the sessions of browsers in SQLite."""

from __future__ import annotations

import secrets
import sqlite3
from asyncio import Future

import msgspec

from spyweb.store.model.access import AccessKey, BrowserSession, KeyId, NewKey, Scope
from spyweb.store.sqlite.batch import BatchQueue, OpKind

COLUMNS = "id, name, handle, hash, scopes, jobs, created_ms, used_ms"
ALL = f"SELECT {COLUMNS} FROM access_key ORDER BY name"
ADD = f"""
    INSERT OR IGNORE INTO access_key (name, handle, hash, scopes, jobs, created_ms) VALUES (?, ?, ?, ?, ?, ?)
    RETURNING {COLUMNS}
"""
REMOVE = "DELETE FROM access_key WHERE name = ?"
USED = "UPDATE access_key SET used_ms = ?2 WHERE id = ?1"
SESSIONS = "SELECT hash, access_key, created_ms, seen_ms FROM browser_session ORDER BY seen_ms, hash"
PUT_SESSION = """
    INSERT OR REPLACE INTO browser_session (hash, access_key, created_ms, seen_ms)
    SELECT ?1, ?2, ?3, ?4 WHERE ?2 IS NULL OR EXISTS (SELECT 1 FROM access_key WHERE id = ?2)
"""
END_SESSION = "DELETE FROM browser_session WHERE hash = ?"

MAKE_LINK_KEY = "INSERT OR IGNORE INTO link_key (id, key) VALUES (1, ?)"
LINK_KEY = "SELECT key FROM link_key"
LINK_KEY_BYTES = 32

KeyRow = tuple[int, str, str, bytes, str, str, int, int | None]


class AccessKeys:
    """Reads on the writer's connection: there are few keys, and they are read once."""

    def __init__(self, writer: BatchQueue) -> None:
        self._writer = writer

    def all(self) -> Future[list[AccessKey]]:
        """Return the keys, by name."""
        return self._writer.submit(OpKind.READ, find_all)

    def add(self, key: NewKey) -> Future[AccessKey | None]:
        """Add a key; give None where one has this name or handle."""
        return self._writer.submit(OpKind.WRITE, add, key)

    def remove(self, name: str) -> Future[bool]:
        """Remove a key, and the sessions that began with it; give False where there is none."""
        return self._writer.submit(OpKind.WRITE, remove, name)

    def used(self, key: KeyId, at_ms: int) -> Future[None]:
        """Note that a key was used."""
        return self._writer.submit(OpKind.WRITE, change, USED, key, at_ms)

    def sessions(self) -> Future[list[BrowserSession]]:
        """Return the sessions, the one seen last at the end."""
        return self._writer.submit(OpKind.READ, find_sessions)

    def put_session(self, session: BrowserSession) -> Future[None]:
        """Add a session, or replace it; nothing where its key is gone."""
        values = (session.hash, session.key, session.created_ms, session.seen_ms)
        return self._writer.submit(OpKind.WRITE, change, PUT_SESSION, *values)

    def end_sessions(self, hashes: list[bytes]) -> Future[None]:
        return self._writer.submit(OpKind.SEVERAL, end_sessions, hashes)

    def link_key(self) -> Future[bytes]:
        """Return the secret that signs links in messages, the same for ever; it is made at the first call."""
        return self._writer.submit(OpKind.SEVERAL, link_key, secrets.token_bytes(LINK_KEY_BYTES))


# On the thread of a connection


def find_all(connection: sqlite3.Connection) -> list[AccessKey]:
    return [read_key(row) for row in connection.execute(ALL)]


def add(connection: sqlite3.Connection, key: NewKey) -> AccessKey | None:
    scopes, jobs = (msgspec.json.encode(texts).decode() for texts in (key.scopes, key.jobs))
    values = (key.name, key.handle, key.hash, scopes, jobs, key.created_ms)
    (row,) = connection.execute(ADD, values).fetchall() or (None,)
    return read_key(row) if row else None


def remove(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute(REMOVE, (name,)).rowcount > 0


def change(connection: sqlite3.Connection, statement: str, *values: object) -> None:
    connection.execute(statement, values)


def find_sessions(connection: sqlite3.Connection) -> list[BrowserSession]:
    return [
        BrowserSession(hash=hash_, key=None if key is None else KeyId(key), created_ms=created_ms, seen_ms=seen_ms)
        for hash_, key, created_ms, seen_ms in connection.execute(SESSIONS)
    ]


def end_sessions(connection: sqlite3.Connection, hashes: list[bytes]) -> None:
    connection.executemany(END_SESSION, [(each,) for each in hashes])


def read_key(row: KeyRow) -> AccessKey:
    number, name, handle, hash_, scopes, jobs, created_ms, used_ms = row
    return AccessKey(
        id=KeyId(number),
        name=name,
        handle=handle,
        hash=hash_,
        scopes=msgspec.json.decode(scopes, type=tuple[Scope, ...]),
        jobs=msgspec.json.decode(jobs, type=tuple[str, ...]),
        created_ms=created_ms,
        used_ms=used_ms,
    )


def link_key(connection: sqlite3.Connection, made: bytes) -> bytes:
    """Return the secret that is kept: `made` where there was none."""
    connection.execute(MAKE_LINK_KEY, (made,))
    key: bytes = connection.execute(LINK_KEY).fetchone()[0]
    return key
