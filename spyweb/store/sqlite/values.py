"""Entries in SQLite: texts of scripts and typed values, in one table.

A write is one op of the writer, with a savepoint where somebody watches the key or its namespace keeps a history: then
the entry, its past version and the event stand or fall together.
"""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from spyweb.clock import Clock
from spyweb.model import ChangeKind, Value
from spyweb.store.encryption import Codec
from spyweb.store.model.entries import (
    NOBODY,
    Drop,
    Entry,
    HistoryRules,
    Loaded,
    Order,
    Origin,
    PortableEntry,
    Put,
    Replacement,
    Transform,
    ValueStats,
)
from spyweb.store.patterns import Pattern, compile_pattern
from spyweb.store.sqlite import entries, scanning, transfer
from spyweb.store.sqlite.batch import EVERYTHING, CachedValue, OpKind
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.connections import SLICE, Connections, StorePart, on_questions_after_writes, read_as
from spyweb.store.sqlite.entries import NO_EFFECTS, WriteEffects
from spyweb.store.sqlite.events import Events, Notices, Subscriptions, jobs_by_kind
from spyweb.store.sqlite.locks import Locks

SLICE_S = 0.01  # seconds; the row that reaches it is the last of its slice: large values take long

EXPIRED = """
    SELECT rowid, namespace, key FROM entry INDEXED BY entry_expiring
    WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?
"""
COUNT_EXPIRED = """
    SELECT namespace, count(*) FROM entry INDEXED BY entry_expiring
    WHERE expires_ms IS NOT NULL AND expires_ms <= ? GROUP BY namespace
"""
# Jumps from namespace to namespace in the index instead of scanning every row.
NAMESPACES = f"""
    WITH RECURSIVE names (name) AS (
        SELECT min(namespace) FROM entry WHERE namespace >= :least
        UNION ALL SELECT (SELECT min(namespace) FROM entry WHERE namespace > name) FROM names WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL
        AND EXISTS (SELECT 1 FROM entry WHERE namespace = name AND {scanning.LIVE})
    ORDER BY name
"""
STATS = f"""
    SELECT
        count(*) FILTER (WHERE {scanning.LIVE}), count(*) FILTER (WHERE NOT {scanning.LIVE}),
        coalesce(sum(length(key) + coalesce(length(CAST(value AS BLOB)), 0)), 0),
        max(updated_ms) FILTER (WHERE {scanning.LIVE})
    FROM entry
"""
DELETE_ROW = "DELETE FROM entry WHERE rowid = ?"

T = TypeVar("T")


