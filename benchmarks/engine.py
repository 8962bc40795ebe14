"""Run the daemon's own parts in this process: workers, store, runner, scheduler, listeners, on jobs without files.

Built by the daemon's own wiring; the one addition notes when a run's first op arrives.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import structlog
from msgspec.structs import replace

from benchmarks.processes import cpu_seconds, family
from spyweb.clock import RealClock
from spyweb.daemon.build import Daemon, assemble, open_server
from spyweb.daemon.runtime import JobRuntime, hosts, open_runtime
from spyweb.daemon.serve import Options, read_settings, tune_interpreter
from spyweb.lua.session import Request
from spyweb.model import Durability, Ending, Every, JobId, JobSpec, Never, Outcome, Run, RunId, RunState, Schedule
from spyweb.ops.op import CATALOGUE
from spyweb.ops.world import Call
from spyweb.reload.swap import make_live_job
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.runner import HostFor, by_hand
from spyweb.specs.parse import JobFile

FIRST_OP = "store_set"
# Two store ops, as in the promise: what a small job that remembers something does.
TWO_OPS = b"n = (n or 0) + 1 store_set('n', tostring(n)) return #store_get('n')"


@dataclass(slots=True)
class Lateness:
    """Collects the milliseconds from a due time to the first op of its run, by job."""

    seen: list[tuple[str, float]] = field(default_factory=list)

    def take(self, prefix: str = "") -> list[float]:
        """Return the lateness of jobs whose names begin so, and forget all of it."""
        taken, self.seen = self.seen, []
        return [late for job, late in taken if job.startswith(prefix)]


@contextmanager
def overheard(op: str, note: Callable[..., None]) -> Iterator[None]:
    """Call `note` with the call and its arguments, each time before the op's own handler."""
    operation = CATALOGUE[op]

    def handler(call: Call, *arguments: object) -> object:
        note(call, *arguments)
        return operation.handler(call, *arguments)

    CATALOGUE[op] = replace(operation, handler=handler)
    try:
        yield
    finally:
        CATALOGUE[op] = operation


@contextmanager
def timed(live: LiveJobs, lateness: Lateness) -> Iterator[None]:
    """Note when each run begins: small jobs set a key first."""

    def note(call: Call, *_: object) -> None:
        job = live.find(call.job)
        run = job.queue.in_flight.get(call.run) if job else None
        if run and run.due_ms is not None:
            lateness.seen.append((run.job, time.time_ns() / 1e6 - run.due_ms))

    with overheard(FIRST_OP, note):
        yield


class RunCounter:
    """Watches runs until so many have ended."""

    audit = None

    def __init__(self, size: int) -> None:
        self._left = size
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def log(self, _level: str, _text: bytes) -> None: ...

    def task(self, _event: object) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None:
        self._left -= 1
        if ending.outcome is not Outcome.SUCCESS and not self.over.done():
            self.over.set_exception(RuntimeError(f"{run.job}: {ending.reason}"))
        elif not self._left and not self.over.done():
            self.over.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    runtime: JobRuntime
    daemon: Daemon
    lateness: Lateness
    host_for: HostFor
    calls: Iterator[int] = field(default_factory=lambda: count(1 << 40))  # ids of runs that are on no record

    def add(self, jobs: Iterable[LiveJob]) -> None:
        for job in jobs:
            self.runtime.live.add(job)

    async def run_all(self, jobs: Sequence[LiveJob]) -> float:
        """Run each job once, all at the same time; return the seconds until the last has ended.

        At its first run a job's VM is made.
        """
        counter = RunCounter(len(jobs))
        began = time.perf_counter()
        for job in jobs:
            self.runtime.runner.start(job, [by_hand(counter)])
        await counter.over
        return time.perf_counter() - began

    async def call_all(self, jobs: Sequence[LiveJob], ctx: Mapping[str, object]) -> float:
        """Run each as `run_all` does, without the records of a run: what is measured is what the script does."""
        began = time.perf_counter()
        await asyncio.gather(*(self.call(job, ctx) for job in jobs))
        return time.perf_counter() - began

    async def call(self, job: LiveJob, ctx: Mapping[str, object]) -> object:
        """Return what the script returned; raise RuntimeError when it failed."""
        run = Run(id=RunId(next(self.calls)), job=job.id, state=RunState.RUNNING)
        arguments = ({"job": job.id, **ctx}, False)
        request = Request(run=run.id, code=job.code, timeout_ms=600_000, cpu_limit_ms=600_000, arguments=arguments)
        ending = await self.runtime.pool.run(request, self.host_for(job, run, None))
        if ending.outcome is not Outcome.SUCCESS:
            raise RuntimeError(ending.reason)
        return ending.result

    async def go(self) -> None:
        """Put every job on its schedule, and start."""
        await self.daemon.scheduler.activate(list(self.runtime.live), {})
        tune_interpreter()
        self.daemon.timers.start()

    def cpu(self) -> float:
        """Return the seconds of processor time so far, of this process and the workers."""
        workers = family(os.getpid())[1:]
        return time.process_time() + sum(map(cpu_seconds, workers))


@asynccontextmanager
async def open_engine(
    root: Path,
    *,
    durability: Durability = Durability.FULL,
    workers: int = 2,
    is_timed: bool = False,
    config: str = "",
) -> AsyncIterator[Engine]:
    """Open an engine; with `is_timed` it notes lateness, which makes each `store_set` a little slower.

    `config` goes into its config.toml.
    """
    be_quiet()
    options = Options(root=root, flags={"port": 0, "workers": workers})
    (root / "config.toml").write_text(f'[store]\ndurability = "{durability.value}"\n{config}')
    file = read_settings(options)
    file.current.daemon.data_dir.mkdir(mode=0o700, exist_ok=True)
    async with AsyncExitStack() as stack:
        runtime = await open_runtime(stack, file.current, RealClock())
        lateness, plain = Lateness(), hosts(runtime.world, runtime.live, runtime.job_logs, echo=False)
        if is_timed:
            stack.enter_context(timed(runtime.live, lateness))
        stack.enter_context(tuned())
        daemon = assemble(runtime, file, await open_server(stack, runtime))
        try:
            yield Engine(runtime=runtime, daemon=daemon, lateness=lateness, host_for=plain)
        finally:
            daemon.scheduler.stop()
            await runtime.runner.drain(1)


@contextmanager
def tuned() -> Iterator[None]:
    """Tune the interpreter as the daemon does; the peers get theirs as it was."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    tune_interpreter()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def be_quiet() -> None:
    """Log only what is critical: hogs are meant to fail, and their logs would be measured with the rest."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def make_job(name: str, source: bytes, schedule: Schedule | None = None, **settings: object) -> LiveJob:
    spec = JobSpec(
        id=JobId(name), name=name, path=f"jobs/{name}.lua", folder=f"jobs/{name}", schedule=schedule or Never()
    )
    spec = replace(spec, **settings)
    return make_live_job(JobFile(spec=spec, lua=((spec.path, source),), digest=name))


def small_jobs(count: int, runs_per_second: int, source: bytes = TWO_OPS, prefix: str = "small") -> list[LiveJob]:
    """Make jobs that together are due that many times a second."""
    every = Every(period_ms=max(1, count * 1000 // runs_per_second))
    return [make_job(f"{prefix}{number}", source, every) for number in range(count)]
