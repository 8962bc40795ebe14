"""Jobs with a scheduler and a runner, on a fake clock, a fake pool and a store in memory."""

from __future__ import annotations

from asyncio import Future, TaskGroup
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, cast
from unittest.mock import patch

from msgspec.structs import replace

from spyweb.errors import Problem, SpywebError, StoreError
from spyweb.lua.session import Code, Lineage
from spyweb.model import Cursor, Every, JobId, JobSpec, Run, RunId, Schedule, TaskRow, Trigger
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.world import Call, Tally
from spyweb.ownership import Ownership
from spyweb.permissions.policy import ANYTHING
from spyweb.runs.live import JobChange, LiveJob, LiveJobs
from spyweb.runs.pings import PingRuns
from spyweb.runs.runner import Runner, RunRequest
from spyweb.scheduler.scheduler import Scheduler
from spyweb.scheduler.slots import SlotWork
from spyweb.stalls import StallRecorder
from spyweb.store.model.runs import Change, SkippedRange
from tests.fakes.changes import refuse
from tests.fakes.clock import FakeClock, settle
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FakeMonitors, FakePool
from tests.fakes.timers import FakeTimers

MINUTE_MS = 60_000


def make_spec(job: str = "prices", **settings: object) -> JobSpec:
    path = f"jobs/{job}"
    spec = JobSpec(id=JobId(job), name=job, path=f"{path}.lua", folder=path, schedule=Every(period_ms=MINUTE_MS))
    return replace(spec, **settings)


def make_job(name: str = "prices", **settings: object) -> LiveJob:
    spec = make_spec(name, **settings)
    code = Code(job=spec.id, generation=1, chunk=spec.path, source=b"return 1")
    return LiveJob(spec=spec, code=code, digest="1", cursor=Cursor(job=spec.id, due_ms=0, schedule=""))


def make_planned(name: str, schedule: Schedule, cursor_ms: int) -> LiveJob:
    """Make a job whose schedule has been dealt with up to a moment."""
    job = make_job(name, schedule=schedule)
    job.cursor = replace(job.cursor, due_ms=cursor_ms)
    return job


class SilentHost(OpDispatcher):
    """The host of a run without ops, which keeps what the run logs and counts what a test says."""

    def __init__(self, *, sql_cpu_s: float = 0) -> None:
        self.trace, self.call = None, cast(Call, SilentCall(Tally(sql_cpu_s=sql_cpu_s)))
        self.lines: list[str] = []

    def end_branch(self, lineage: Lineage) -> None: ...

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> NoReturn:
        raise AssertionError(name)

    def log(self, level: str, text: bytes) -> None:
        self.lines.append(f"{level} {text.decode()}")


@dataclass
class SilentCall:
    """A call that may do anything."""

    tally: Tally

    def gate(self, function: str) -> NetGate:
        return NetGate(ANYTHING, JobId("a"), function)

    def permit(self, function: str, check: str, *arguments: object) -> None: ...


Answer = Future[list[RunId | None]]


@dataclass(slots=True)
class HangingRecord:
    """Replaces a store's `record`: calls wait, in their order, to be granted or refused."""

    record: Callable[[Change], Answer]
    asked: list[tuple[Change, Answer]] = field(default_factory=list)

    def __call__(self, change: Change) -> Answer:
        answer: Answer = Future()
        self.asked.append((change, answer))
        return answer

    async def grant(self) -> None:
        """Carry out the calls that wait, and those that follow from them."""
        while self.asked:
            change, answer = self.asked.pop(0)
            answer.set_result(await self.record(change))
            await settle()

    async def refuse(self) -> None:
        while self.asked:
            self.asked.pop(0)[1].set_exception(StoreError("another process has locked the database"))
        await settle()


BY_HAND = RunRequest(trigger=Trigger(type="manual"))


