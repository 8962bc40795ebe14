"""Carry out the runs of monitor jobs: the workers of a run go over its addresses, one cycle for each.

Workers begin one after the other and take addresses from a queue; where there is a single address each fetches it.
A cycle that fails leaves the others alone.  When all have ended, on_finished is called, however they ended.

A cycle and its VM are two tasks: the VM's run waits until the cycle names the next hook to call.  When the VM ends
first (a limit, a cancel, its worker's death) the cycle ends with it.
"""

from __future__ import annotations

import asyncio
from asyncio import Task, TaskGroup
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from msgspec.structs import replace

from spyweb.errors import PoolError
from spyweb.lua.endings import ended_for, failed, never_begun
from spyweb.lua.hooks import is_defined
from spyweb.lua.pool import Pool
from spyweb.lua.session import Procedure, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, JobId, Outcome, Run, RunId
from spyweb.monitor.context import (
    CycleContext,
    CycleFailed,
    CycleServices,
    HookChannel,
    MonitorVersion,
    SharedVm,
    Telemetry,
)
from spyweb.monitor.cycle import preview, result_of, run_cycle, save_files
from spyweb.monitor.exchange import ProxyRotation
from spyweb.monitor.expectations import judge, judge_preview, streak_before
from spyweb.monitor.items import reader_of
from spyweb.monitor.keep import UnannouncedRecords
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import BUG

log = structlog.get_logger()

STAGGER = 0.2  # seconds between the first requests of two workers
ON_FINISHED_MS = 1_000  # granted to on_finished after the run has used up its time or processor time


class MonitorRunner:
    """Carries out the runs of monitor jobs for runs/runner.py, and keeps the state that a job's runs share."""

    def __init__(self, services: CycleServices, pool: Pool) -> None:
        self._services = services
        self._pool = pool
        self._versions: dict[JobId, MonitorVersion] = {}
        self._unannounced: dict[JobId, UnannouncedRecords] = {}
        self._runs: dict[RunId, MonitorRun] = {}

    async def run(self, job: LiveJob, run: Run, host: OpDispatcher, ctx: Mapping[str, object]) -> Ending:
        """Carry out a run; the ctx of each cycle begins with `ctx`."""
        version = self._version(job)
        if version is None:
            return failed(f"{job.id} is not a monitor job any more")
        unannounced = self._unannounced.setdefault(job.id, UnannouncedRecords(job.id, self._services.records))
        try:
            with self._pool.holding(version.code):
                async with TaskGroup() as tasks:
                    self._runs[run.id] = monitor_run = MonitorRun(
                        services=self._services,
                        pool=self._pool,
                        version=version,
                        run=run,
                        host=host,
                        unannounced=unannounced,
                        ctx=ctx,
                        tasks=tasks,
                    )
                    ending = await monitor_run.execute()
            return await self._judged(monitor_run, ending)
        finally:
            del self._runs[run.id]
            if job.gone:
                self.forget(job.id)

    async def _judged(self, monitor_run: MonitorRun, ending: Ending) -> Ending:
        """Return the ending, with a note where this run and the runs before it found less than expected."""
        version, run, services = monitor_run.version, monitor_run.run, self._services
        if ending.items_found is None:
            return ending
        streak = version.streak or await streak_before(version.monitor, run, ending, services.runs, services.records)
        if streak is None:
            return ending
        if monitor_run.is_preview:
            return judge_preview(version.monitor, ending, streak)
        version.streak = streak
        return judge(version.monitor, run, ending, streak)

    def cancel(self, run: RunId, why: Why) -> None:
        """Cancel a run; one that is not known has ended already."""
        monitor_run = self._runs.get(run)
        if monitor_run:
            monitor_run.cancel(why)

    def forget(self, job: JobId) -> None:
        """Drop the state of a removed job, unless one of its runs is still under way."""
        if all(monitor_run.run.job != job for monitor_run in self._runs.values()):
            self._versions.pop(job, None)
            self._unannounced.pop(job, None)

    def _version(self, job: LiveJob) -> MonitorVersion | None:
        """Return the version of a new run; the VM, where hooks take turns, stays while the Lua files do."""
        monitor = job.spec.monitor
        if monitor is None:
            return None
        known = self._versions.get(job.id)
        if known and known.spec is job.spec and known.code is job.code:
            return known
        version = self._versions[job.id] = MonitorVersion(
            spec=job.spec,
            monitor=monitor,
            code=job.code,
            reader=reader_of(monitor),
            proxies=ProxyRotation(monitor.proxies, self._services.random),
            vm=known.vm if known and known.code is job.code else SharedVm(),
        )
        return version


