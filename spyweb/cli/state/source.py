"""Find who answers for stored values: the daemon that has the project, or without one its database.

Reading the database takes no lock.  Changing it does, so that nothing is changed behind a daemon that can't be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from spyweb.cli.project import Project
from spyweb.cli.state.remote import RemoteState
from spyweb.errors import Refused
from spyweb.model import JobId, Value
from spyweb.store.protocol import Store
from spyweb.store.records_protocol import NewRecord
from spyweb.store.values_protocol import PortableEntry
from spyweb.views.state import EntryView, Imported, LockView, Moved, StateStats

if TYPE_CHECKING:
    from spyweb.service.state import StateService

T = TypeVar("T")


class StateSource(Protocol):
    """The methods of StateService in blocking form, for a command."""

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[EntryView]: ...

    def entry(self, namespace: str, key: bytes) -> EntryView | None: ...

    def count(self, namespace: str, pattern: bytes) -> int: ...

    def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> bool: ...

    def delete(self, namespace: str, key: bytes) -> bool: ...

    def clear(self, namespace: str, pattern: bytes) -> int: ...

    def stats(self, namespace: str | None) -> StateStats: ...

    def history(self, namespace: str, key: bytes, limit: int | None) -> list[EntryView]: ...

    def rollback(self, namespace: str, key: bytes, version: int) -> bool: ...

    def locks(self) -> list[LockView]: ...

    def break_lock(self, name: bytes) -> LockView | None: ...

    def export(self, namespace: str | None, each: Callable[[PortableEntry], None]) -> None: ...

    def load(
        self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Callable[[PortableEntry], None]
    ) -> Imported: ...

    def add_records(self, job: JobId, records: Sequence[NewRecord]) -> int: ...

    def move(self, old: str, new: str, *, force: bool) -> Moved: ...


def find_state(project: Project) -> StateSource:
    daemon = project.find_daemon()
    if daemon:
        return RemoteState(daemon)
    if project.settings.store.is_memory:
        raise Refused(f"no daemon runs in {project.root}, and what it kept in memory went with it")
    return LocalState(project)


class LocalState:
    """Reads and changes the database itself; before the first start, an empty store stands in for it."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[EntryView]:
        return self._read(lambda service: _all(service.entries(namespace, prefix, limit)))

    def entry(self, namespace: str, key: bytes) -> EntryView | None:
        return self._read(lambda service: service.entry(namespace, key))

    def count(self, namespace: str, pattern: bytes) -> int:
        return self._read(lambda service: service.count(namespace, pattern))

    def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> bool:
        return self._write(lambda service: service.put(namespace, key, value, ttl_ms)).created

    def delete(self, namespace: str, key: bytes) -> bool:
        return self._write(lambda service: service.delete(namespace, key)).deleted

    def clear(self, namespace: str, pattern: bytes) -> int:
        return self._write(lambda service: service.clear(namespace, pattern))

    def stats(self, namespace: str | None) -> StateStats:
        found = self._read(lambda service: service.stats(namespace))
        return replace(found, db_path=str(self._project.settings.store.path), backend="sqlite")

    def history(self, namespace: str, key: bytes, limit: int | None) -> list[EntryView]:
        return self._read(lambda service: service.history(namespace, key, limit))

    def rollback(self, namespace: str, key: bytes, version: int) -> bool:
        return self._write(lambda service: service.rollback(namespace, key, version)).created

    def locks(self) -> list[LockView]:
        return self._read(lambda service: service.locks())

    def break_lock(self, name: bytes) -> LockView | None:
        return self._write(lambda service: service.break_lock(name))

    def export(self, namespace: str | None, each: Callable[[PortableEntry], None]) -> None:
        self._read(lambda service: _tell(service.export(namespace), each))

    def load(
        self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Callable[[PortableEntry], None]
    ) -> Imported:
        ask = self._read if dry_run else self._write
        found = ask(lambda service: service.load(entries, dry_run=dry_run))
        for portable in entries:
            each(portable)
        return found

    def add_records(self, job: JobId, records: Sequence[NewRecord]) -> int:
        return self._write(lambda service: service.add_records(job, records))

    def move(self, old: str, new: str, *, force: bool) -> Moved:
        return self._write(lambda service: service.move(old, new, force=force))

    def _read(self, ask: Callable[[StateService], Awaitable[T]]) -> T:
        async def answer(store: Store) -> tuple[T]:
            return (await ask(self._service(store)),)

        async def nothing_yet() -> tuple[T]:
            from spyweb.store.sqlite.store import open_in_memory

            store = await open_in_memory(clock=self._project.clock)
            try:
                return await answer(store)
            finally:
                await store.close()

        found = self._project.offline.read(answer, None) or asyncio.run(nothing_yet())
        return found[0]

    def _write(self, ask: Callable[[StateService], Awaitable[T]]) -> T:
        return self._project.offline.change_values(lambda store: ask(self._service(store)))

    def _service(self, store: Store) -> StateService:
        from spyweb.service.state import StateService  # where a daemon runs, it is the one that needs it

        return StateService(store=store, clock=self._project.clock, limits=self._project.settings.state)


async def _all(entries: AsyncIterator[EntryView]) -> list[EntryView]:
    return [entry async for entry in entries]


async def _tell(entries: AsyncIterator[PortableEntry], each: Callable[[PortableEntry], None]) -> None:
    async for portable in entries:
        each(portable)
