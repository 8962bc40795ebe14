"""The one place that knows aiosqlite: a connection, and the thread on which all is done with it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from threading import Thread, current_thread
from typing import Self, TypeVar, TypeVarTuple

import aiosqlite

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

ROWS_AT_ONCE = 64  # aiosqlite wants it for its own cursors, which are not used here


class Connection:
    """A SQLite connection with its own thread, which runs whole functions."""

    def __init__(self, worker: aiosqlite.Connection, thread: Thread, connection: sqlite3.Connection) -> None:
        self._worker = worker
        self._thread = thread
        self._connection = connection

    @classmethod
    async def open(cls, connect: Callable[[], sqlite3.Connection]) -> Self:
        """Call `connect` on the new thread.  Nothing is left of it where this fails or is cancelled.

        The thread is given a connection in any case, so that its end can be awaited: else it might call a loop that has
        ended, or make files in a folder that is about to be removed.
        """
        made: list[tuple[Thread, sqlite3.Connection]] = []
        failures: list[Exception] = []

        def connect_or_note() -> sqlite3.Connection:
            try:
                connection = connect()
            except Exception as error:  # noqa: BLE001 - raised below, once the thread has ended
                failures.append(error)
                connection = sqlite3.connect(":memory:")
            made.append((current_thread(), connection))
            return connection

        worker = aiosqlite.Connection(connect_or_note, ROWS_AT_ONCE)
        opening = asyncio.get_running_loop().create_task(start(worker), name="open a database")
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await opening
            await cls(worker, *made[0]).close()
            raise
        opened = cls(worker, *made[0])
        if failures:
            await opened.close()
            raise failures.pop()
        return opened

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes

    async def run(self, function: Callable[[sqlite3.Connection, *Ts], T], *arguments: *Ts) -> T:
        """Call a function on the thread.

        By aiosqlite's `_execute`, of which its public calls are made: each of those is a round trip between two threads
        for one statement, and a batch of 500 ops would be more than a thousand of them.
        """
        result: T = await self._worker._execute(function, self._connection, *arguments)  # type: ignore[no-untyped-call]
        return result

    async def close(self) -> None:
        """Close it, and wait for the end of its thread."""
        await self._worker.close()
        self._thread.join()


async def start(worker: aiosqlite.Connection) -> None:
    await worker
