"""Read and write entries, always through these functions.  Runs on a connection's thread.

Every write of an entry ends in `put_row`; its effects beside the entry (its past version, change events) are recorded
with it.  Adding to an integer takes a shorter path, with the same result.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from spyweb.errors import StoreError
from spyweb.model import ChangeKind, HistoryRule, Value
from spyweb.store.encoding import LARGEST, SMALLEST, Type, as_text, encode
from spyweb.store.model.entries import KEEP, NOBODY, Addition, Drop, Entry, Origin, Put, Replacement, Transform
from spyweb.store.sqlite.batch import TOGETHER, CachedValue, OpKind, Results, each
from spyweb.store.sqlite.changes import ChangeNote, Effect, EntryContext, Row, decide, entry_of, is_live, row_written
from spyweb.store.sqlite.connections import insert_into, upsert
from spyweb.store.sqlite.events import JobsByKind, Notices, keep_event

INTEGER = Type.INTEGER.value
COLUMNS = "type, value, expires_ms, version, created_ms, updated_ms, entry.rowid"
FIND = f"SELECT {COLUMNS} FROM entry WHERE namespace = ? AND key = ?"
UPDATE = """
    UPDATE entry SET type = ?, value = ?, expires_ms = ?, version = ?, created_ms = ?, updated_ms = ? WHERE rowid = ?
"""
# An expired row makes room: the new entry is then last in the order of creation.
DELETE_EXPIRED = "DELETE FROM entry WHERE namespace = ? AND key = ? AND expires_ms <= ?"
PUT = insert_into("entry", "namespace, key, type, value, expires_ms, version, created_ms, updated_ms")
# Writes without reading.  Over an expired row it fails, and is undone: see PUT.
UPSERT = """
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)
    ON CONFLICT (namespace, key) DO UPDATE SET
        type = ?3, value = ?4, expires_ms = ?5, updated_ms = ?6,
        version = CASE WHEN entry.expires_ms <= ?6 THEN NULL ELSE entry.version + 1 END
"""
DELETE = "DELETE FROM entry WHERE namespace = ? AND key = ?"
FIND_NUMBER = "SELECT type, value, expires_ms, rowid FROM entry WHERE namespace = ? AND key = ?"
SET_NUMBER = "UPDATE entry SET value = ?, version = version + 1, updated_ms = ? WHERE rowid = ?"
ARCHIVE = upsert(
    "past", "namespace, key, type, value, version, created_ms, updated_ms, archived_ms", key="namespace, key, version"
)
FORGET_BEYOND = """
    DELETE FROM past WHERE namespace = ?1 AND key = ?2 AND version <= (
        SELECT version FROM past WHERE namespace = ?1 AND key = ?2 ORDER BY version DESC LIMIT 1 OFFSET ?3
    )
"""
LAST_VERSION = "SELECT max(version) FROM past WHERE namespace = ? AND key = ?"

WHOLE_NUMBER = re.compile(rb"([+-]?)(?=[0-9])0*+([0-9]{0,19})")


class WriteEffects(Struct, frozen=True):
    """The records that a write leaves behind beside the entry."""

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


def find_entry(connection: sqlite3.Connection, context: EntryContext) -> Entry | None:
    codec, namespace, key, now_ms = context
    row = find_row(connection, namespace, key)
    return entry_of(codec, namespace, key, row) if row and is_live(row, now_ms) else None


def find_value(connection: sqlite3.Connection, context: EntryContext, cached: CachedValue) -> Value:
    found = read_value(context, connection.execute(FIND, (context.namespace, context.key)).fetchone(), cached)
    if isinstance(found, StoreError):
        raise found
    return found


def find_values(connection: sqlite3.Connection, asked: Sequence[tuple[EntryContext, CachedValue]]) -> Results:
    answers = each(connection, FIND, [(context.namespace, context.key) for context, _ in asked])
    found = zip(asked, answers, strict=True)
    return [read_value(context, answer.fetchone(), cached) for (context, cached), answer in found]


TOGETHER[find_value] = find_values


def read_value(context: EntryContext, found: Sequence[Any] | None, cached: CachedValue) -> Value | StoreError:
    codec, namespace, key, now_ms = context
    row = Row(*found) if found else None
    try:
        value = entry_of(codec, namespace, key, row).value if row and is_live(row, now_ms) else None
    except StoreError as error:
        return error
    if value is None or (row and row.expires_ms is None):
        cached.learn(value)
    return value


def write(connection: sqlite3.Connection, context: EntryContext, change: Transform, effects: WriteEffects) -> object:
    """Read, decide, write, and record the effects of the write; return the decision's result."""
    if effects is NO_EFFECTS and context.codec.is_plain:
        if type(change) is Addition:
            return add(connection, context, change)
        if type(change) is Replacement:
            return replace(connection, context, change)
    return read_and_write(connection, context, change, effects)


