"""The daemon's own parts in this process: workers, store, runner, scheduler, doors, on jobs that need no files.

Built by the daemon's own wiring; the one addition is a host that notes when a run's first op arrives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from benchmarks.processes import cpu_seconds, family
from spyweb.clock import RealClock
from spyweb.daemon.build import Parts, Purpose, build, hosts
from spyweb.daemon.options import Options
from spyweb.daemon.serve import Daemon, assemble, read_settings
from spyweb.jobs.discover import JobFile
from spyweb.jobs.live import LiveJob
from spyweb.jobs.run import CountingHost, Observer, Runner, Start, Surroundings
from spyweb.model import Ending, Every, JobId, JobSpec, Never, Outcome, Run, Schedule, TriggerType
from spyweb.reload.swap import newcomer
from spyweb.store.protocol import Durability

# Two store ops, as in the promise: what a small job that remembers something does.
TWO_OPS = b"n = (n or 0) + 1 store_set('n', tostring(n)) return #store_get('n')"


@dataclass(slots=True)
class Lateness:
    """Milliseconds from a due time to the first op of its run, by job."""

    seen: list[tuple[str, float]] = field(default_factory=list)

    def take(self, prefix: str = "") -> list[float]:
        """Of the jobs whose names begin so; everything is forgotten."""
        taken, self.seen = self.seen, []
        return [late for job, late in taken if job.startswith(prefix)]


class TimedHost:
    """Hands everything on, and notes the first op."""

    def __init__(self, host: CountingHost, run: Run, lateness: Lateness) -> None:
        self._host = host
        self._run: Run | None = run
        self._lateness = lateness
        self.log = host.log

    @property
    def storage_errors(self) -> int:
        return self._host.storage_errors

    def op(self, name: str, arguments: Sequence[object]) -> Awaitable[Sequence[object]]:
        if self._run is not None:
            if self._run.due_ms is not None:
                self._lateness.seen.append((self._run.job, time.time_ns() / 1e6 - self._run.due_ms))
            self._run = None
        return self._host.op(name, arguments)


class Crowd:
    """Watches runs until so many have ended."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def log(self, _level: str, _text: bytes) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None:
        self._left -= 1
        if ending.outcome is not Outcome.SUCCESS and not self.over.done():
            self.over.set_exception(RuntimeError(f"{run.job}: {ending.reason}"))
        elif not self._left and not self.over.done():
            self.over.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    parts: Parts
    daemon: Daemon
    lateness: Lateness

    def add(self, jobs: Iterable[LiveJob]) -> None:
        for job in jobs:
            self.parts.live.add(job)

    async def run_all(self, jobs: Sequence[LiveJob]) -> float:
        """Run each once, all at the same time; gives the seconds until the last has ended.

        At its first run a job's VM is made.
        """
        crowd = Crowd(len(jobs))
        began = time.perf_counter()
        for job in jobs:
            self.parts.runner.start(job, [Start(trigger={"type": TriggerType.MANUAL.value}, observer=crowd)])
        await crowd.over
        return time.perf_counter() - began

    async def go(self) -> None:
        """Put every job on its schedule, and start."""
        await self.daemon.scheduler.welcome(list(self.parts.live), {})
        self.daemon.scheduler.start()

    def cpu(self) -> float:
        """Seconds of processor so far, of this process and the workers."""
        workers = family(os.getpid())[1:]
        return time.process_time() + sum(map(cpu_seconds, workers))


@asynccontextmanager
async def open_engine(root: Path, *, durability: Durability = Durability.FULL, workers: int = 2) -> AsyncIterator[Engine]:
    be_quiet()
    options = Options(root=root, flags={"port": 0, "workers": workers})
    (root / "config.toml").write_text(f'[store]\ndurability = "{durability.value}"\n')
    settings = read_settings(options)
    settings.daemon.data_dir.mkdir(mode=0o700, exist_ok=True)
    async with AsyncExitStack() as stack:
        parts = await build(stack, settings, RealClock(), Purpose(workers=workers, echo=False))
        lateness = Lateness()
        timed = replace(parts, runner=timed_runner(parts, lateness))
        daemon = assemble(timed, options)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)  # Ctrl-C ends a benchmark
        try:
            yield Engine(parts=timed, daemon=daemon, lateness=lateness)
        finally:
            daemon.scheduler.stop()
            await timed.runner.drain(1)


def timed_runner(parts: Parts, lateness: Lateness) -> Runner:
    plain = hosts(parts.world, parts.job_logs, echo=False)

    def host_for(job: LiveJob, run: Run, observer: Observer | None) -> CountingHost:
        return TimedHost(plain(job, run, observer), run, lateness)

    around = Surroundings(
        machine=parts.pool,
        runs=parts.store.runs,
        live=parts.live,
        clock=parts.clock,
        host_for=host_for,
        random=random.random,
    )
    return Runner(around, parts.tasks)


def be_quiet() -> None:
    """A benchmark's hogs are meant to fail; their logs would be measured with the rest."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def make_job(name: str, source: bytes, schedule: Schedule | None = None, **settings: object) -> LiveJob:
    spec = JobSpec(
        id=JobId(name), name=name, path=f"jobs/{name}.lua", folder=f"jobs/{name}", schedule=schedule or Never()
    )
    spec = replace(spec, **settings)  # type: ignore[arg-type]  # a benchmark names real fields
    return newcomer(JobFile(spec=spec, source=source, digest=name))


def small_jobs(count: int, runs_per_second: int, source: bytes = TWO_OPS, prefix: str = "small") -> list[LiveJob]:
    """Jobs that together are due that many times a second."""
    every = Every(period_ms=max(1, count * 1000 // runs_per_second))
    return [make_job(f"{prefix}{number}", source, every) for number in range(count)]
