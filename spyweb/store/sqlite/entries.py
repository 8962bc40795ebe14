"""Keys and texts of scripts, in the table of the typed values.

An expired entry is absent to every call, and writing it clears its expiry.
"""

from __future__ import annotations

import re
import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple, cast

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.store.crypto.sealing import PLAIN, Codec, Place
from spyweb.store.encoding import LARGEST, SMALLEST, Cell, Column, Type, as_text
from spyweb.store.protocol import KEEP, NOBODY, Blind, Drop, Entry, Origin, Put
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.bulk import SIZES, Bulk, Wide
from spyweb.store.sqlite.changes import EntryContext, is_live, renewed
from spyweb.store.sqlite.connections import Connections
from spyweb.store.sqlite.pending_writes import Known
from spyweb.store.sqlite.reading import find_entry
from spyweb.store.sqlite.recording import NO_EFFECTS, change, find_row, put_row
from spyweb.store.sqlite.values import SqliteValues

GET = """
    SELECT type, value, expires_ms FROM entry
    WHERE namespace = ?1 AND key = ?2 AND (expires_ms IS NULL OR expires_ms > ?3)
"""
# Fails, and is undone, where an entry has expired: what is written over it comes last in the order of creation.
SET = """
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    VALUES (?1, ?2, 's', ?3, NULL, 1, ?4, ?4)
    ON CONFLICT (namespace, key) DO UPDATE SET
        type = 's', value = excluded.value, expires_ms = NULL, updated_ms = ?4,
        version = CASE WHEN expires_ms <= ?4 THEN NULL ELSE version + 1 END
"""
# By itself beside replacing.PUT_VALUES: with two columns fewer it takes four fifths as long.
SET_MANY = Wide(
    """
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    SELECT column1, column2, 's', column3, NULL, 1, column4, column4 FROM (VALUES {rows}) WHERE column2 IS NOT NULL
    ON CONFLICT (namespace, key) DO UPDATE SET
        type = 's', value = excluded.value, expires_ms = NULL, updated_ms = excluded.updated_ms,
        version = CASE WHEN expires_ms <= excluded.updated_ms THEN NULL ELSE version + 1 END
    """,
    columns=4,
)
SET_KEEPING_EXPIRY = """
    UPDATE entry SET type = 's', value = ?3, version = version + 1, updated_ms = ?4
    WHERE namespace = ?1 AND key = ?2
"""
DELETE = "DELETE FROM entry WHERE namespace = ? AND key = ?"
EXPIRE = """
    UPDATE entry SET expires_ms = ?3, version = version + 1, updated_ms = ?4
    WHERE namespace = ?1 AND key = ?2 AND (expires_ms IS NULL OR expires_ms > ?4)
"""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TEXT = Type.STRING.value
WHOLE_NUMBER = re.compile(rb"([+-]?)(?=[0-9])0*+([0-9]{0,19})")