def read_and_write(
    connection: sqlite3.Connection, context: EntryContext, change: Transform, effects: WriteEffects
) -> object:
    _, namespace, key, _ = context
    if effects.notices:
        effects.notices.begin()
    row = find_row(connection, namespace, key)
    last_version = find_last_version(connection, context) if row is None and effects.history else 0
    effect = decide(context, row, change, last_version)
    if effect.changes:
        put_row(connection, context, effect.row, row)
    if effects is not NO_EFFECTS:
        record_effects(connection, context, effect, effects)
    return effect.result


def replace(connection: sqlite3.Connection, context: EntryContext, change: Replacement) -> object:
    """Write a change that does not depend on the entry, with one statement."""
    _, namespace, key, now_ms = context
    decision = change.decide()
    match decision:
        case Put():
            kind, column = encode(decision.value)
            try:
                connection.execute(UPSERT, (namespace, key, kind, column, decision.expires_ms, now_ms))
            except sqlite3.IntegrityError:  # over an expired row
                return read_and_write(connection, context, change, NO_EFFECTS)
        case Drop():
            connection.execute(DELETE, (namespace, key))
    return decision.result


def add(connection: sqlite3.Connection, context: EntryContext, addition: Addition) -> object:
    """Add to an integer with two statements, without `decide`: one statement with RETURNING would be slower."""
    _, namespace, key, now_ms = context
    found = connection.execute(FIND_NUMBER, (namespace, key)).fetchone()
    if found:
        kind, value, expires_ms, rowid = found
        if kind == INTEGER and (expires_ms is None or expires_ms > now_ms):
            total = value + addition.delta
            if SMALLEST <= total <= LARGEST:
                connection.execute(SET_NUMBER, (total, now_ms, rowid))
                return addition.result(total)
    return read_and_write(connection, context, addition.rule, NO_EFFECTS)


def set_expiry(connection: sqlite3.Connection, context: EntryContext, expires_ms: int | None) -> bool:
    """Give a live entry another expiry, of which watchers do not hear; return False if there is no entry."""
    row = find_row(connection, context.namespace, context.key)
    if row is None or not is_live(row, context.now_ms):
        return False
    entry = entry_of(context.codec, context.namespace, context.key, row)
    put_row(connection, context, row_written(context, row, Put(entry.value, expires_ms), row.version), row)
    return True


def put_row(connection: sqlite3.Connection, context: EntryContext, row: Row | None, old: Row | None) -> None:
    """Store this row as the entry, where the old one is; None deletes the entry."""
    if row is None:
        connection.execute(DELETE, (context.namespace, context.key))
    elif row.rowid:
        connection.execute(UPDATE, row)
    else:
        if old:
            connection.execute(DELETE_EXPIRED, (context.namespace, context.key, context.now_ms))
        connection.execute(PUT, (context.namespace, context.key, *row[:-1]))


def record_effects(
    connection: sqlite3.Connection, context: EntryContext, effect: Effect, effects: WriteEffects
) -> None:
    if effects.history and effect.replaced:
        archive(connection, context, effect.replaced, effects.history)
    for note in effect.notes:
        if jobs := effects.wanted.get(note.kind):
            keep_event(connection, context, note, effects.origin, jobs)
    if effects.notices:
        effects.notices.note(context, effect.notes, effects.origin)


def record_end(connection: sqlite3.Connection, context: EntryContext, kind: ChangeKind, effects: WriteEffects) -> None:
    """Record the end of one entry about to be deleted; the values of many may not fit into memory together."""
    row = find_row(connection, context.namespace, context.key)
    record_effects(connection, context, Effect(None, replaced=row, notes=(ChangeNote(kind, row, None),)), effects)


def archive(connection: sqlite3.Connection, context: EntryContext, row: Row, rule: HistoryRule) -> None:
    moments = (row.created_ms, row.updated_ms, context.now_ms)
    connection.execute(ARCHIVE, (context.namespace, context.key, row.type, row.column, row.version, *moments))
    if rule.versions is not None:
        connection.execute(FORGET_BEYOND, (context.namespace, context.key, rule.versions))


def find_last_version(connection: sqlite3.Connection, context: EntryContext) -> int:
    return connection.execute(LAST_VERSION, (context.namespace, context.key)).fetchone()[0] or 0


def put_sum(default: int, delta: int, entry: Entry | None) -> Put:
    """Decide on an addition to a text that spells a number; anything else counts as `default`."""
    total = parse_number(as_text(entry.value) if entry else None, default) + delta
    if not SMALLEST <= total <= LARGEST:
        raise StoreError(f"the sum {total} does not fit into 64 bits")
    return Put(b"%d" % total, KEEP, total)


def parse_number(value: bytes | None, default: int) -> int:
    """Return the whole number that a text spells, with or without leading zeros, or `default`."""
    match = None if value is None else WHOLE_NUMBER.fullmatch(value)
    number = int(match[1] + (match[2] or b"0")) if match else default
    return number if SMALLEST <= number <= LARGEST else default
