"""Delete many entries in slices: those that a script clears, and those that have expired.

A slice is an op of its own, small enough that the ops queued behind it hardly wait: at most SLICE rows, or fewer if
they take long, as large values do.
"""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from spyweb.clock import Clock
from spyweb.model import ChangeKind, HistoryRule
from spyweb.store.encryption import Codec
from spyweb.store.model.entries import Origin
from spyweb.store.patterns import Pattern
from spyweb.store.sqlite.changes import ChangeNote, Effect, EntryContext
from spyweb.store.sqlite.entries import WriteEffects, find_row, record_effects
from spyweb.store.sqlite.events import Notices, Subscription, Subscriptions, jobs_by_kind
from spyweb.store.sqlite.scanning import KeyRange, select

SLICE = 200  # rows looked at, or deleted, in one op
SLICE_S = 0.01  # seconds; the row that reaches it is the last of its slice

EXPIRED = """
    SELECT rowid, namespace, key FROM entry INDEXED BY entry_expiring
    WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?
"""
DELETE_ROW = "DELETE FROM entry WHERE rowid = ?"
OLD = "SELECT rowid FROM past WHERE namespace = ? AND archived_ms <= ? LIMIT ?"

T = TypeVar("T")


class Clearing(NamedTuple):
    codec: Codec
    namespace: str
    pattern: Pattern
    least: bytes  # the first key to look at; it has the prefix of the pattern
    clock: Clock
    now_ms: int
    watches: Sequence[Subscription]
    history: HistoryRule | None
    origin: Origin
    notices: Notices | None

    @property
    def has_effects(self) -> bool:
        return bool(self.watches or self.history or self.notices)


class Cleared(NamedTuple):
    deleted: int
    rest: bytes | None  # the first key that has not been looked at; None: that was all


class Swept(NamedTuple):
    deleted: int
    is_all: bool


def in_time(clock: Clock, rows: Sequence[T]) -> Iterator[T]:
    """Yield the rows of a slice, fewer if they take long."""
    ends = clock.monotonic() + SLICE_S
    for row in rows:
        yield row
        if clock.monotonic() >= ends:
            return


async def clear_all(clear_from: Callable[[bytes], Future[Cleared]], first: Future[Cleared]) -> int:
    """Clear slice after slice; the first has been submitted already."""
    cleared = await first
    deleted = cleared.deleted
    while cleared.rest is not None:
        cleared = await clear_from(cleared.rest)
        deleted += cleared.deleted
    return deleted


def clear(connection: sqlite3.Connection, clearing: Clearing) -> Cleared:
    """Clear one slice."""
    if clearing.notices:
        clearing.notices.begin()
    key_range = KeyRange(clearing.namespace, clearing.pattern.prefix, clearing.now_ms, clearing.least)
    rows = select(connection, "rowid, key", key_range, f"ORDER BY key LIMIT {SLICE}").fetchall()
    looked_at = deleted = 0
    for rowid, key in in_time(clearing.clock, rows):
        looked_at += 1
        if clearing.pattern.matches(key):
            if clearing.has_effects:
                clear_row(connection, clearing, key)
            connection.execute(DELETE_ROW, (rowid,))
            deleted += 1
    is_all = looked_at == len(rows) < SLICE
    return Cleared(deleted, None if is_all else rows[looked_at - 1][1] + b"\0")


def clear_row(connection: sqlite3.Connection, clearing: Clearing, key: bytes) -> None:
    effects = WriteEffects(jobs_by_kind(clearing.watches, key), clearing.history, clearing.origin, clearing.notices)
    context = EntryContext(clearing.codec, clearing.namespace, key, clearing.now_ms)
    record_end(connection, context, ChangeKind.DELETED, effects)


def record_end(connection: sqlite3.Connection, context: EntryContext, kind: ChangeKind, effects: WriteEffects) -> None:
    """Record the end of one entry about to be deleted; the values of a slice may not fit into memory together."""
    row = find_row(connection, context.namespace, context.key)
    record_effects(connection, context, Effect(None, replaced=row, notes=(ChangeNote(kind, row, None),)), effects)


def delete_expired(
    connection: sqlite3.Connection,
    codec: Codec,
    subscriptions: Subscriptions,
    notices: Notices | None,
    clock: Clock,
) -> Swept:
    if notices:
        notices.begin()
    now_ms, deleted = clock.now_ms(), 0
    rows = connection.execute(EXPIRED, (now_ms, SLICE)).fetchall()
    for rowid, namespace, key in in_time(clock, rows):
        wanted = subscriptions.of_key(namespace, key)
        if ChangeKind.EXPIRED in wanted or notices:
            context, effects = EntryContext(codec, namespace, key, now_ms), WriteEffects(wanted, notices=notices)
            record_end(connection, context, ChangeKind.EXPIRED, effects)
        connection.execute(DELETE_ROW, (rowid,))
        deleted += 1
    return Swept(deleted, deleted == len(rows) < SLICE)


def forget(connection: sqlite3.Connection, namespace: str, before_ms: int, clock: Clock) -> Swept:
    rows = connection.execute(OLD, (namespace, before_ms, SLICE)).fetchall()
    deleted = 0
    for row in in_time(clock, rows):
        connection.execute("DELETE FROM past WHERE rowid = ?", row)
        deleted += 1
    return Swept(deleted, deleted == len(rows) < SLICE)
