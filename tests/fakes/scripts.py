"""Run scripts in real workers, with real ops over a real database; only the scheduler is left out."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spyweb.clock import Clock, RealClock
from spyweb.extraction.extractor import open_extractor
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import Code, EngineInfo, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, JobId, Outcome, RunId, RunState, Trigger
from spyweb.ops import catalog
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.files.artifacts import FOLDER, Artifacts
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.sources import Sources
from spyweb.ops.world import Call, World
from spyweb.permissions.policy import ANYTHING, Policy
from spyweb.programs.runner import CommandLimits, CommandRunner
from spyweb.settings.sections import StateSettings
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.sqlite.store import Store, open_store
from spyweb.store.user_sql.views import Engine
from tests.fakes.ops import FakeChannels, FakeHttp, make_sql

Line = tuple[str, str]  # level, text


@dataclass(kw_only=True)
class Scripts:
    store: Store
    world: World
    pool: Pool
    clock: Clock
    lines: list[Line] = field(default_factory=list, repr=False)  # of all runs
    policy: Policy = ANYTHING  # of every job
    generations: dict[str, int] = field(default_factory=dict, repr=False)  # a source is a generation of its job

    async def run(self, source: str, job: str = "a", *, agent: str = "local", timeout_ms: int = 20_000) -> Ending:
        """Carry out one run, from its claim to its record."""
        run = await self.begin(job)
        return await self.live_through(run, source, job, agent=agent, timeout_ms=timeout_ms)

    async def succeed(self, source: str, job: str = "a", *, agent: str = "local") -> object:
        """Return the first value that a script returned."""
        ending = await self.run(source, job, agent=agent)
        assert ending.outcome is Outcome.SUCCESS, f"{ending.reason}\n{ending.traceback}"
        return ending.result

    async def begin(self, job: str) -> RunId:
        new = NewRun(job=JobId(job), state=RunState.RUNNING, trigger=Trigger())
        (run,) = await self.store.runs.record(Change(new=[new]))
        assert run is not None
        return run

    async def live_through(
        self, run: RunId, source: str, job: str, *, agent: str = "local", timeout_ms: int = 20_000
    ) -> Ending:
        ending = await self.pool.run(self.request(run, source, job, timeout_ms), self.host(run, job, agent))
        end = End(run=run, ended_ms=self.clock.now_ms(), outcome=ending.outcome)
        await self.store.runs.record(Change(end=[end]))
        self.world.run_ended(run)
        return ending

    async def together(self, jobs: Iterable[tuple[str, str]]) -> Sequence[Ending]:
        """Carry out runs of several jobs side by side; `jobs` has the source of each."""
        async with TaskGroup() as tasks:
            running = [tasks.create_task(self.run(source, job)) for job, source in jobs]
        return [task.result() for task in running]

    def cancel(self, run: RunId, why: Why = Why.CANCELLED) -> None:
        self.pool.cancel(run, why)

    def request(self, run: RunId, source: str, job: str, timeout_ms: int) -> Request:
        generation = self.generations.setdefault(source, len(self.generations) + 1)
        code = Code(job=JobId(job), generation=generation, chunk=f"jobs/{job}.lua", source=source.encode())
        arguments = ({"job": job}, False)
        return Request(run=run, code=code, timeout_ms=timeout_ms, cpu_limit_ms=10_000, arguments=arguments)

    def host(self, run: RunId, job: str, agent: str) -> OpDispatcher:
        return OpDispatcher(self.call(run, JobId(job), agent=agent))

    def call(self, run: RunId, job: JobId, *, agent: str = "local", resumes: bool = False) -> Call:
        return Call(
            world=self.world,
            job=job,
            run=run,
            generation=1,
            folder=f"jobs/{job}",
            agent=agent,
            resumes=resumes,
            policy=self.policy,
            log=self._note,
        )

    def _note(self, level: str, text: bytes) -> None:
        self.lines.append((level, text.decode("utf-8", "replace")))

    def texts(self, level: str) -> list[str]:
        return [text for found, text in self.lines if found == level]

    async def set_up(self) -> None:
        """Reset everything that is stored or was logged."""
        for namespace in await self.store.values.namespaces():
            await self.store.values.clear(namespace)
        for held in await self.store.locks.list():
            await self.store.locks.release(held.name, None)
        self.lines.clear()


@asynccontextmanager
async def open_scripts(
    folder: Path, *, workers: int = 2, state: StateSettings | None = None, clock: Clock | None = None
) -> AsyncIterator[Scripts]:
    clock = clock or RealClock()
    store = await open_store(folder / "spyweb.db", clock=clock)
    locks = LockKeeper(store.locks, clock)
    stack = AsyncExitStack()
    world = World(
        store=store,
        clock=clock,
        http=FakeHttp(),
        sources=Sources(folder),
        files=Files(folder, clock),
        artifacts=Artifacts(folder, folder / FOLDER),
        locks=locks,
        commands=CommandRunner(clock, CommandLimits()),
        sql=make_sql(folder, clock, Engine(path=folder / "spyweb.db", key=None)),
        extractor=await stack.enter_async_context(open_extractor(clock)),
        channels=FakeChannels(),
        state=state or StateSettings(),
    )
    try:
        async with (
            world.sql,
            open_pool(clock=clock, workers=workers, init=EngineInfo(ops=sorted(catalog.CATALOGUE))) as pool,
        ):
            yield Scripts(store=store, world=world, pool=pool, clock=clock)
    finally:
        await world.commands.close()
        await stack.aclose()
        locks.close()
        await store.close()
