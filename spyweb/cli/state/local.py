"""Stored values as the database has them, where no daemon runs.

Reading takes no lock.  Changing does, so that nothing is changed behind a daemon that can't be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from spyweb.cli.project import Project
from spyweb.service.state import StateService
from spyweb.store.model.entries import PortableEntry
from spyweb.store.sqlite.store import Store, open_in_memory
from spyweb.views.state import EntryView, Imported, StateStats

P = ParamSpec("P")
T = TypeVar("T")


def _reading(
    method: Callable[Concatenate[StateService, P], Awaitable[T]],
) -> Callable[Concatenate[LocalState, P], T]:
    """Make a method of the service one that a command can call."""

    def ask(self: LocalState, /, *args: P.args, **options: P.kwargs) -> T:
        return self.read(lambda service: method(service, *args, **options))

    return ask


def _changing(
    method: Callable[Concatenate[StateService, P], Awaitable[T]],
) -> Callable[Concatenate[LocalState, P], T]:
    def ask(self: LocalState, /, *args: P.args, **options: P.kwargs) -> T:
        return self.write(lambda service: method(service, *args, **options))

    return ask


class LocalState:
    """Asks the service of stored values over the database; before the first start, over an empty one."""

    def __init__(self, project: Project) -> None:
        self._project = project

    entry = _reading(StateService.entry)
    count = _reading(StateService.count)
    history = _reading(StateService.history)
    locks = _reading(StateService.locks)
    put = _changing(StateService.put)
    delete = _changing(StateService.delete)
    clear = _changing(StateService.clear)
    rollback = _changing(StateService.rollback)
    break_lock = _changing(StateService.break_lock)
    add_records = _changing(StateService.add_records)
    move = _changing(StateService.move)

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> list[EntryView]:
        return self.read(lambda service: _all(service.entries(namespace, prefix, limit)))

    def stats(self, namespace: str | None) -> StateStats:
        found = self.read(lambda service: service.stats(namespace))
        return replace(found, db_path=str(self._project.settings.store.path), backend="sqlite")

    def export(self, namespace: str | None, each: Callable[[PortableEntry], None]) -> None:
        self.read(lambda service: _tell(service.export(namespace), each))

    def load(
        self, entries: Sequence[PortableEntry], *, dry_run: bool, each: Callable[[PortableEntry], None]
    ) -> Imported:
        ask = self.read if dry_run else self.write
        found = ask(lambda service: service.load(entries, dry_run=dry_run))
        for portable in entries:
            each(portable)
        return found

    def read(self, ask: Callable[[StateService], Awaitable[T]]) -> T:
        async def answer(store: Store) -> tuple[T]:
            return (await ask(self._service(store)),)

        async def nothing_yet() -> tuple[T]:
            store = await open_in_memory(clock=self._project.clock)
            try:
                return await answer(store)
            finally:
                await store.close()

        found = self._project.offline.read(answer, None) or asyncio.run(nothing_yet())
        return found[0]

    def write(self, ask: Callable[[StateService], Awaitable[T]]) -> T:
        return self._project.offline.change_values(lambda store: ask(self._service(store)))

    def _service(self, store: Store) -> StateService:
        return StateService(store=store, clock=self._project.clock, limits=self._project.settings.state)


async def _all(entries: AsyncIterator[EntryView]) -> list[EntryView]:
    return [entry async for entry in entries]


async def _tell(entries: AsyncIterator[PortableEntry], each: Callable[[PortableEntry], None]) -> None:
    async for portable in entries:
        each(portable)
