"""Deleting many entries, in slices: what a script clears, and what has expired.

A slice is an op of its own, small enough that the ops queued behind it hardly wait.
"""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spyweb.clock import Clock
from spyweb.store.batch import Kind, Lane
from spyweb.store.changes import Desk, Effect, Noted
from spyweb.store.events import SqliteEvents
from spyweb.store.following import Hearing
from spyweb.store.locks import SqliteLocks, sweep_locks
from spyweb.store.patterns import Pattern
from spyweb.store.protocol import ChangeKind, HistoryRule, HistoryRules, Origin
from spyweb.store.recording import Trail, find_row, leave_trail
from spyweb.store.scanning import Stretch, select
from spyweb.store.sealing import Codec
from spyweb.store.watching import Wanted, Watches, kinds_wanted

SLICE = 200  # rows looked at, or deleted, in one op

EXPIRED = """
    SELECT rowid, namespace, key FROM entry INDEXED BY entry_expiring
    WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?
"""
DELETE_ROW = "DELETE FROM entry WHERE rowid = ?"
FORGET = """
    DELETE FROM past WHERE rowid IN (SELECT rowid FROM past WHERE namespace = ? AND archived_ms <= ? LIMIT ?)
"""


class Clearing(NamedTuple):
    codec: Codec
    namespace: str
    pattern: Pattern
    least: bytes  # the first key that is looked at; begins as the pattern does
    now_ms: int
    watches: Sequence[Wanted]
    history: HistoryRule | None
    origin: Origin
    hearing: Hearing | None

    @property
    def leaves_trail(self) -> bool:
        return bool(self.watches or self.history or self.hearing)


class Cleared(NamedTuple):
    deleted: int
    rest: bytes | None  # where what has not been looked at begins; None: that was all


async def clear_all(clear_from: Callable[[bytes], Future[Cleared]], first: Future[Cleared]) -> int:
    """Slice after slice, from the first, which has been asked for already."""
    cleared = await first
    deleted = cleared.deleted
    while cleared.rest is not None:
        cleared = await clear_from(cleared.rest)
        deleted += cleared.deleted
    return deleted


def clear(connection: sqlite3.Connection, clearing: Clearing) -> Cleared:
    """One slice."""
    if clearing.hearing:
        clearing.hearing.begin()
    stretch = Stretch(clearing.namespace, clearing.pattern.prefix, clearing.now_ms, clearing.least)
    rows = select(connection, "rowid, key", stretch, f"ORDER BY key LIMIT {SLICE}").fetchall()
    matching = [(rowid, key) for rowid, key in rows if clearing.pattern.matches(key)]
    if clearing.leaves_trail:
        for _, key in matching:
            clear_row(connection, clearing, key)
    connection.executemany(DELETE_ROW, [(rowid,) for rowid, _ in matching])
    return Cleared(len(matching), rows[-1][1] + b"\0" if len(rows) == SLICE else None)


def clear_row(connection: sqlite3.Connection, clearing: Clearing, key: bytes) -> None:
    trail = Trail(kinds_wanted(clearing.watches, key), clearing.history, clearing.origin, clearing.hearing)
    desk = Desk(clearing.codec, clearing.namespace, key, clearing.now_ms)
    leave_trail_of_end(connection, desk, ChangeKind.DELETED, trail)


def leave_trail_of_end(connection: sqlite3.Connection, desk: Desk, kind: ChangeKind, trail: Trail) -> None:
    """Of an entry that is about to be deleted.  One by one: the values of a slice may not fit into memory together."""
    row = find_row(connection, desk.namespace, desk.key)
    leave_trail(connection, desk, Effect(None, replaced=row, notes=(Noted(kind, row, None),)), trail)


class Sweeper:
    def __init__(
        self, writer: Lane, codec: Codec, clock: Clock, events: SqliteEvents, locks: SqliteLocks, rules: HistoryRules
    ) -> None:
        self._writer = writer
        self._codec = codec
        self._clock = clock
        self._events = events
        self._locks = locks
        self.rules = rules  # the history of each namespace

    async def sweep(self, limit: int | None) -> int:
        freed = await self._writer.submit(Kind.SEVERAL, sweep_locks, self._clock.now_ms(), self._locks.alive)
        self._locks.holdings.tell(freed)
        await self._forget()
        swept = 0
        while limit is None or swept < limit:
            size = SLICE if limit is None else min(SLICE, limit - swept)
            deleted = await self._slice(size)
            swept += deleted
            if deleted < size:
                break
        return swept

    async def _slice(self, size: int) -> int:
        hearing = self._events.followers.hearing_all()
        arguments = (self._codec, self._events.watches, hearing, self._clock.now_ms(), size)
        after = self._events.after(is_kept=True, hearing=hearing)
        return await self._writer.submit(Kind.SEVERAL, delete_expired, *arguments, after=after)

    async def _forget(self) -> None:
        for namespace, rule in self.rules.items():
            deleted = SLICE if rule.age_ms is not None else 0
            while deleted == SLICE:
                before_ms = self._clock.now_ms() - (rule.age_ms or 0)
                deleted = await self._writer.submit(Kind.WRITE, forget, namespace, before_ms)


def delete_expired(
    connection: sqlite3.Connection, codec: Codec, watches: Watches, hearing: Hearing | None, now_ms: int, size: int
) -> int:
    if hearing:
        hearing.begin()
    rows = connection.execute(EXPIRED, (now_ms, size)).fetchall()
    for _, namespace, key in rows:
        wanted = watches.of_key(namespace, key)
        if ChangeKind.EXPIRED in wanted or hearing:
            desk, trail = Desk(codec, namespace, key, now_ms), Trail(wanted, hearing=hearing)
            leave_trail_of_end(connection, desk, ChangeKind.EXPIRED, trail)
    connection.executemany(DELETE_ROW, [(rowid,) for rowid, _, _ in rows])
    return len(rows)


def forget(connection: sqlite3.Connection, namespace: str, before_ms: int) -> int:
    return connection.execute(FORGET, (namespace, before_ms, SLICE)).rowcount
