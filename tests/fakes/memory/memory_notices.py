"""Notices for the store of dictionaries: the real statements, in a database of their own."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from pathlib import Path

from spyweb.store.notices_protocol import Notice, NoticeFate
from spyweb.store.sqlite import notices
from spyweb.store.sqlite.migrate import load_migrations, migrate
from spyweb.store.sqlite.outbox import COLUMNS, read
from tests.fakes.memory.memory_executor import ImmediateExecutor
from tests.fakes.memory.memory_outbox import MemoryOutbox


class MemoryNotices:
    def __init__(self, executor: ImmediateExecutor, outbox: MemoryOutbox) -> None:
        self._executor = executor
        self._outbox = outbox
        self._found: sqlite3.Connection | None = None
        self._placed: dict[int, int] = {}  # messages of the database -> those of the outbox

    @property
    def _connection(self) -> sqlite3.Connection:
        """Make the database when somebody asks: few tests do."""
        if self._found is None:
            self._found = sqlite3.connect(":memory:", isolation_level=None)
            migrate(self._found, Path(":memory:"), load_migrations(), self._executor.clock.now_ms())
        return self._found

    def close(self) -> None:
        if self._found is not None:
            self._found.close()

    def add(self, notice: Notice) -> Future[NoticeFate]:
        return self._executor.write(self._add, notice)

    async def prune(self, *, older_than_ms: int) -> None:
        await self._executor.write(notices.prune, self._connection, older_than_ms)

    def _add(self, notice: Notice) -> NoticeFate:
        for number, placed in self._placed.items():
            kept = self._outbox.find(placed)
            if kept is None or kept.attempts:  # nothing is added to it
                self._connection.execute("DELETE FROM message WHERE id = ?", (number,))
        fate = notices.add(self._connection, notice, self._executor.clock.now_ms())
        for row in self._connection.execute(f"SELECT {COLUMNS}, holds FROM message ORDER BY id"):
            message = read(row[:-1])
            self._placed[message.id] = self._outbox.place(message, bool(row[-1]), self._placed.get(message.id))
        return fate
