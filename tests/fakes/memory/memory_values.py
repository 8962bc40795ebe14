"""Typed values and their history in dictionaries.

Values are kept as a database would store them, so what one loses or refuses is lost or refused here.
"""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar, cast

from spyweb.errors import StoreError
from spyweb.model import ChangeKind, Value
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.patterns import compile_pattern
from spyweb.store.sqlite.changes import ChangeNote, Effect, EntryContext, Row, decide, entry_of, is_live, renewed
from spyweb.store.sqlite.entries import put_sum
from spyweb.store.sqlite.scanning import size_of_row, size_of_value, within
from spyweb.store.sqlite.transfer import Loading, LoadResult, in_both, load_result, loaded_row
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
    Transform,
    ValueStats,
)
from tests.fakes.memory.memory_events import MemoryEvents
from tests.fakes.memory.memory_executor import ImmediateExecutor
from tests.fakes.memory.memory_locks import MemoryLocks


class Past(NamedTuple):
    row: Row
    archived_ms: int


Place = tuple[str, bytes]  # namespace, key
T = TypeVar("T")


class Table:
    """Holds the rows, their past versions, and what a change of one brings with it."""

    def __init__(self, executor: ImmediateExecutor, events: MemoryEvents, history: HistoryRules) -> None:
        self._executor = executor
        self._events = events
        self.history = history
        self.rows: dict[Place, Row] = {}
        self.past: dict[Place, list[Past]] = {}  # oldest first
        self._last_rowid = 0

    @property
    def now_ms(self) -> int:
        return self._executor.clock.now_ms()

    def live(self, place: Place) -> Row | None:
        row = self.rows.get(place)
        return row if row and is_live(row, self.now_ms) else None

    def entry(self, place: Place) -> Entry | None:
        row = self.live(place)
        return entry_of(PLAIN, *place, row) if row else None

    def live_places(self) -> Iterator[tuple[Place, Row]]:
        now_ms = self.now_ms
        return ((place, row) for place, row in self.rows.items() if is_live(row, now_ms))

    def matter(self, place: Place) -> EntryContext:
        return EntryContext(PLAIN, *place, self.now_ms)

    def last_version(self, place: Place) -> int:
        return max((past.row.version for past in self.past.get(place, ())), default=0)

    def transform(self, place: Place, change: Transform, origin: Origin) -> object:
        effect = decide(self.matter(place), self.rows.get(place), change, self.last_version(place))
        if effect.changes:
            self.put(place, effect.row)
        self.leave_trail(place, effect, origin)
        return effect.result

    def put(self, place: Place, row: Row | None) -> None:
        if row is None:
            self.rows.pop(place, None)
        else:
            self.rows[place] = row if row.rowid else row._replace(rowid=self._next_rowid())

    def leave_trail(self, place: Place, effect: Effect, origin: Origin) -> None:
        if effect.replaced:
            self.archive(place, effect.replaced)
        self._events.add(*place, effect.notes, origin)

    def archive(self, place: Place, row: Row) -> None:
        rule = self.history.get(place[0])
        if rule is None:
            return
        kept = [*self.past.get(place, ()), Past(row, self.now_ms)]
        self.past[place] = kept if rule.versions is None else kept[-rule.versions :]

    def forget_old(self) -> None:
        for place, kept in list(self.past.items()):
            rule = self.history.get(place[0])
            if rule and rule.age_ms is not None:
                least_ms = self.now_ms - rule.age_ms
                self.past[place] = [past for past in kept if past.archived_ms > least_ms]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        rows, past = self.rows.copy(), self.past.copy()
        try:
            yield
        except StoreError:
            self.rows, self.past = rows, past
            raise

    def _next_rowid(self) -> int:
        self._last_rowid += 1
        return self._last_rowid


