"""A pool of fake workers in this very process, and the runs that a test begins in it."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from spyweb.clock import Clock
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import Code, EngineInfo, Lineage, Request
from spyweb.lua.wire import Ended
from spyweb.model import MIB, Ending, Isolation, JobId, RunId
from tests.fakes.clock import FakeClock
from tests.fakes.worker import FakeSpawner, FakeWorker

PRICES = JobId("prices")


class Echo:
    """A host whose ops give back what they were given, but for `wait`, which is never answered."""

    def __init__(self) -> None:
        self.ops: list[str] = []
        self.waiting: list[Future[Sequence[object]]] = []
        self.lines: list[bytes] = []

    def end_branch(self, lineage: Lineage) -> None: ...

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Sequence[object]]:
        self.ops.append(name)
        future: Future[Sequence[object]] = asyncio.get_running_loop().create_future()
        if name == "wait":
            self.waiting.append(future)
        else:
            future.set_result(arguments)
        return future

    def log(self, level: str, text: bytes) -> None:
        self.lines.append(text)


@dataclass
class PoolHarness:
    clock: FakeClock
    pool: Pool
    spawner: FakeSpawner
    host: Echo = field(default_factory=Echo)
    tasks: dict[int, Task[Ending]] = field(default_factory=dict)

    async def begin(self, run: int, code: Code, *, fresh: bool = False, timeout_ms: int = 60_000) -> Task[Ending]:
        request = Request(run=RunId(run), code=code, timeout_ms=timeout_ms, cpu_limit_ms=10_000)
        task = self.tasks[run] = asyncio.create_task(self.pool.run(request, self.host, is_fresh=fresh))
        await self.clock.turn()
        return task

    async def finish(self, run: int, ended: Ended = Ended.SUCCESS, *, discarded: bool = False) -> Ending:
        self.worker_of(run).end(run, ended, discarded=discarded)
        await self.clock.turn()
        return self.ending(run)

    async def do(self, run: int, code: Code) -> Ending:
        """A run that ends well."""
        await self.begin(run, code)
        return await self.finish(run)

    def ending(self, run: int) -> Ending:
        return self.tasks[run].result()

    def worker_of(self, run: int) -> FakeWorker:
        """The one where it began last."""
        begun = {f"begin {run}", f"fresh {run}"}
        return next(worker for worker in reversed(self.spawner.workers) if begun & set(worker.story))

    async def kill(self, worker: FakeWorker, *stepping: int) -> None:
        """It dies while these runs are being stepped."""
        worker.step(*stepping)
        worker.die()
        await self.clock.turn()


def make_code(
    job: JobId = PRICES, generation: int = 1, source: bytes = b"", isolation: Isolation = Isolation.SHARED
) -> Code:
    return Code(job=job, generation=generation, chunk=f"jobs/{job}.lua", source=source, isolation=isolation)


@asynccontextmanager
async def open_world(workers: int = 2, memory_budget: int = 512 * MIB) -> AsyncIterator[PoolHarness]:
    clock = FakeClock()
    spawner = FakeSpawner()

    def found(_clock: Clock, _timezone: str) -> FakeSpawner:
        return spawner

    info = EngineInfo(ops=["echo", "wait"], env={"A": "1"})
    async with open_pool(clock=clock, workers=workers, init=info, memory_budget=memory_budget, spawner=found) as pool:
        yield PoolHarness(clock, pool, spawner)
        closing = asyncio.create_task(pool.stop(0))
        await clock.turn(10)
        await closing
