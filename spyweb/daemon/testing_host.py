"""What answers the ops of one test: its world is made when it first asks for something, and goes with it."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task, TaskGroup
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from spyweb.errors import OpError, SpywebError
from spyweb.lua.session import Host
from spyweb.ops.answer import Results
from spyweb.ops.world import JobLog, World


class LazyHost:
    """`opening` gives the world, `host_in` a Host in it."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[World],
        host_in: Callable[[World], Host],
        log: JobLog,
        tasks: TaskGroup,
    ) -> None:
        self._opening = opening
        self._host_in = host_in
        self._log = log
        self._tasks = tasks
        self._host: Host | None = None
        self._made: Future[Host] = asyncio.get_running_loop().create_future()
        self._is_over = asyncio.Event()
        self._keeper: Task[None] | None = None

    def log(self, level: str, text: bytes) -> None:
        self._log(level, text)

    def op(self, name: str, arguments: Sequence[object]) -> Awaitable[Results]:
        return self._host.op(name, arguments) if self._host else self._first(name, arguments)

    async def close(self) -> None:
        """The test has ended."""
        self._is_over.set()
        if self._keeper:
            await self._keeper

    async def _first(self, name: str, arguments: Sequence[object]) -> Results:
        if self._keeper is None:
            self._keeper = self._tasks.create_task(self._keep(), name="the world of a test")
        try:
            host = await asyncio.shield(self._made)
        except (SpywebError, OSError) as error:
            raise OpError(f"{name}: there is no temporary database: {error}") from error
        return await host.op(name, arguments)

    async def _keep(self) -> None:
        """In a task of its own: a world is left where it was entered."""
        try:
            async with self._opening as world:
                self._host = self._host_in(world)
                self._made.set_result(self._host)
                await self._is_over.wait()
        except (SpywebError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._made.done():
            self._log("error", f"the temporary database was not closed: {error}".encode("utf-8", "replace"))
            return
        self._made.set_exception(error)
        self._made.exception()  # seen, even where the test has ended meanwhile