class MemoryValues:
    def __init__(self, executor: ImmediateExecutor, table: Table, locks: MemoryLocks) -> None:
        self._executor = executor
        self._table = table
        self._locks = locks

    def get(self, namespace: str, key: bytes) -> Future[Value]:
        return self._executor.read(self._find_value, (namespace, key))

    def set(self, namespace: str, key: bytes, value: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        return self._executor.write(self._change, (namespace, key), lambda entry: Put(value), origin)

    def delete(self, namespace: str, key: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        return self._executor.write(self._change, (namespace, key), lambda entry: Drop(), origin)

    def increment(
        self, namespace: str, key: bytes, default: int, delta: int, *, origin: Origin = NOBODY
    ) -> Future[int]:
        summed = self._executor.write(self._table.transform, (namespace, key), partial(put_sum, default, delta), origin)
        return cast("Future[int]", summed)

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        return self._executor.write(self._expire, (namespace, key), at_ms)

    def _find_value(self, place: Place) -> Value:
        entry = self._table.entry(place)
        return entry.value if entry else None

    def _change(self, place: Place, change: Transform, origin: Origin) -> None:
        self._table.transform(place, change, origin)

    def _expire(self, place: Place, at_ms: int | None) -> bool:
        row = self._table.live(place)
        if row:
            self._table.put(place, renewed(self._table.matter(place), row, at_ms))
        return row is not None

    def read(self, namespace: str, key: bytes) -> Future[Entry | None]:
        return self._executor.read(self._table.entry, (namespace, key))

    def transform(
        self, namespace: str, key: bytes, change: Transform, *, origin: Origin = NOBODY, is_awaited: bool = True
    ) -> Future[object]:
        return self._executor.write(self._table.transform, (namespace, key), change, origin)

    def transform_long(
        self, namespace: str, key: bytes, change: Transform, *, origin: Origin = NOBODY
    ) -> Future[object]:
        return self.transform(namespace, key, change, origin=origin)

    def keys(self, namespace: str, pattern: bytes = b"*", *, largest: int | None = None) -> Future[list[bytes]]:
        return self._executor.read(lambda: list(within(largest, self._keys(namespace, pattern), len)))

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
        return self._executor.read(lambda: into(self._items(namespace, prefix, least, order, largest)))

    def clear(self, namespace: str, pattern: bytes = b"*", *, origin: Origin = NOBODY) -> Future[int]:
        return self._executor.write(self._clear, namespace, pattern, origin)

    def namespaces(self, prefix: str = "", *, largest: int | None = None) -> Future[list[str]]:
        return self._executor.read(lambda: list(within(largest, self._namespaces(prefix), len)))

    def counts(self) -> Future[Mapping[str, int]]:
        return self._executor.read(lambda: dict(Counter(name for (name, _), _ in self._table.live_places())))

    async def sweep(self, limit: int | None = None) -> int:
        return await self._executor.write(self._sweep, limit)

    def keep_history(self, rules: HistoryRules) -> None:
        self._table.history = rules

    def history(
        self, namespace: str, key: bytes, limit: int | None = None, *, largest: int | None = None
    ) -> Future[list[Entry]]:
        return self._executor.read(self._history, (namespace, key), limit, largest)

    def version(self, namespace: str, key: bytes, version: int) -> Future[Entry | None]:
        return self._executor.read(self._version, (namespace, key), version)

    async def export(self, namespaces: Sequence[str] | None = None) -> AsyncIterator[PortableEntry]:
        for item in await self._executor.read(self._export, namespaces):
            yield item

    def load(self, items: Sequence[PortableEntry], *, replace: bool) -> Future[Loaded]:
        return self._executor.write(self._load, items, replace)

    def move(self, old: str, new: str, *, force: bool = False) -> Future[int]:
        return self._executor.write(self._move, old, new, force)

    def stats(self, namespace: str | None = None) -> Future[ValueStats]:
        return self._executor.read(self._stats, namespace)

    def _keys(self, namespace: str, pattern: bytes) -> list[bytes]:
        matches = compile_pattern(pattern).matches
        return sorted(key for (name, key), _ in self._table.live_places() if name == namespace and matches(key))

    def _items(
        self, namespace: str, prefix: bytes, least: bytes, order: Order, largest: int | None
    ) -> Iterator[tuple[bytes, Entry]]:
        found = [
            (key, row)
            for (name, key), row in self._table.live_places()
            if name == namespace and key.startswith(prefix) and key >= least
        ]
        found.sort(key=lambda item: item[0] if order is Order.KEY else item[1].rowid)
        for key, row in within(largest, found, size_of_row):
            yield key, entry_of(PLAIN, namespace, key, row)

    def _clear(self, namespace: str, pattern: bytes, origin: Origin) -> int:
        keys = self._keys(namespace, pattern)
        for key in keys:
            self._table.transform((namespace, key), lambda entry: Drop(), origin)
        return len(keys)

    def _namespaces(self, prefix: str) -> list[str]:
        return sorted({name for (name, _), _ in self._table.live_places() if name.startswith(prefix)})

    def _sweep(self, limit: int | None) -> int:
        self._locks.sweep()
        self._table.forget_old()
        now_ms = self._table.now_ms
        expired = [(place, row) for place, row in self._table.rows.items() if not is_live(row, now_ms)]
        expired.sort(key=lambda item: item[1].expires_ms or 0)
        for place, row in expired[: limit_of(limit)]:
            self._table.put(place, None)
            self._table.leave_trail(place, Effect(None, notes=(ChangeNote(ChangeKind.EXPIRED, row, None),)), NOBODY)
        return len(expired[: limit_of(limit)])

    def _history(self, place: Place, limit: int | None, largest: int | None) -> list[Entry]:
        live = self._table.live(place)
        past = [past.row._replace(expires_ms=None) for past in self._table.past.get(place, ())]
        rows = [*([live] if live else []), *reversed(past)][:limit]
        return [entry_of(PLAIN, *place, row) for row in within(largest, rows, size_of_value)]

    def _version(self, place: Place, version: int) -> Entry | None:
        return next((entry for entry in self._history(place, None, None) if entry.version == version), None)

    def _load(self, items: Sequence[PortableEntry], replace: bool) -> Loaded:
        loading = Loading(PLAIN, items, replace, self._table.now_ms, self._table.history)
        with self._table.all_or_nothing():
            results = Counter(self._load_entry(loading, item) for item in items)
        return Loaded(
            written=results[LoadResult.WRITTEN], kept=results[LoadResult.KEPT], expired=results[LoadResult.EXPIRED]
        )

    def _load_entry(self, loading: Loading, item: PortableEntry) -> LoadResult:
        place = (item.namespace, item.key)
        row, live = self._table.rows.get(place), self._table.live(place)
        result = load_result(item, live, loading)
        if result is LoadResult.WRITTEN:
            last_version = row.version if row else self._table.last_version(place)
            self._table.put(place, loaded_row(self._table.matter(place), item, live, last_version))
            if live:
                self._table.archive(place, live)
        return result

    def _move(self, old: str, new: str, force: bool) -> int:
        if old == new:
            return 0
        if force:
            self._give_way(new, self._keys(old, b"*"))
        keys, live = self._keys(old, b"*"), set(self._keys(new, b"*"))
        for key in keys:
            if key in live:
                raise in_both(old, new, key)
        moving = [place for place in self._table.past if place[0] == old and place[1] not in live]
        for key in keys:
            self._table.rows[new, key] = self._table.rows[old, key]
        for place in [place for place in self._table.rows if place[0] == old]:
            del self._table.rows[place]
        for place in moving:
            self._table.past[new, place[1]] = self._table.past.pop(place)
        return len(keys)

    def _give_way(self, namespace: str, keys: Sequence[bytes]) -> None:
        for table in (self._table.rows, self._table.past):
            for key in keys:
                table.pop((namespace, key), None)

    def _export(self, namespaces: Sequence[str] | None) -> list[PortableEntry]:
        rows = sorted(self._table.live_places(), key=lambda item: item[1].rowid)
        return [
            PortableEntry(namespace=name, key=key, entry=entry_of(PLAIN, name, key, row))
            for (name, key), row in rows
            if namespaces is None or name in namespaces
        ]

    def _stats(self, namespace: str | None) -> ValueStats:
        mine = [(place[1], row) for place, row in self._table.rows.items() if namespace in (None, place[0])]
        live = [row for _, row in mine if is_live(row, self._table.now_ms)]
        return ValueStats(
            total_keys=len(live),
            expired_keys=len(mine) - len(live),
            size_bytes=sum(len(key) + size_of(row) for key, row in mine),
            last_modified_ms=max((row.updated_ms for row in live), default=None),
            active_locks=len(self._locks.held_now()),
        )


def limit_of(limit: int | None) -> int | None:
    return None if limit is None else max(limit, 0)


def size_of(row: Row) -> int:
    match row.column:
        case None:
            return 0
        case bytes():
            return len(row.column)
        case column:
            return len(str(column).encode())
