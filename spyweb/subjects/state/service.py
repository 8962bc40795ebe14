"""Stored values and locks as the command line and the HTTP server see them, over any open store.

A running daemon has one for its socket; without a daemon a command makes one over the database that it opened itself.
So both answer alike.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import cast

from msgspec.structs import asdict, replace

from spyweb.clock import Clock
from spyweb.errors import Refused, StoreError
from spyweb.limits import KEY
from spyweb.model import MIB, NULL, ChangeKind, JobId, Value
from spyweb.ops.resources import NAMESPACE, BadResource, job_of, key_of, prefix_of, read_resource
from spyweb.ops.rules import updates
from spyweb.ops.rules.updates import Update, Updated, UpdateKind
from spyweb.ops.rules.values import Unstorable, fits, shown, size_of
from spyweb.settings.sections import StateSettings
from spyweb.store.interchange.lines import UNKNOWN_MS
from spyweb.store.interchange.value_json import Plain, from_plain, to_plain
from spyweb.store.model.entries import (
    KEEP,
    SCOPES,
    Blind,
    ChangeEvent,
    Drop,
    Entry,
    Leave,
    PortableEntry,
    Put,
    Replacement,
    Watch,
)
from spyweb.store.model.records import NewRecord
from spyweb.store.sqlite.store import Store
from spyweb.subjects.state import views

REACH_DEEPER = frozenset({UpdateKind.MERGE, UpdateKind.APPEND})  # their path may be a list of names
PAGE = 200  # entries read at a time, or fewer large ones: an answer of a million holds up nothing else
PAGE_BYTES = 4 * MIB  # of values; the one that reaches it is the last
CHECKED = 50  # entries of an import looked up at a time; each may be a megabyte
HEARTBEAT = 15.0  # seconds; without one, a watcher that has hung up would be noticed only at the next change
MOST_WAITING = 10_000  # changes; a slower reader is disconnected rather than filling the memory
MOST_WAITING_BYTES = 4 * MIB  # of the keys and values in these changes


@dataclass(slots=True)
class ChangeQueue:
    """Queues the changes that the watcher has not read yet."""

    waiting: asyncio.Queue[tuple[ChangeEvent | None, int]] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    size: int = 0  # bytes of the keys and values that wait
    is_late: bool = False

    def hear(self, event: ChangeEvent | None) -> None:
        """Queue a change, which is shared with other watchers; drop all when they are too many."""
        if self.is_late:
            return
        size = len(event.key) + size_of(event.old) + size_of(event.new) if event else 0
        if self.waiting.full() or (self.size and self.size + size > MOST_WAITING_BYTES):
            self.is_late = True
            while not self.waiting.empty():
                self.waiting.get_nowait()
            event, size, self.size = None, 0, 0
        self.size += size
        self.waiting.put_nowait((event, size))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateService:
    store: Store
    clock: Clock
    limits: StateSettings

    async def entries(self, namespace: str, prefix: bytes, limit: int | None) -> AsyncIterator[views.EntryView]:
        """Yield entries, sorted by key, bytewise."""
        least, left = prefix, sys.maxsize if limit is None else limit
        while page := await self.store.values.gather(namespace, prefix, partial(take_page, left), least=least):
            for key, entry in page:
                yield views.view_entry(namespace, key, entry)
            least, left = page[-1][0] + b"\0", left - len(page)

    async def page(self, namespace: str, prefix: bytes, *, after: bytes | None, limit: int) -> list[views.EntryView]:
        """Return entries whose keys have a prefix, sorted by key, bytewise, from the first after a key on.

        There may be fewer than there are: of large ones, as many as fit into an answer.
        """
        least = prefix if after is None else max(prefix, after + b"\0")
        page = await self.store.values.gather(namespace, prefix, partial(take_page, limit), least=least)
        return await asyncio.to_thread(lambda: [views.view_entry(namespace, key, entry) for key, entry in page])

    async def entry(self, namespace: str, key: bytes) -> views.EntryView | None:
        found = await self.store.values.read(namespace, key)
        return views.view_entry(namespace, key, found) if found else None

    async def count(self, namespace: str, pattern: bytes) -> views.EntriesCounted:
        return views.EntriesCounted(count=len(await self.store.values.keys(namespace, pattern)))

    async def put(
        self, namespace: str, key: bytes, value: Value, ttl_ms: int | None, *, version: int | None = None
    ) -> views.EntryWritten:
        """Write an entry, its expiry included.

        Raises Refused over the limits, and where a `version` is given and the entry has another; 0 stands for none.
        """
        self._check(namespace, key, value)
        if value is NULL and not namespace.startswith(SCOPES):
            raise Refused(f"{shown(key)}: only a scope can keep JSON's null, by itself or in a table")
        expires_ms = self.clock.now_ms() + ttl_ms if ttl_ms else None
        if version is None:
            return await self._replace(namespace, key, value, expires_ms)

        def change(entry: Entry | None) -> Put:
            if version != (entry.version if entry else 0):
                raise Refused("it was changed meanwhile: see its history, and save again if necessary")
            return Put(value, expires_ms, entry)

        return await asyncio.to_thread(view_written, await self.store.values.transform(namespace, key, change), value)

    async def update(self, namespace: str, key: bytes, ops: Sequence[views.UpdateOp]) -> views.EntryUpdated:
        """Do update ops on a value, as one step; an op that can't be done is reported, and the others are done.

        Raises Refused over the limits, for a namespace of texts, and for an op that no value could accept.
        """
        if views.is_text(namespace):
            raise Refused(f"{shown(key)}: only a scope and `state` hold values that can be updated")
        self._check(namespace, key, NULL)
        steps = await asyncio.to_thread(lambda: [read_update(number, op) for number, op in enumerate(ops)])

        def change(entry: Entry | None) -> Put:
            old = entry.value if entry else None
            try:
                updated = updates.apply(old, steps)
            except Unstorable as problem:
                raise Refused(f"{shown(key)}: {problem}") from None
            self._check(namespace, key, updated.value)
            if updated.value is NULL and not namespace.startswith(SCOPES):
                raise Refused(f"{shown(key)}: only a scope can keep JSON's null, by itself or in a table")
            return Put(updated.value, KEEP, (old, updated))

        def view() -> views.EntryUpdated:
            old_value = None if old is None else to_plain(old)
            return views.EntryUpdated(old_value=old_value, new_value=to_plain(updated.value), errors=updated.problems)

        written = await self.store.values.transform(namespace, key, change)
        old, updated = cast("tuple[Value | None, Updated]", written)
        return await asyncio.to_thread(view)

    async def namespaces(self) -> list[views.NamespaceView]:
        """Return the namespaces with entries, sorted, each with the number of its entries."""
        return [
            views.NamespaceView(
                namespace=name,
                scope=name.removeprefix(SCOPES) if name.startswith(SCOPES) else None,
                job=JobId(name.removeprefix(views.JOBS)) if name.startswith(views.JOBS) else None,
                keys=keys,
            )
            for name, keys in sorted((await self.store.values.counts()).items())
        ]

    async def delete(self, namespace: str, key: bytes) -> views.EntryDeleted:
        found = await self._exchange(namespace, key, lambda there: Drop(there) if there else Leave(there))
        return views.EntryDeleted(deleted=bool(found), old_value=await asyncio.to_thread(_old_value, found))

    async def _replace(self, namespace: str, key: bytes, value: Value, expires_ms: int | None) -> views.EntryWritten:
        found = await self._exchange(namespace, key, lambda there: Put(value, expires_ms, there))
        return await asyncio.to_thread(view_written, found, value)

    async def _exchange(self, namespace: str, key: bytes, change: Callable[[object], Put | Drop | Leave]) -> object:
        """Do a change that returns the entry before it; of a damaged entry, only whether there was one."""
        try:
            return await self.store.values.transform(namespace, key, change)
        except StoreError:
            return await self.store.values.transform(namespace, key, Blind(change))

    async def clear(self, namespace: str, pattern: bytes) -> views.EntriesCleared:
        return views.EntriesCleared(deleted=await self.store.values.clear(namespace, pattern))

    async def stats(self, namespace: str | None) -> views.StateStats:
        counted, store = await self.store.values.stats(namespace), self.store.stats()
        return views.StateStats(
            **asdict(counted), db_size_bytes=store.size_bytes, db_path=store.path, backend=store.backend
        )

    async def history(self, namespace: str, key: bytes, limit: int | None) -> list[views.EntryView]:
        """Return the stored versions, newest first; the first of a live entry is its current value."""
        versions = await self.store.values.history(namespace, key, limit)
        return [views.view_entry(namespace, key, entry) for entry in versions]

    async def rollback(self, namespace: str, key: bytes, version: int) -> views.EntryWritten:
        """Write the value of an earlier version as a new one without expiry.  Raises Refused when it is not kept."""
        found = await self.store.values.version(namespace, key, version)
        if found is None:
            raise Refused(f"{shown(key)}: there is no version {version}: `spyweb state history` lists the versions")
        return await self._replace(namespace, key, found.value, None)

    async def locks(self) -> list[views.LockView]:
        return [views.view_lock(held) for held in await self.store.locks.list()]

    async def break_lock(self, name: bytes) -> views.LockBroken:
        """Release a lock."""
        held = await self.store.locks.release(name, None)
        return views.LockBroken(broken=views.view_lock(held) if held else None)

    def export(self, namespace: str | None) -> AsyncIterator[PortableEntry]:
        return self.store.values.export(None if namespace is None else [namespace])

    async def load(self, entries: Sequence[PortableEntry], *, dry_run: bool) -> views.Imported:
        """Import all entries or none.  Raises Refused when one is beyond the limits."""
        now_ms = self.clock.now_ms()
        ready: list[PortableEntry] = []
        replaced = expired = 0
        rest = iter(entries)
        while chunk := list(islice(rest, CHECKED)):
            ready += await asyncio.to_thread(self._checked, chunk, now_ms)
            found = await asyncio.gather(*(self.store.values.read(each.namespace, each.key) for each in chunk))
            is_over = [each.entry.expires_ms is not None and each.entry.expires_ms <= now_ms for each in chunk]
            expired += sum(is_over)
            replaced += sum(there is not None and not over for there, over in zip(found, is_over, strict=True))
        if not dry_run:
            await self.store.values.load(ready, replace=True)
        return views.Imported(added=len(ready) - replaced - expired, replaced=replaced, expired=expired)

    async def add_records(self, job: JobId, records: Sequence[NewRecord]) -> views.RecordsAdded:
        """Store records that another program has found, without notifications."""
        added = await self.store.records.add(job, records)
        return views.RecordsAdded(added=sum(number is not None for number in added))

    async def move(self, old: str, new: str, *, force: bool = False) -> views.Moved:
        """Move one namespace's entries to another.

        A key that is in both is deleted there with `force`; without it, StoreError is raised and nothing is moved.
        A job's records and resources move with its keys; after an interruption, moving again completes it.
        """
        moved, records = await self.store.values.move(old, new, force=force), 0
        if old.startswith(views.JOBS) and new.startswith(views.JOBS):
            of_old, of_new = (JobId(namespace.removeprefix(views.JOBS)) for namespace in (old, new))
            records = await self.store.records.move(of_old, of_new)
            moved += await self._move_resources(of_old, of_new)
        return views.Moved(moved=moved, records=records)

    async def _move_resources(self, old: JobId, new: JobId) -> int:
        """Move a job's resources to another job, except any that the other has recorded itself; return how many."""
        values, take, least, moved = self.store.values, partial(take_page, PAGE), prefix_of(old), 0
        while old != new and (page := await values.gather(NAMESPACE, prefix_of(old), take, least=least)):
            least = page[-1][0] + b"\0"
            renamed = dict[bytes, PortableEntry]()  # without rows of others, and those that can't be read
            for key, entry in page:
                with suppress(BadResource):
                    if job_of(key) == old:
                        there = key_of(new, read_resource(key, entry.value).kept, self.limits.max_key_bytes)
                        renamed[key] = PortableEntry(namespace=NAMESPACE, key=there, entry=entry)
            moved += (await values.load(list(renamed.values()), replace=False)).written
            await asyncio.gather(*(values.transform(NAMESPACE, key, Replacement(Drop)) for key in renamed))
        return moved

    async def watch(self, namespace: str | None, pattern: bytes) -> AsyncGenerator[views.ChangeView | None, None]:
        """Yield each change of a matching key after its commit.  Raises Refused when the reader is too slow.

        The first None says that no change is missed from then on; further Nones let the caller notice that its client
        has hung up.  Changes come from memory: watching writes nothing.
        """
        changes = ChangeQueue()
        wanted = Watch(namespace=namespace or "", is_prefix=namespace is None, key=pattern, kinds=frozenset(ChangeKind))
        leave = self.store.events.follow(wanted, changes.hear)
        try:
            yield None
            while not changes.is_late:
                beat = self.clock.call_later(HEARTBEAT, partial(changes.hear, None))
                try:
                    event, size = await changes.waiting.get()
                finally:
                    beat.cancel()
                changes.size -= size
                yield views.view_change(event) if event else None
            raise Refused("changes arrive faster than they are read")
        finally:
            leave()

    def _checked(self, entries: Sequence[PortableEntry], now_ms: int) -> list[PortableEntry]:
        """Return entries of an import, with `now` for the times that their lines left out."""
        checked = []
        for portable in entries:
            self._check(portable.namespace, portable.key, portable.entry.value)
            created_ms, updated_ms = portable.entry.created_ms, portable.entry.updated_ms
            if UNKNOWN_MS in (created_ms, updated_ms):
                created_ms = created_ms or updated_ms or now_ms
                updated_ms = updated_ms or max(created_ms, now_ms)
                entry = replace(portable.entry, created_ms=created_ms, updated_ms=updated_ms)
                portable = replace(portable, entry=entry)
            checked.append(portable)
        return checked

    def _check(self, namespace: str, key: bytes, value: Value) -> None:
        """Raise Refused beyond the limits, which are those of `state`; for store_* only keys are limited."""
        longest = KEY if views.is_text(namespace) else self.limits.max_key_bytes
        if len(key) > longest:
            raise Refused(f"{shown(key)}: the key of {len(key)} bytes is over the limit of {longest}")
        if views.is_text(namespace):
            return
        size = size_of(value)
        if size > self.limits.max_value_bytes:
            raise Refused(f"{shown(key)}: the value of {size} bytes is over the limit of {self.limits.max_value_bytes}")


def read_update(number: int, op: views.UpdateOp) -> Update:
    path = (op.path,) if isinstance(op.path, str) else tuple(op.path)
    if len(path) > 1 and op.type not in REACH_DEEPER:
        raise Refused(f"ops[{number}].path: {op.type} takes the name of a field, not a list")
    if not fits(op.by):
        raise Refused(f"ops[{number}].by: does not fit into 64 bits")
    try:
        value = from_plain(op.value)
    except ValueError as error:
        raise Refused(f"ops[{number}].value: {error}") from error
    return Update(kind=op.type, path=tuple(each.encode() for each in path if each), value=value, by=op.by)


def view_written(found: object, value: Value) -> views.EntryWritten:
    return views.EntryWritten(created=not found, old_value=_old_value(found), new_value=to_plain(value))


def _old_value(found: object) -> Plain:
    return to_plain(found.value) if isinstance(found, Entry) else None


def take_page(most: int, entries: Iterator[tuple[bytes, Entry]]) -> list[tuple[bytes, Entry]]:
    page, size = [], 0
    for key, entry in islice(entries, min(most, PAGE)):
        page.append((key, entry))
        size += size_of(entry.value)
        if size >= PAGE_BYTES:
            break
    return page
