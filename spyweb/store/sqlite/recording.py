"""Writing what a decision comes to: the entry, its past version and the change events.  On a connection's thread."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from spyweb.store.protocol import NOBODY, HistoryRule, Origin, Transform
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.changes import Effect, EntryContext, Row, decide
from spyweb.store.sqlite.events import keep_event
from spyweb.store.sqlite.subscriptions import JobsByKind, Notices

COLUMNS = "type, value, expires_ms, version, created_ms, updated_ms, entry.rowid"
FIND = f"SELECT {COLUMNS} FROM entry WHERE namespace = ? AND key = ?"
UPDATE = """
    UPDATE entry SET type = ?, value = ?, expires_ms = ?, version = ?, created_ms = ?, updated_ms = ? WHERE rowid = ?
"""
# Over an expired row: the new entry comes last in the order of creation.
PUT = """
    REPLACE INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
DELETE = "DELETE FROM entry WHERE namespace = ? AND key = ?"
ARCHIVE = """
    REPLACE INTO past (namespace, key, type, value, version, created_ms, updated_ms, archived_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
FORGET_BEYOND = """
    DELETE FROM past WHERE namespace = ?1 AND key = ?2 AND version <= (
        SELECT version FROM past WHERE namespace = ?1 AND key = ?2 ORDER BY version DESC LIMIT 1 OFFSET ?3
    )
"""
LAST_VERSION = "SELECT max(version) FROM past WHERE namespace = ? AND key = ?"


@dataclass(frozen=True, slots=True)
class WriteEffects:
    """What a write leaves behind beside the entry."""

    wanted: JobsByKind = field(default_factory=dict)
    history: HistoryRule | None = None
    origin: Origin = NOBODY
    notices: Notices | None = None

    @property
    def kind(self) -> OpKind:
        return OpKind.SEVERAL if self.wanted or self.history else OpKind.WRITE


NO_EFFECTS = WriteEffects()


def find_row(connection: sqlite3.Connection, namespace: str, key: bytes) -> Row | None:
    found = connection.execute(FIND, (namespace, key)).fetchone()
    return Row(*found) if found else None


def transform(connection: sqlite3.Connection, context: EntryContext, change: Transform, trail: WriteEffects) -> object:
    if trail.notices:
        trail.notices.begin()
    row = find_row(connection, context.namespace, context.key)
    last_version = find_last_version(connection, context) if row is None and trail.history else 0
    effect = decide(context, row, change, last_version)
    if effect.changes:
        put_row(connection, context, effect.row)
    if trail is not NO_EFFECTS:
        leave_trail(connection, context, effect, trail)
    return effect.result


def change(connection: sqlite3.Connection, context: EntryContext, change: Transform) -> object:
    """A transform that leaves no trail."""
    return transform(connection, context, change, NO_EFFECTS)


def put_row(connection: sqlite3.Connection, context: EntryContext, row: Row | None) -> None:
    if row is None:
        connection.execute(DELETE, (context.namespace, context.key))
    elif row.rowid:
        connection.execute(UPDATE, row)
    else:
        connection.execute(PUT, (context.namespace, context.key, *row[:-1]))


def leave_trail(connection: sqlite3.Connection, context: EntryContext, effect: Effect, trail: WriteEffects) -> None:
    if trail.history and effect.replaced:
        archive(connection, context, effect.replaced, trail.history)
    for noted in effect.notes:
        if jobs := trail.wanted.get(noted.kind):
            keep_event(connection, context, noted, trail.origin, jobs)
    if trail.notices:
        trail.notices.note(context, effect.notes, trail.origin)


def archive(connection: sqlite3.Connection, context: EntryContext, row: Row, rule: HistoryRule) -> None:
    moments = (row.created_ms, row.updated_ms, context.now_ms)
    connection.execute(ARCHIVE, (context.namespace, context.key, row.type, row.column, row.version, *moments))
    if rule.versions is not None:
        connection.execute(FORGET_BEYOND, (context.namespace, context.key, rule.versions))


def find_last_version(connection: sqlite3.Connection, context: EntryContext) -> int:
    return connection.execute(LAST_VERSION, (context.namespace, context.key)).fetchone()[0] or 0
