"""Entries in SQLite: texts of scripts and typed values, in one table.

A write goes through the writer's queue and is one op, with a savepoint where somebody watches the key or its namespace
keeps a history: then the entry, its past version and the event stand or fall together.  Scripts' reads have a
connection of their own; one of a key that is just being written queues behind that write.  Questions about many keys
have another, and first let the writes be committed that were asked for before.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar, cast

from spyweb.clock import Clock
from spyweb.model import Value
from spyweb.store.crypto.sealing import Codec
from spyweb.store.patterns import Pattern, compile_pattern
from spyweb.store.sqlite import clearing, entries, scanning, transfer
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.clearing import Cleared, Clearing
from spyweb.store.sqlite.connections import Connections
from spyweb.store.sqlite.entries import NO_EFFECTS, WriteEffects
from spyweb.store.sqlite.entry_cache import CachedValue
from spyweb.store.sqlite.events import SqliteEvents
from spyweb.store.sqlite.locks import SqliteLocks
from spyweb.store.sqlite.pending_writes import EVERYTHING
from spyweb.store.values_protocol import (
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

T = TypeVar("T")


class SqliteValues:
    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        codec: Codec,
        events: SqliteEvents,
        locks: SqliteLocks,
        history: HistoryRules,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._codec = codec
        self._events = events
        self._locks = locks
        self._history = history
        self._caches = codec.is_plain and connections.lock is not None  # values in the clear, and no other writer
        self._sweeper = clearing.Sweeper(connections.writer, codec, clock, events, locks, history)

    def get(self, namespace: str, key: bytes) -> Future[Value]:
        queue, writer = self._connections.reading(namespace, key), self._connections.writer
        cached = CachedValue()
        if self._caches and queue is not writer:
            cached = writer.pending_writes.cache.find((namespace, key))
            if cached.is_known and not queue.is_closing:
                return done(cached.value)
        return queue.submit(OpKind.READ, entries.find_value, self._context(namespace, key), cached)

    def set(self, namespace: str, key: bytes, value: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        future = self.transform(namespace, key, Replacement(lambda: Put(value)), origin=origin)
        if self._caches and not future.done():
            self._connections.writer.pending_writes.cache.put((namespace, key), value)
        return cast("Future[None]", future)

    def delete(self, namespace: str, key: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        return cast("Future[None]", self.transform(namespace, key, Replacement(lambda: Drop()), origin=origin))

    def increment(
        self, namespace: str, key: bytes, default: int, delta: int, *, origin: Origin = NOBODY
    ) -> Future[int]:
        summed = self.transform(namespace, key, partial(entries.put_sum, default, delta), origin=origin)
        return cast("Future[int]", summed)

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        context, writer = self._context(namespace, key), self._connections.writer
        return writer.submit(OpKind.WRITE, entries.set_expiry, context, at_ms, subject=(namespace, key))

    def read(self, namespace: str, key: bytes) -> Future[Entry | None]:
        queue = self._connections.reading(namespace, key)
        return queue.submit(OpKind.READ, entries.find_entry, self._context(namespace, key))

    def transform(
        self,
        namespace: str,
        key: bytes,
        change: Transform,
        *,
        origin: Origin = NOBODY,
        is_awaited: bool = True,
    ) -> Future[object]:
        effects = self._effects(namespace, key, origin)
        return self._connections.writer.submit(
            effects.kind,
            entries.write,
            self._context(namespace, key),
            change,
            effects,
            subject=(namespace, key),
            after=self._events.after(is_kept=bool(effects.wanted), notices=effects.notices),
            is_awaited=is_awaited,
        )

    def keys(self, namespace: str, pattern: bytes = b"*", *, largest: int | None = None) -> Future[list[bytes]]:
        compiled, now_ms = compile_pattern(pattern), self._clock.now_ms()
        return self._connections.ask(scanning.find_keys, namespace, compiled, now_ms, largest)

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
        key_range = scanning.KeyRange(namespace, prefix, self._clock.now_ms(), least)
        return self._connections.ask(scanning.gather, self._codec, key_range, into, order, largest)

    def clear(self, namespace: str, pattern: bytes = b"*", *, origin: Origin = NOBODY) -> Future[int]:
        compiled = compile_pattern(pattern)
        clear_from = partial(self._clear_from, namespace, compiled, origin)
        first = clear_from(compiled.prefix)  # now: it comes before what is asked for next
        return self._connections.writer.loop.create_task(clearing.clear_all(clear_from, first))

    def _clear_from(self, namespace: str, pattern: Pattern, origin: Origin, least: bytes) -> Future[Cleared]:
        watches, rule = self._events.subscriptions.of_namespace(namespace), self._history.get(namespace)
        notices = self._events.subscribers.notices(namespace)
        clock = self._clock
        wanted = Clearing(self._codec, namespace, pattern, least, clock, clock.now_ms(), watches, rule, origin, notices)
        after = self._events.after(is_kept=bool(watches), notices=notices)
        return self._connections.writer.submit(OpKind.SEVERAL, clearing.clear, wanted, subject=namespace, after=after)

    def namespaces(self, prefix: str = "", *, largest: int | None = None) -> Future[list[str]]:
        return self._connections.ask(scanning.find_namespaces, prefix, self._clock.now_ms(), largest)

    def counts(self) -> Future[Mapping[str, int]]:
        return self._connections.ask(scanning.count_entries, self._clock.now_ms())

    async def sweep(self, limit: int | None = None) -> int:
        return await self._sweeper.sweep(limit)

    def keep_history(self, rules: HistoryRules) -> None:
        self._history = self._sweeper.rules = rules

    def history(
        self, namespace: str, key: bytes, limit: int | None = None, *, largest: int | None = None
    ) -> Future[list[Entry]]:
        queue = self._connections.reading(namespace, key)
        return queue.submit(OpKind.READ, scanning.find_history, self._context(namespace, key), limit, largest)

    def version(self, namespace: str, key: bytes, version: int) -> Future[Entry | None]:
        queue = self._connections.reading(namespace, key)
        return queue.submit(OpKind.READ, scanning.find_version, self._context(namespace, key), version)

    async def export(self, namespaces: Sequence[str] | None = None) -> AsyncIterator[PortableEntry]:
        now_ms = self._clock.now_ms()
        exported = scanning.ExportedKeys(await self._connections.ask(scanning.find_newest), now_ms)
        after, more = 0, True
        while more:
            page = await self._connections.ask(scanning.find_page, self._codec, namespaces, after, self._clock.now_ms())
            for item, rowid in zip(page.items, page.rowids, strict=True):
                if exported.is_first(item, rowid):
                    yield item
            after, more = page.after, page.after > 0

    def load(self, items: Sequence[PortableEntry], *, replace: bool) -> Future[Loaded]:
        loading = transfer.Loading(self._codec, tuple(items), replace, self._clock.now_ms(), self._history)
        return self._connections.writer.submit(OpKind.SEVERAL, transfer.load, loading, subject=EVERYTHING)

    def move(self, old: str, new: str, *, force: bool = False) -> Future[int]:
        arguments = (self._codec, old, new, force, self._clock.now_ms())
        return self._connections.writer.submit(OpKind.SEVERAL, transfer.move, *arguments, subject=EVERYTHING)

    def stats(self, namespace: str | None = None) -> Future[ValueStats]:
        return self._connections.ask(scanning.measure, namespace, self._clock.now_ms(), self._locks.alive)

    def _context(self, namespace: str, key: bytes) -> EntryContext:
        return EntryContext(self._codec, namespace, key, self._clock.now_ms())

    def _effects(self, namespace: str, key: bytes, origin: Origin) -> WriteEffects:
        if not self._history and self._events.is_quiet:
            return NO_EFFECTS
        wanted, rule = self._events.subscriptions.of_key(namespace, key), self._history.get(namespace)
        notices = self._events.subscribers.notices(namespace)
        return WriteEffects(wanted, rule, origin, notices) if wanted or rule or notices else NO_EFFECTS


def done(value: T) -> Future[T]:
    future: Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