@dataclass(slots=True, kw_only=True, eq=False)
class MonitorRun:
    """One run under way, as a set of cycles."""

    services: CycleServices
    pool: Pool
    version: MonitorVersion
    run: Run
    host: OpDispatcher
    unannounced: UnannouncedRecords
    ctx: Mapping[str, object]  # what the ctx of each cycle begins with
    tasks: TaskGroup
    _urls: deque[str] = field(init=False)  # those that no worker has taken yet
    _cpu_left_ms: int = field(init=False)  # for the cycles that begin
    _cancels: dict[object, Callable[[Why], object]] = field(default_factory=dict)  # how to end each cycle under way
    _why: Why = Why.NOTHING
    _endings: list[Ending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._urls = deque(self.version.monitor.urls)
        self._cpu_left_ms = self.version.spec.cpu_limit_ms

    @property
    def is_preview(self) -> bool:
        """Return whether this is a debug run: one cycle up to the store."""
        return self.run.trigger.is_trial

    async def execute(self) -> Ending:
        if self.run.trigger.incident:
            return await self._tell_of_incident()
        clock, timeout_s = self.services.clock, self.version.spec.timeout_ms / 1000
        began = clock.monotonic()
        timer = clock.call_later(timeout_s, partial(self.cancel, Why.TIMEOUT))
        try:
            await self._go_over_urls()
            if not self.is_preview and is_defined(self.version.vm.defined, "on_finished"):
                left_ms = round((timeout_s - (clock.monotonic() - began)) * 1000)
                await self._call_on_finished(max(ON_FINISHED_MS, left_ms))
        finally:
            timer.cancel()
        return conclude(self._endings, self._why)

    def cancel(self, why: Why) -> None:
        """Cancel every cycle.  The first reason stands."""
        if self._why is Why.NOTHING:
            self._why = why
            self._urls.clear()
            for cancel in list(self._cancels.values()):
                cancel(why)

    async def _go_over_urls(self) -> None:
        monitor = self.version.monitor
        if self.is_preview:
            await self._cycle(1, monitor.urls[0])
        elif monitor.workers == 1:
            await self._work(1)
        else:
            async with TaskGroup() as workers:
                for number in range(1, monitor.workers + 1):
                    if number > 1:
                        await self.services.clock.sleep(STAGGER)
                    if not self._urls:  # nothing is left, or the run has been cancelled
                        return
                    workers.create_task(self._work(number), name=f"worker {number} of {self.run.job}")

    async def _work(self, worker: int) -> None:
        monitor = self.version.monitor
        if not monitor.is_queue:
            await self._cycle(worker, monitor.urls[0])
            return
        while self._urls:
            await self._cycle(worker, self._urls.popleft())

    async def _cycle(self, worker: int, url: str) -> None:
        """Run one cycle and record its ending, also when it failed."""
        code = self.version.code
        if not code.source and not code.more:
            ending = await self._cycle_without_vm(worker, url)
        elif self._cpu_left_ms <= 0:
            ending = never_begun(Why.CPU)
        else:
            channel = HookChannel(self.version.vm, self.host, self.services.clock)
            context = self._context(channel, worker, url)
            ending = await self._in_vm(channel, partial(self._go_through_stages, context), worker)
            ending = _with_counts(ending, context)
        if ending.outcome is not Outcome.SUCCESS and len(self.version.monitor.urls) > 1:
            ending = replace(ending, reason=f"{url}: {ending.reason}")
        self._endings.append(ending)

    async def _cycle_without_vm(self, worker: int, url: str) -> Ending:
        context = self._context(None, worker, url)
        cycle = self.tasks.create_task(self._go_through_stages(context), name=f"cycle of {self.run.job}")
        self._cancels[cycle] = lambda _why: cycle.cancel()
        try:
            await asyncio.wait((cycle,))
        finally:
            del self._cancels[cycle]
        stage = context.telemetry.current
        where = f" in {stage}" if stage else ": not begun"
        ending = ended_for(self._why, where) if cycle.cancelled() else cycle.result()
        return _with_counts(ending, context)

    async def _in_vm(self, channel: HookChannel, work: Callable[[], Awaitable[Ending]], worker: int) -> Ending:
        """Do work that calls hooks; return its ending, or that of the VM's run where the VM failed."""
        task = self.tasks.create_task(_with_hooks(channel, work), name=f"cycle of {self.run.job}")
        ctx = {**self.ctx, "worker_id": worker}
        ending = await self._run_vm(channel, task, ctx, self.version.spec.timeout_ms)
        self._cpu_left_ms -= ending.cpu_ms
        if self._cpu_left_ms <= 0 and self.version.monitor.workers > 1:  # each may have had all that was left
            self.cancel(Why.CPU)
        if ending.outcome is Outcome.SUCCESS and not task.cancelled():
            return replace(task.result(), cpu_ms=ending.cpu_ms, globals_reset=ending.globals_reset)
        return ending

    async def _call_on_finished(self, timeout_ms: int) -> None:
        channel = HookChannel(self.version.vm, self.host, self.services.clock)
        self._cpu_left_ms = max(self._cpu_left_ms, min(ON_FINISHED_MS, self.version.spec.cpu_limit_ms))

        async def call() -> Ending:
            await self._context(channel, 0, "").call("on_finished")
            return Ending(outcome=Outcome.SUCCESS)

        hook = self.tasks.create_task(_with_hooks(channel, call), name=f"end of {self.run.job}")
        ending = await self._run_vm(channel, hook, {}, timeout_ms)
        if ending.outcome is not Outcome.SUCCESS:
            line = f"on_finished: {ending.reason}\n{ending.traceback}".rstrip()
            self.host.log("error", line.encode("utf-8", "surrogateescape"))

    async def _tell_of_incident(self) -> Ending:
        """Call only the function that handles an incident, from the job's files."""
        hook = self.run.trigger.hook
        missing = Ending(outcome=Outcome.SKIPPED, reason=f"there is no function {hook}", declined=True)
        if not self.version.code.source and not self.version.code.more:
            return missing
        channel = HookChannel(self.version.vm, self.host, self.services.clock)

        async def call() -> Ending:
            result = await channel.call(hook, self.run.trigger.incident)
            if result.is_absent:
                return missing
            return ending_of(None if result.error is None else CycleFailed(result.error, result.traceback))

        return await self._in_vm(channel, call, worker=1)

    async def _run_vm(
        self, channel: HookChannel, task: Task[Ending], ctx: dict[str, object], timeout_ms: int
    ) -> Ending:
        """Return how the VM's run ended, once the task that calls its hooks has ended too."""
        request = Request(
            run=self.pool.new_id(),
            code=self.version.code,
            timeout_ms=timeout_ms,
            cpu_limit_ms=self._cpu_left_ms,
            procedure=Procedure.CYCLE,
            arguments=(ctx,),
        )
        self._cancels[task] = partial(self.pool.cancel, request.run)
        try:
            return await self.pool.run(request, channel)
        except PoolError as error:
            return failed(str(error))
        finally:
            del self._cancels[task]
            task.cancel()
            await asyncio.wait((task,))

    async def _go_through_stages(self, context: CycleContext) -> Ending:
        try:
            if self.is_preview:
                failure = await preview(context)
                return replace(ending_of(failure), preview=result_of(context, failure, await save_files(context)))
            failure = await run_cycle(context, self.unannounced)
            if self.version.monitor.debug:
                await save_files(context)
            return ending_of(failure)
        except Exception:  # the boundary of one cycle: an internal error must not end the others
            log.exception("internal error in a cycle", job=self.run.job, run=self.run.id, url=context.url)
            return failed(BUG)

    def _context(self, hooks: HookChannel | None, worker: int, url: str) -> CycleContext:
        version, services = self.version, self.services
        return CycleContext(
            services=services,
            version=version,
            host=self.host,
            hooks=hooks,
            telemetry=Telemetry(version.spec.name, services.clock, version.vm.memory),
            run=self.run.id,
            worker=worker,
            url=url,
        )


async def _with_hooks(channel: HookChannel, stages: Callable[[], Awaitable[Ending]]) -> Ending:
    """Wait until the VM is ready for hooks, go through the stages, and let the VM's run end."""
    try:
        error = await channel.begin()
        return await stages() if error is None else failed(error)  # the VM's run has the traceback of the error
    finally:
        channel.end()


def _with_counts(ending: Ending, context: CycleContext) -> Ending:
    found = None if context.found is None else len(context.found)
    return replace(
        ending, http_status=context.http_status, items_found=found, items_new=context.new, items_changed=context.changed
    )


def ending_of(failure: CycleFailed | None) -> Ending:
    if failure is None:
        return Ending(outcome=Outcome.SUCCESS)
    return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=str(failure), traceback=failure.traceback)


