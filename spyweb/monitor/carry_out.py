"""Carries out the cycles of one run, each with its VM or without one, and ends them when the run must end.

A cycle and its VM are two tasks: the VM's run waits to be told which hook comes next, and the cycle tells it.  When the
VM ends first (a limit, a cancel, its worker's death) the cycle ends with it.
"""

from __future__ import annotations

import asyncio
from asyncio import Task, TaskGroup
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog
from msgspec.structs import replace

from spyweb.errors import PoolError
from spyweb.lua.endings import never_begun
from spyweb.lua.session import Code, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, JobSpec, Monitor, Outcome, Run, RunId
from spyweb.monitor.context import CycleContext, CycleServices
from spyweb.monitor.cycle import preview, run_cycle
from spyweb.monitor.endings import ended_for, ending_of
from spyweb.monitor.expectations import Streak
from spyweb.monitor.hooks import Hooks, NoHooks
from spyweb.monitor.preview import result_of, save_files
from spyweb.monitor.rules.items import ItemReader
from spyweb.monitor.rules.proxies import ProxyRotation
from spyweb.monitor.talk import LoadFailed, SharedVm, Talk
from spyweb.monitor.telemetry import Telemetry
from spyweb.monitor.unannounced import UnannouncedRecords
from spyweb.runs.attempt import CountingHost, failed
from spyweb.runs.attempt import Machine as AnyMachine

log = structlog.get_logger()

LAST_WORDS_MS = 1_000  # for on_finished where the time of the run, or its processor time, is over
BUG = "a bug in spyweb: see its log"


class Machine(AnyMachine, Protocol):
    def new_id(self) -> RunId:
        """For a call that is no recorded run."""

    def holding(self, code: Code) -> AbstractContextManager[None]:
        """Meanwhile the calls of this version have one VM, whatever becomes of the job's files."""