class SqliteEntries:
    """The quick way for what store_* does: one statement where nothing but the entry is to be written, and that as
    it is.  All other writes are transforms."""

    def __init__(self, connections: Connections, clock: Clock, codec: Codec, values: SqliteValues) -> None:
        self._connections = connections
        self._clock = clock
        self._codec = codec
        self._values = values

    def get(self, namespace: str, key: bytes) -> Future[bytes | None]:
        connections = self._connections
        if not self._codec.is_plain:
            return connections.reading(namespace, key).submit(
                OpKind.READ, open_value, self._values.context(namespace, key)
            )
        known = connections.known(namespace, key)
        if known is None:
            return connections.reading(namespace, key).submit(
                OpKind.READ, find_value, namespace, key, self._clock.now_ms()
            )
        if known.is_filled:
            answered: Future[bytes | None] = connections.reader.loop.create_future()
            answered.set_result(known.value)
            return answered
        return connections.reader.submit(OpKind.READ, learn_value, known, namespace, key, self._clock.now_ms())

    def set(self, namespace: str, key: bytes, value: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        if not self._is_simple(namespace, key):
            changed = self._values.transform(namespace, key, Blind(lambda _: Put(value)), origin=origin)
            return cast("Future[None]", changed)
        writer, subject = self._connections.writer, (namespace, key)
        written = writer.submit(OpKind.WRITE, put, namespace, key, value, self._clock.now_ms(), subject=subject)
        if not written.done():  # it was not refused at once
            writer.pending_writes.put(subject, value)
        return written

    def delete(self, namespace: str, key: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        if self._is_simple(namespace, key):
            return self._write(delete, namespace, key)
        changed = self._values.transform(namespace, key, Blind(lambda _: Drop()), origin=origin)
        return cast("Future[None]", changed)

    def increment(
        self, namespace: str, key: bytes, default: int, delta: int, *, origin: Origin = NOBODY
    ) -> Future[int]:
        if self._is_simple(namespace, key):
            return self._write(increment, namespace, key, default, delta, self._clock.now_ms())
        changed = self._values.transform(namespace, key, partial(put_sum, default, delta), origin=origin)
        return cast("Future[int]", changed)

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        if self._codec.is_plain:
            return self._write(expire, namespace, key, at_ms, self._clock.now_ms())
        context = self._values.context(namespace, key)
        return self._connections.writer.submit(OpKind.WRITE, seal_with_expiry, context, at_ms, subject=(namespace, key))

    def _is_simple(self, namespace: str, key: bytes) -> bool:
        return self._codec.is_plain and self._values.trail(namespace, key, NOBODY) is NO_EFFECTS

    def _write(
        self,
        function: Callable[[sqlite3.Connection, str, bytes, *Ts], T],
        namespace: str,
        key: bytes,
        *arguments: *Ts,
    ) -> Future[T]:
        subject = (namespace, key)
        return self._connections.writer.submit(OpKind.WRITE, function, namespace, key, *arguments, subject=subject)


def find_value(connection: sqlite3.Connection, namespace: str, key: bytes, now_ms: int) -> bytes | None:
    row = connection.execute(GET, (namespace, key, now_ms)).fetchone()
    return text_of(namespace, key, row) if row else None


def text_of(namespace: str, key: bytes, row: tuple[str, Column, int | None]) -> bytes:
    kind, column, _ = row
    if kind == TEXT:
        return cast(bytes, column)
    return as_text(PLAIN.read(Place(namespace, key, 0), Cell(kind, column)))


def learn_value(connection: sqlite3.Connection, known: Known, namespace: str, key: bytes, now_ms: int) -> bytes | None:
    """One that expires is not known for good."""
    row = connection.execute(GET, (namespace, key, now_ms)).fetchone()
    value = text_of(namespace, key, row) if row else None
    if row is None or row[2] is None:
        known.fill(value)
    return value


def open_value(connection: sqlite3.Connection, context: EntryContext) -> bytes | None:
    entry = find_entry(connection, context)
    return as_text(entry.value) if entry else None


def put_one(connection: sqlite3.Connection, namespace: str, key: bytes, value: bytes, now_ms: int) -> None:
    try:
        connection.execute(SET, (namespace, key, value, now_ms))
    except sqlite3.IntegrityError:
        change(connection, EntryContext(PLAIN, namespace, key, now_ms), Blind(lambda _: Put(value)))


def put_many(connection: sqlite3.Connection, several: Sequence[tuple[str, bytes, bytes, int]]) -> list[None]:
    SET_MANY.write(connection, several)
    return [None] * len(several)


put = Bulk(put_one, put_many, at_once=SIZES[-1])


def delete(connection: sqlite3.Connection, namespace: str, key: bytes) -> None:
    connection.execute(DELETE, (namespace, key))


def increment(connection: sqlite3.Connection, namespace: str, key: bytes, default: int, delta: int, now_ms: int) -> int:
    """Only its last statement writes, so it is atomic without a savepoint."""
    value = find_value(connection, namespace, key, now_ms)
    total = add(value, default, delta)
    if value is None:
        put_one(connection, namespace, key, b"%d" % total, now_ms)
    else:
        connection.execute(SET_KEEPING_EXPIRY, (namespace, key, b"%d" % total, now_ms))
    return total


def expire(connection: sqlite3.Connection, namespace: str, key: bytes, at_ms: int | None, now_ms: int) -> bool:
    return connection.execute(EXPIRE, (namespace, key, at_ms, now_ms)).rowcount > 0


def put_sum(default: int, delta: int, entry: Entry | None) -> Put:
    total = add(as_text(entry.value) if entry else None, default, delta)
    return Put(b"%d" % total, KEEP, total)


def seal_with_expiry(connection: sqlite3.Connection, context: EntryContext, at_ms: int | None) -> bool:
    row = find_row(connection, context.namespace, context.key)
    if row is None or not is_live(row, context.now_ms):
        return False
    put_row(connection, context, renewed(context, row, at_ms))
    return True


def add(value: bytes | None, default: int, delta: int) -> int:
    total = parse_number(value, default) + delta
    if not SMALLEST <= total <= LARGEST:
        raise StoreError(f"the sum {total} does not fit into 64 bits")
    return total


def parse_number(value: bytes | None, default: int) -> int:
    """Return the whole number that a text spells, whatever zeros it begins with, or `default`."""
    match = None if value is None else WHOLE_NUMBER.fullmatch(value)
    number = int(match[1] + (match[2] or b"0")) if match else default
    return number if SMALLEST <= number <= LARGEST else default