def conclude(endings: Sequence[Ending], why: Why) -> Ending:
    """Join the endings of all cycles: the first that failed stands for all, and `why` takes precedence."""
    wrong = [ending for ending in endings if ending.outcome is not Outcome.SUCCESS]
    whole = endings[0] if len(endings) == 1 else _together(endings, wrong)
    if why is Why.NOTHING:
        return whole
    cancelled = ended_for(why, "")
    reason = wrong[0].reason if wrong else cancelled.reason
    return replace(whole, outcome=cancelled.outcome, failure=cancelled.failure, reason=reason)


def _together(endings: Sequence[Ending], wrong: Sequence[Ending]) -> Ending:
    first = wrong[0] if wrong else Ending(outcome=Outcome.SUCCESS)
    # The status to show first: the highest outside 2xx, else the highest.
    statuses = [ending.http_status for ending in endings if ending.http_status is not None]
    return replace(
        first,
        reason=f"{first.reason} ({len(wrong)} of {len(endings)} cycles)" if wrong else "",
        cpu_ms=sum(ending.cpu_ms for ending in endings),
        globals_reset=any(ending.globals_reset for ending in endings),
        guilty=any(ending.guilty for ending in endings),
        http_status=max(statuses, key=lambda status: (not 200 <= status < 300, status), default=None),
        items_found=_sum(ending.items_found for ending in endings),
        items_new=_sum(ending.items_new for ending in endings),
        items_changed=_sum(ending.items_changed for ending in endings),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