class Values(StorePart):
    """Entries with typed values.

    An expired entry is absent to every call, and a write over it makes a new entry.  Raises StoreError for anything
    that is not a Value, and for None at the top: an absent value is deleted, not stored.  Raises TooLarge if the
    answer would take more than `largest` bytes: its keys and values as stored, and scanning.ITEM_COST for each.
    """

    def __init__(
        self, connections: Connections, clock: Clock, codec: Codec, events: Events, locks: Locks, history: HistoryRules
    ) -> None:
        super().__init__(connections, clock)
        self._codec = codec
        self._events = events
        self._locks = locks
        self._history = history
        self._caches = codec.is_plain and connections.lock is not None  # values in the clear, and no other writer

    def get(self, namespace: str, key: bytes) -> Future[Value]:
        queue, writer = self._connections.reading(namespace, key), self._writer
        cached = CachedValue()
        if self._caches and queue is not writer:
            cached = writer.pending_writes.cached(namespace, key)
            if cached.is_known and not queue.is_closing:
                return done(cached.value)
        return queue.submit(OpKind.READ, entries.find_value, self._context(namespace, key), cached)

    def set(self, namespace: str, key: bytes, value: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        """Write the value and clear any expiry."""
        future = self.transform(namespace, key, Replacement(lambda: Put(value)), origin=origin)
        if self._caches and not future.done():
            self._writer.pending_writes.cache(namespace, key).learn(value)
        return future

    def delete(self, namespace: str, key: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        return self.transform(namespace, key, Replacement(lambda: Drop()), origin=origin)

    def increment(
        self, namespace: str, key: bytes, default: int, delta: int, *, origin: Origin = NOBODY
    ) -> Future[int]:
        """Add atomically and return the sum.

        A missing entry, or a text that is not a whole 64-bit integer (an optional sign, then digits only),
        counts as `default`.  Raises StoreError when the sum leaves 64 bits; the entry is then untouched.
        An expiry stays.
        """
        return self.transform(namespace, key, partial(entries.put_sum, default, delta), origin=origin)

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        """Set the entry's expiry (None: never); return False when there is no entry."""
        context, writer = self._context(namespace, key), self._writer
        return writer.submit(OpKind.WRITE, entries.set_expiry, context, at_ms, subject=(namespace, key))

    def read(self, namespace: str, key: bytes) -> Future[Entry | None]:
        queue = self._connections.reading(namespace, key)
        return queue.submit(OpKind.READ, entries.find_entry, self._context(namespace, key))

    def transform(
        self, namespace: str, key: bytes, change: Transform, *, origin: Origin = NOBODY, is_awaited: bool = True
    ) -> Future[Any]:
        """Read, decide and write as one step; return the decision's `result`.

        One that nobody awaits may wait a moment for others; it is done before what is asked for after it.
        """
        effects, notices = NO_EFFECTS, None
        if self._history or not self._events.is_quiet:
            wanted, rule = self._events.subscriptions.of_key(namespace, key), self._history.get(namespace)
            notices = self._events.notices(namespace)
            if wanted or rule or notices:
                effects = WriteEffects(wanted, rule, origin, notices)
        return self._writer.submit(
            effects.kind,
            entries.write,
            self._context(namespace, key),
            change,
            effects,
            subject=(namespace, key),
            after=self._events.after(is_kept=bool(effects.wanted), notices=notices),
            is_awaited=is_awaited,
        )

    @on_questions_after_writes
    def keys(
        self, connection: sqlite3.Connection, namespace: str, pattern: bytes = b"*", *, largest: int | None = None
    ) -> list[bytes]:
        """Return the live entries' keys that match, sorted bytewise: `*` is any run of characters, `?` is one."""
        compiled = compile_pattern(pattern)
        key_range = scanning.KeyRange(namespace, compiled.prefix, self._clock.now_ms())
        with closing(scanning.select(connection, "key", key_range, "ORDER BY key")) as rows:
            return list(scanning.within(largest, (key for (key,) in rows if compiled.matches(key)), len))

    def gather(
        self,
        namespace: str,
        prefix: bytes,
        into: Callable[[Iterator[tuple[bytes, Entry]]], T],
        *,
        least: bytes = b"",
        order: Order = Order.KEY,
        largest: int | None = None,
    ) -> Future[T]:
        """Return what `into` makes of the live entries whose keys have this prefix, from the key `least` on.

        `into`, for instance list, takes as many as it wants.  It is called on the store's own thread: very many entries
        do not hold up the loop.
        """
        key_range = scanning.KeyRange(namespace, prefix, self._clock.now_ms(), least)
        return self._connections.ask(scanning.gather, self._codec, key_range, into, order, largest)

    def clear(self, namespace: str, pattern: bytes = b"*", *, origin: Origin = NOBODY) -> Future[int]:
        """Delete all live entries whose keys match; return how many.

        Very many are deleted in slices, in the order of their keys, so that no write waits for long; entries written
        meanwhile may be deleted too.  If a slice fails, the entries of the slices before it stay deleted.
        """
        compiled = compile_pattern(pattern)
        # Queued now: before the next op of the caller.
        first = self._clear_slice(namespace, compiled, compiled.prefix, origin)

        async def clear_all() -> int:
            deleted, rest = await first
            while rest is not None:
                more, rest = await self._clear_slice(namespace, compiled, rest, origin)
                deleted += more
            return deleted

        return self._writer.loop.create_task(clear_all())

    def _clear_slice(
        self, namespace: str, pattern: Pattern, least: bytes, origin: Origin
    ) -> Future[tuple[int, bytes | None]]:
        """Clear from the key `least` on; return how many, and the first key that has not been examined, if any."""
        watches, rule = self._events.subscriptions.of_namespace(namespace), self._history.get(namespace)
        notices = self._events.notices(namespace)
        clock, now_ms = self._clock, self._clock.now_ms()

        def clear(connection: sqlite3.Connection) -> tuple[int, bytes | None]:
            if notices:
                notices.begin()
            key_range = scanning.KeyRange(namespace, pattern.prefix, now_ms, least)
            rows = list(scanning.select(connection, "rowid, key", key_range, f"ORDER BY key LIMIT {SLICE}"))
            looked_at = deleted = 0
            for rowid, key in in_time(clock, rows):
                looked_at += 1
                if not pattern.matches(key):
                    continue
                if watches or rule or notices:
                    effects = WriteEffects(jobs_by_kind(watches, key), rule, origin, notices)
                    context = EntryContext(self._codec, namespace, key, now_ms)
                    entries.record_end(connection, context, ChangeKind.DELETED, effects)
                connection.execute(DELETE_ROW, (rowid,))
                deleted += 1
            return deleted, None if looked_at == len(rows) < SLICE else rows[looked_at - 1][1] + b"\0"

        after = self._events.after(is_kept=bool(watches), notices=notices)
        return self._writer.submit(OpKind.SEVERAL, clear, subject=namespace, after=after)

    @on_questions_after_writes
    def namespaces(self, connection: sqlite3.Connection, prefix: str = "", *, largest: int | None = None) -> list[str]:
        """Return the namespaces that have a live entry, sorted."""
        with closing(connection.execute(NAMESPACES, {"least": prefix, "now_ms": self._clock.now_ms()})) as rows:
            return list(scanning.within(largest, (name for (name,) in rows if name.startswith(prefix)), len))

    @on_questions_after_writes
    def counts(self, connection: sqlite3.Connection) -> Mapping[str, int]:
        """Return how many live entries each namespace has that has any, from indexes alone: values may be large."""
        counts: dict[str, int] = dict(connection.execute("SELECT namespace, count(*) FROM entry GROUP BY namespace"))
        for namespace, expired in connection.execute(COUNT_EXPIRED, (self._clock.now_ms(),)):
            counts[namespace] -= expired
        return {namespace: count for namespace, count in counts.items() if count > 0}

    async def sweep(self) -> int:
        """Delete expired entries and locks, and history beyond its rule, in slices; return how many entries."""
        writer, clock = self._connections.writer, self._clock
        self._locks.tell(await self._locks.sweep())
        for namespace, rule in self._history.items():
            is_all = rule.age_ms is None
            while not is_all:
                before_ms = clock.now_ms() - (rule.age_ms or 0)
                is_all = await writer.submit(OpKind.SEVERAL, forget, namespace, before_ms, clock)
        deleted, is_all = 0, False
        while not is_all:
            notices = self._events.notices()
            after = self._events.after(is_kept=True, notices=notices)
            arguments = (self._events.subscriptions, notices)
            more, is_all = await writer.submit(OpKind.SEVERAL, self._delete_expired, *arguments, after=after)
            deleted += more
        return deleted

    def _delete_expired(
        self, connection: sqlite3.Connection, subscriptions: Subscriptions, notices: Notices | None
    ) -> tuple[int, bool]:
        """Delete a slice; return how many, and whether that was all."""
        if notices:
            notices.begin()
        now_ms, deleted = self._clock.now_ms(), 0
        rows = connection.execute(EXPIRED, (now_ms, SLICE)).fetchall()
        for rowid, namespace, key in in_time(self._clock, rows):
            wanted = subscriptions.of_key(namespace, key)
            if ChangeKind.EXPIRED in wanted or notices:
                context = EntryContext(self._codec, namespace, key, now_ms)
                entries.record_end(connection, context, ChangeKind.EXPIRED, WriteEffects(wanted, notices=notices))
            connection.execute(DELETE_ROW, (rowid,))
            deleted += 1
        return deleted, deleted == len(rows) < SLICE

    def keep_history(self, rules: HistoryRules) -> None:
        """Keep past versions by these rules from now on; versions already kept stay until they outlive their own."""
        self._history = rules

    def history(
        self, namespace: str, key: bytes, limit: int | None = None, *, largest: int | None = None
    ) -> Future[list[Entry]]:
        """Return the known versions, newest first: the live one, then the earlier ones."""
        queue = self._connections.reading(namespace, key)
        return queue.submit(OpKind.READ, scanning.find_history, self._context(namespace, key), limit, largest)

    def version(self, namespace: str, key: bytes, version: int) -> Future[Entry | None]:
        queue = self._connections.reading(namespace, key)
        return queue.submit(OpKind.READ, scanning.find_version, self._context(namespace, key), version)

    async def export(self, namespaces: Sequence[str] | None = None) -> AsyncIterator[PortableEntry]:
        """Yield the live entries of these namespaces (None: of all) in the order of their creation.

        Each is as it is when it is reached.  No key comes twice, even if it is deleted and written again meanwhile.
        """
        after, met = 0, set[int]()  # hashes: a key that is written anew meanwhile comes again, as the last one
        ask, clock = self._connections.ask, self._clock
        while page := await ask(scanning.find_page, self._codec, namespaces, after, clock.now_ms()):
            after = page[-1][1]
            for item, _ in page:
                place = hash((item.namespace, item.key))
                if place not in met:
                    met.add(place)
                    yield item

    def load(self, items: Sequence[PortableEntry], *, replace: bool) -> Future[Loaded]:
        """Write all entries with their times, or none; live ones are replaced, or kept.  Watchers are not notified."""
        arguments = (self._codec, tuple(items), replace, self._history, self._clock.now_ms())
        return self._writer.submit(OpKind.SEVERAL, transfer.load, *arguments, subject=EVERYTHING)

    def move(self, old: str, new: str, *, force: bool = False) -> Future[int]:
        """Move all entries of a namespace to another, with their history; return how many.

        Where a key is in both, that of the other one is deleted with `force`; else it raises StoreError, and moves
        nothing.  Watchers are not notified.
        """
        arguments = (self._codec, old, new, force, self._clock.now_ms())
        return self._writer.submit(OpKind.SEVERAL, transfer.move, *arguments, subject=EVERYTHING)

    @on_questions_after_writes
    def stats(self, connection: sqlite3.Connection, namespace: str | None = None) -> ValueStats:
        now_ms = self._clock.now_ms()
        which = "" if namespace is None else "WHERE namespace = :namespace"
        counted = connection.execute(f"{STATS} {which}", {"now_ms": now_ms, "namespace": namespace}).fetchone()
        return read_as(ValueStats, counted, active_locks=len(self._locks.find_all(connection, now_ms)))

    def _context(self, namespace: str, key: bytes) -> EntryContext:
        return EntryContext(self._codec, namespace, key, self._clock.now_ms())


def done(value: T) -> Future[T]:
    future: Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def in_time(clock: Clock, rows: Sequence[T]) -> Iterator[T]:
    """Yield the rows of a slice, fewer if they take long."""
    ends = clock.monotonic() + SLICE_S
    for row in rows:
        yield row
        if clock.monotonic() >= ends:
            return


def forget(connection: sqlite3.Connection, namespace: str, before_ms: int, clock: Clock) -> bool:
    """Delete a slice of the history that is too old; return whether that was all."""
    old = "SELECT rowid FROM past WHERE namespace = ? AND archived_ms <= ? LIMIT ?"
    rows = connection.execute(old, (namespace, before_ms, SLICE)).fetchall()
    deleted = 0
    for row in in_time(clock, rows):
        connection.execute("DELETE FROM past WHERE rowid = ?", row)
        deleted += 1
    return deleted == len(rows) < SLICE
