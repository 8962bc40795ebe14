"""The store itself, on a database in memory that answers at once: each future is done when it is given.

So tests on the fake clock wait for no thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Callable, Hashable
from contextlib import closing
from functools import cache, partial
from typing import TypeVar, TypeVarTuple, cast

from spyweb.clock import Clock
from spyweb.store.encryption import PLAIN
from spyweb.store.model.entries import NO_HISTORY, HistoryRules
from spyweb.store.sqlite.batch import BatchQueue, Op, OpKind, commit
from spyweb.store.sqlite.connection import Connection
from spyweb.store.sqlite.connections import Connections
from spyweb.store.sqlite.migrate import create
from spyweb.store.sqlite.store import IN_MEMORY, Store

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ImmediateQueue(BatchQueue):
    """Commits each op as it is submitted.  It may be made before there is a loop."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._sqlite = connection
        begin = partial(super().__init__, cast("Connection", connection), IN_MEMORY, clock)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with closing(asyncio.new_event_loop()) as loop:
                loop.run_until_complete(call(begin))
        else:
            begin()

    async def close(self) -> None:
        self.is_closing = True
        self._sqlite.close()

    def submit(
        self,
        kind: OpKind,
        function: Callable[[sqlite3.Connection, *Ts], T],
        *arguments: *Ts,
        subject: Hashable = None,
        after: Callable[[], None] | None = None,
        is_awaited: bool = True,
    ) -> Future[T]:
        if self.is_closing:
            return self._refused()
        if subject is not None:
            self.pending_writes.begin(subject)
        self.loop = asyncio.get_running_loop()
        future: Future[T] = self.loop.create_future()
        self._batch = [Op(kind, function, arguments, future, subject, after)]
        self._answer(commit(self._sqlite, self._batch))
        return future


async def call(function: Callable[[], None]) -> None:
    function()


@cache
def template() -> sqlite3.Connection:
    connection = connect_in_any_thread()
    create(connection, 0)
    return connection


def connect_in_any_thread() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


class MemoryStore(Store):
    def __init__(self, clock: Clock, *, history: HistoryRules = NO_HISTORY) -> None:
        self._sqlite = connect_in_any_thread()
        template().backup(self._sqlite)
        queue = ImmediateQueue(self._sqlite, clock)
        super().__init__(IN_MEMORY, Connections(writer=queue, reader=queue, questions=queue), clock, PLAIN, history)

    def execute(self, statement: str, *values: object) -> None:
        """Change a row behind the store's back."""
        self._sqlite.execute(statement, values)