@dataclass(slots=True)
class Harness:
    clock: FakeClock
    store: MemoryStore
    live: LiveJobs
    pool: FakePool
    monitors: FakeMonitors
    timers: FakeTimers
    runner: Runner
    scheduler: Scheduler
    tasks: TaskGroup
    known: dict[JobId, Cursor] = field(default_factory=dict)

    async def settle(self, *jobs: LiveJob) -> None:
        """Let these jobs live here from now on."""
        for job in jobs:
            self.live.add(job)
        self.live.link()
        await self.scheduler.activate(jobs, await self.store.runs.cursors())
        self.timers.start()
        await self.clock.turn()

    async def start(self, job: LiveJob, seconds: float = 0) -> None:
        """Start a run by hand, and let so much time pass."""
        self.runner.start_by_hand(job, BY_HAND)
        await self.clock.turn(seconds)

    async def hold(self, job: LiveJob, *others: LiveJob, count: int = 1, request: RunRequest = BY_HAND) -> LiveJob:
        """Let these jobs live, and start runs of the first by hand, which end only when the pool is told so."""
        self.pool.held.add(job.id)
        await self.settle(job, *others)
        for _ in range(count):
            self.runner.start_by_hand(job, request)
        await self.clock.turn()
        return job

    @asynccontextmanager
    async def restarted(self, *jobs: LiveJob) -> AsyncIterator[Harness]:
        """Open the next daemon over the same store, which takes up the runs that are open by now."""
        left = await self.store.runs.open()
        async with harness(self.store, self.clock) as after:
            await after.settle(*jobs)
            await after.runner.take_up(left)
            yield after

    async def finish(self, *runs: int) -> None:
        """Have these runs end, one after the other, and let follow what does."""
        for run in runs:
            self.pool.finish(run)
            await self.clock.turn()

    def delete(self, job: LiveJob) -> None:
        self.live.remove(job.id)
        self.runner.forget(job)

    @contextmanager
    def hung(self) -> Iterator[HangingRecord]:
        """In this context the store answers only when told to."""
        hanging = HangingRecord(self.store.runs.record)
        with patch.object(self.store.runs, "record", hanging):
            yield hanging

    @contextmanager
    def refused(self, error: SpywebError | None = None) -> Iterator[None]:
        """In this context the store refuses everything."""
        with patch.object(self.store.runs, "record", partial(refuse, error=error)):
            yield

    async def record(self, job: str | None = None) -> list[str]:
        """Return the runs on record, oldest first, as short lines."""
        runs = await self.store.runs.list(JobId(job) if job else None, limit=1000)
        return [tell(run) for run in reversed(runs)]


def tell(run: Run) -> str:
    outcome = run.outcome.value if run.outcome else run.state.value
    text = f"{run.job} {run.trigger.type or '-'} {outcome}"
    if run.attempt > 1:
        text += f" attempt {run.attempt}"
    return f"{text} x{run.count}" if run.count > 1 else text


@dataclass(slots=True)
class StoryListener:
    """Listens to jobs and runs, and keeps a story of short lines."""

    story: list[str] = field(default_factory=list)

    def run_waits(self, run: Run) -> None:
        self.story.append(f"{run.id} waits")

    def run_began(self, run: Run, late_ms: int | None) -> None:
        assert run.started_ms is not None
        self.story.append(f"{run.id} began")

    def run_ended(self, run: Run, late_ms: int | None) -> None:
        assert run.ended_ms is not None
        self.story.append(f"{run.id} ended: {tell(run)}")

    def task_ended(self, job: JobId, run: RunId, row: TaskRow) -> None: ...

    def skipped(self, skipped: SkippedRange) -> None:
        self.story.append(f"{skipped.job} {skipped.outcome} x{skipped.count}: {skipped.reason}")

    def changed(self, job: LiveJob, change: JobChange) -> None:
        self.story.append(f"{job.id} {change}")

    def broken(self, job: JobId, problems: Sequence[Problem]) -> None:
        self.story.append(f"{job} broken: {problems[0]}")


@asynccontextmanager
async def harness(
    store: MemoryStore | None = None,
    clock: FakeClock | None = None,
    stalls: StallRecorder | None = None,
    pool: FakePool | None = None,
    ownership: Ownership | None = None,
) -> AsyncIterator[Harness]:
    clock = clock or FakeClock()
    async with TaskGroup() as tasks:
        t = assemble(store or MemoryStore(clock), clock, pool or FakePool(), ownership, tasks, stalls)
        yield t
        t.timers.stop()
        for job in t.live.with_runs():
            job.queue.leave_elsewhere()  # nothing here ends them
        for run in t.live.running():
            t.pool.held.clear()
            t.pool.finish(run.id)
        await clock.turn()


def assemble(
    store: MemoryStore,
    clock: FakeClock,
    pool: FakePool,
    ownership: Ownership | None,
    tasks: TaskGroup,
    stalls: StallRecorder | None = None,
) -> Harness:
    live, monitors, timers = LiveJobs(ownership), FakeMonitors(), FakeTimers(clock)
    runner = Runner(
        store=store,
        live=live,
        pool=pool,
        monitors=monitors,
        clock=clock,
        host_for=lambda _job, _run, _observer: SilentHost(),
        run_ended=lambda _run: None,
        random=lambda: 0.5,
        stalls=stalls or StallRecorder(),
        tasks=tasks,
    )
    scheduler = Scheduler(timers=timers, live=live, runner=runner, runs=store.runs, clock=clock)
    return Harness(clock, store, live, pool, monitors, timers, runner, scheduler, tasks)


def slot_work(t: Harness) -> SlotWork:
    live, runner = t.live, t.runner
    pings = PingRuns(runner=runner, live=live, write_line=lambda *_: None, clock=t.clock)
    runs, scheduler = t.store.runs, t.scheduler
    return SlotWork(live=live, scheduler=scheduler, runner=runner, pings=pings, runs=runs)