@dataclass(slots=True, kw_only=True)
class Version:
    """One version of a monitor job, and what its cycles share however many runs they belong to."""

    spec: JobSpec
    monitor: Monitor
    code: Code
    reader: ItemReader
    proxies: ProxyRotation
    turn: SharedVm = field(default_factory=SharedVm)

    streak: Streak | None = None  # None: it is not counted yet

    @property
    def has_lua(self) -> bool:
        return bool(self.code.source or self.code.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a run is for."""

    version: Version
    run: Run
    host: CountingHost
    owed: UnannouncedRecords
    ctx: Mapping[str, object]  # what each cycle's begins with
    is_preview: bool = False  # one cycle up to the store, for a person who looks


class Cycles:
    """Those under way."""

    def __init__(self, services: CycleServices, machine: Machine, errand: Errand, tasks: TaskGroup) -> None:
        self._services = services
        self._machine = machine
        self._errand = errand
        self._version = errand.version
        self._tasks = tasks
        self._cancels: dict[object, Callable[[Why], object]] = {}  # how to end each
        self._why = Why.NOTHING
        self._cpu_left_ms = errand.version.spec.cpu_limit_ms  # for the cycles that begin

    def cancel(self, why: Why) -> None:
        self._why = why
        for cancel in list(self._cancels.values()):
            cancel(why)

    async def carry_out(self, worker: int, url: str) -> Ending:
        """One cycle, whatever becomes of it."""
        if not self._version.has_lua:
            return await self._without_vm(worker, url)
        if self._cpu_left_ms <= 0:
            return never_begun(Why.CPU)
        return await self._with_vm(worker, url)

    async def _without_vm(self, worker: int, url: str) -> Ending:
        context = self._course(NoHooks(), worker, url)
        story = self._tasks.create_task(self._tell(context), name=f"cycle of {self._version.spec.id}")
        self._cancels[story] = lambda _why: story.cancel()
        try:
            await asyncio.wait((story,))
        finally:
            del self._cancels[story]
        ended = ended_for(self._why, context.telemetry.current) if story.cancelled() else story.result()
        return _with_facts(ended, context)

    async def _with_vm(self, worker: int, url: str) -> Ending:
        talk = self._talk()
        context = self._course(talk, worker, url)
        story = self._tasks.create_task(self._tell_through(talk, context), name=f"cycle of {self._version.spec.id}")
        ctx = {**self._errand.ctx, "worker_id": worker}
        ending = await self._run_vm(talk, story, ctx, self._version.spec.timeout_ms)
        self._cpu_left_ms -= ending.cpu_ms
        if ending.outcome is Outcome.SUCCESS and not story.cancelled():
            ending = replace(story.result(), cpu_ms=ending.cpu_ms, globals_reset=ending.globals_reset)
        return _with_facts(ending, context)

    async def call_on_finished(self, timeout_ms: int) -> None:
        talk = self._talk()
        self._cpu_left_ms = max(self._cpu_left_ms, min(LAST_WORDS_MS, self._version.spec.cpu_limit_ms))
        story = self._tasks.create_task(self._finish_through(talk), name=f"end of {self._version.spec.id}")
        ending = await self._run_vm(talk, story, {}, timeout_ms)
        if ending.outcome is not Outcome.SUCCESS:
            told = f"on_finished: {ending.reason}\n{ending.traceback}".rstrip()
            self._errand.host.log("error", told.encode("utf-8", "surrogateescape"))

    async def _run_vm(self, talk: Talk, story: Task[Ending], ctx: dict[str, object], timeout_ms: int) -> Ending:
        """Gives how the VM's run ended; the story has ended too."""
        request = Request(
            run=self._machine.new_id(),
            code=self._version.code,
            timeout_ms=timeout_ms,
            cpu_limit_ms=self._cpu_left_ms,
            procedure="cycle",
            arguments=(ctx,),
        )
        self._cancels[story] = partial(self._machine.cancel, request.run)
        try:
            return await self._machine.run(request, talk)
        except PoolError as error:
            return failed(str(error))
        finally:
            del self._cancels[story]
            story.cancel()
            await asyncio.wait((story,))

    async def _tell_through(self, talk: Talk, context: CycleContext) -> Ending:
        try:
            await talk.begin()
            return await self._tell(context)
        except LoadFailed as error:
            return failed(str(error))  # its VM's run says it better
        finally:
            talk.end()

    async def _finish_through(self, talk: Talk) -> Ending:
        try:
            await talk.begin()
            await self._course(talk, 0, "").call("on_finished")
        except LoadFailed as error:
            return failed(str(error))
        finally:
            talk.end()
        return Ending(outcome=Outcome.SUCCESS)

    async def _tell(self, context: CycleContext) -> Ending:
        try:
            if self._errand.is_preview:
                failure = await preview(context)
                return replace(ending_of(failure), preview=result_of(context, failure, await save_files(context)))
            failure = await run_cycle(context)
            if context.monitor.debug:
                await save_files(context)
            return ending_of(failure)
        except Exception:
            log.exception("a cycle met a bug in spyweb", job=context.spec.id, run=self._errand.run.id, url=context.url)
            return failed(BUG)

    def _talk(self) -> Talk:
        return Talk(self._version.turn, self._errand.host, self._services.clock)

    def _course(self, hooks: Hooks, worker: int, url: str) -> CycleContext:
        version = self._version
        return CycleContext(
            services=self._services,
            spec=version.spec,
            monitor=version.monitor,
            reader=version.reader,
            hooks=hooks,
            telemetry=Telemetry(version.spec.name, self._services.clock, version.turn.memory),
            tell=self._errand.host.log,
            proxies=version.proxies,
            owed=self._errand.owed,
            worker=worker,
            url=url,
        )


def _with_facts(ending: Ending, context: CycleContext) -> Ending:
    found = None if context.found is None else len(context.found)
    return replace(ending, http_status=context.http_status, items_found=found, items_new=context.new)
