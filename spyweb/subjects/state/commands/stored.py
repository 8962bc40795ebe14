"""Stored values as a running daemon gives them, or, where none runs, as the database has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.project import Backend
from spyweb.errors import Refused
from spyweb.model import JobId, Value
from spyweb.store.interchange.lines import END, entry_line, parse_line
from spyweb.store.interchange.value_json import encode_value
from spyweb.store.model.entries import PortableEntry
from spyweb.store.model.records import NewRecord
from spyweb.subjects.state.views import EntryDeleted, EntryView, EntryWritten, Imported, LockView, Moved, StateStats

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject
    from spyweb.store.sqlite.store import Store
    from spyweb.subjects.state.service import StateService

T = TypeVar("T")
Each = Callable[[PortableEntry], None]


class StoredState:
    """The values are read without the lock, and changed under it: never behind a daemon that can't be reached."""

    def __init__(self, source: Backend) -> None:
        self._source = source

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[EntryView]:
        if isinstance(self._source, DaemonClient):
            target = _target("entries", namespace=namespace, prefix=prefix, limit=limit)
            return [msgspec.json.decode(line, type=EntryView) for line in _whole(self._source, target)]
        return _read(self._source, lambda service: _all(service.entries(namespace, prefix, limit)))

    def entry(self, namespace: str, key: bytes) -> EntryView | None:
        if isinstance(self._source, DaemonClient):
            target = _target("entry", namespace=namespace, key=key)
            return self._source.ask("GET", target, dict[str, EntryView | None])["entry"]
        return _read(self._source, lambda service: service.entry(namespace, key))

    def count(self, namespace: str, pattern: bytes) -> int:
        if isinstance(self._source, DaemonClient):
            target = _target("count", namespace=namespace, pattern=pattern)
            return self._source.ask("GET", target, dict[str, int], timeout=None)["count"]
        return _read(self._source, lambda service: service.count(namespace, pattern))

    def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> EntryWritten:
        if isinstance(self._source, DaemonClient):
            target = _target("entry", namespace=namespace, key=key, ttl_ms=ttl_ms)
            return self._source.ask("PUT", target, EntryWritten, body=encode_value(value))
        return _change(self._source, lambda service: service.put(namespace, key, value, ttl_ms))

    def delete(self, namespace: str, key: bytes) -> EntryDeleted:
        if isinstance(self._source, DaemonClient):
            target = _target("entry", namespace=namespace, key=key)
            return self._source.ask("DELETE", target, EntryDeleted, timeout=None)
        return _change(self._source, lambda service: service.delete(namespace, key))

    def clear(self, namespace: str, pattern: bytes) -> int:
        if isinstance(self._source, DaemonClient):
            target = _target("entries", namespace=namespace, pattern=pattern)
            return self._source.ask("DELETE", target, dict[str, int], timeout=None)["deleted"]
        return _change(self._source, lambda service: service.clear(namespace, pattern))

    def stats(self, namespace: str | None) -> StateStats:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("GET", _target("stats", namespace=namespace), StateStats, timeout=None)
        found = _read(self._source, lambda service: service.stats(namespace))
        return replace(found, db_path=str(self._source.settings.store.path), backend="sqlite")

    def history(self, namespace: str, key: bytes, limit: int | None) -> list[EntryView]:
        if isinstance(self._source, DaemonClient):
            target = _target("history", namespace=namespace, key=key, limit=limit)
            return self._source.ask("GET", target, list[EntryView])
        return _read(self._source, lambda service: service.history(namespace, key, limit))

    def rollback(self, namespace: str, key: bytes, version: int) -> EntryWritten:
        if isinstance(self._source, DaemonClient):
            target = _target("rollback", namespace=namespace, key=key, version=version)
            return self._source.ask("POST", target, EntryWritten, timeout=None)
        return _change(self._source, lambda service: service.rollback(namespace, key, version))

    def locks(self) -> list[LockView]:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("GET", _target("locks"), list[LockView])
        return _read(self._source, lambda service: service.locks())

    def break_lock(self, name: bytes) -> LockView | None:
        if isinstance(self._source, DaemonClient):
            return self._source.ask("DELETE", _target("locks", name=name), dict[str, LockView | None])["broken"]
        return _change(self._source, lambda service: service.break_lock(name))

    def export(self, namespace: str | None, each: Each) -> None:
        if isinstance(self._source, DaemonClient):
            for line in _whole(self._source, _target("export", namespace=namespace)):
                each(parse_line(line))
        else:
            _read(self._source, lambda service: _tell(service.export(namespace), each))

    def load(self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Each) -> Imported:
        if isinstance(self._source, DaemonClient):
            target = _target("import", dry_run="true" if dry_run else None)
            return self._source.ask("POST", target, Imported, body=_entry_lines(entries, each), timeout=None)
        ask = _read if dry_run else _change
        found: Imported = ask(self._source, lambda service: service.load(entries, dry_run=dry_run))
        for portable in entries:
            each(portable)
        return found

    def add_records(self, job: JobId, records: Sequence[NewRecord]) -> int:
        if isinstance(self._source, DaemonClient):
            target, body = _target("records", job=job), msgspec.json.encode(records)
            return self._source.ask("POST", target, dict[str, int], body=body, timeout=None)["added"]
        return _change(self._source, lambda service: service.add_records(job, records))

    def move(self, old: str, new: str, *, force: bool) -> Moved:
        if isinstance(self._source, DaemonClient):
            target = _target("move", old=old, new=new, force="true" if force else None)
            return self._source.ask("POST", target, Moved, timeout=None)
        return _change(self._source, lambda service: service.move(old, new, force=force))


def _target(what: str, **parameters: bytes | str | int | None) -> str:
    return with_query(f"/api/state/{what}", **parameters)


def _whole(daemon: DaemonClient, target: str) -> Iterator[bytes]:
    """Yield the lines of a stream.  Raises Refused where it was truncated: it would look like a complete one."""
    for line in daemon.lines(target, timeout=None):
        if line.startswith(END):
            return
        yield line
    raise Refused(daemon.cut_off("it had sent everything"))


def _entry_lines(entries: Sequence[PortableEntry], each: Each) -> Iterator[bytes]:
    for portable in entries:
        yield entry_line(portable)
        each(portable)


def _read(offline: OfflineProject, ask: Callable[[StateService], Awaitable[T]]) -> T:
    """Ask the service over the database; before the first start, over an empty one."""

    async def answer(store: Store) -> tuple[T]:
        return (await ask(_service(offline, store)),)

    async def nothing_yet() -> tuple[T]:
        from spyweb.store.sqlite.store import open_in_memory

        store = await open_in_memory(clock=offline.clock)
        try:
            return await answer(store)
        finally:
            await store.close()

    found = offline.read(answer, None) or asyncio.run(nothing_yet())
    return found[0]


def _change(offline: OfflineProject, ask: Callable[[StateService], Awaitable[T]]) -> T:
    return offline.change_values(lambda store: ask(_service(offline, store)))


def _service(offline: OfflineProject, store: Store) -> StateService:
    from spyweb.subjects.state.service import StateService  # where a daemon runs, it is the one that needs it

    return StateService(store=store, clock=offline.clock, limits=offline.settings.state)


async def _all(entries: AsyncIterator[EntryView]) -> list[EntryView]:
    return [entry async for entry in entries]


async def _tell(entries: AsyncIterator[PortableEntry], each: Each) -> None:
    async for portable in entries:
        each(portable)
