"""Runs Lua in worker processes: picks a VM for each run, has its ops answered, and always reports how it ended.

A job's VM is made at its first run and stays on its worker.  When a worker dies only the runs in it are lost: the job
that was being stepped gets a worker of its own, and the other runs are recorded as not to blame.
"""

from __future__ import annotations

import re
from asyncio import CancelledError, TaskGroup, get_running_loop
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from secrets import randbits
from typing import NoReturn

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.cooperative import set_done, within
from spyweb.errors import PoolError, ScriptError
from spyweb.histogram import SHORT_SECONDS, Histogram
from spyweb.lua import endings
from spyweb.lua.channel import RunChannel
from spyweb.lua.connection import FlushQueue
from spyweb.lua.session import Code, EngineInfo, Host, PendingRun, PoolStats, Request
from spyweb.lua.spawner import Spawner
from spyweb.lua.supervisor import Supervisor
from spyweb.lua.wire import Ended, RunEnd, RunStuck, Why
from spyweb.lua.worker_process import Death, Vm, WorkerProcess
from spyweb.model import MIB, Ending, Isolation, JobId, Outcome, RunId

log = structlog.get_logger()

FIRST_ID = (1 << 52) + 1  # of calls that are no recorded run: no store reaches such ids

PATIENCE = 10.0  # seconds that a run waits for a worker and a loaded VM
STOP_LIMIT = 1.5  # seconds for runs that were asked to stop
TRIES = 3  # VMs that may be lost under a run before it could begin
MEMORY_BUDGET = 512 * MIB  # bytes of all VMs of a shared worker

COMPILE_ERROR = re.compile(r"(?s)(?P<file>.*?):(?P<line>\d+): (?P<reason>.*)")  # how Lua says where it is wrong


@asynccontextmanager
async def open_pool(
    *,
    clock: Clock,
    workers: int,
    init: EngineInfo,
    memory_budget: int = MEMORY_BUDGET,
    spawner: Callable[[Clock, str], Spawner] = Spawner,
) -> AsyncIterator[Pool]:
    """Start the workers, and stop them at the end.  Raises PoolError when none can be started."""
    async with AsyncExitStack() as stack:
        tasks = await TaskGroup().__aenter__()
        stack.push_async_callback(tasks.__aexit__, None, None, None)  # an error of the caller's is not the group's
        workers_from = spawner(clock, init.timezone)
        stack.push_async_callback(workers_from.close)
        pool = Pool(clock=clock, spawner=workers_from, init=init, memory_budget=memory_budget, tasks=tasks)
        stack.push_async_callback(pool.stop, 0)
        await pool.open(workers)
        yield pool


class Case(Struct, frozen=True, kw_only=True):
    generation: int  # a newer one is given another chance
    reason: str
    until_clean_run: bool


class Quarantine:
    """Tracks the jobs that need their own worker because of the behaviour of their runs, not of their settings."""

    def __init__(self) -> None:
        self._cases: dict[JobId, Case] = {}

    def put(self, code: Code, reason: str, *, until_clean_run: bool) -> None:
        self._cases[code.job] = Case(generation=code.generation, reason=reason, until_clean_run=until_clean_run)

    def holds(self, code: Code) -> bool:
        if not self._cases:
            return False
        case = self._cases.get(code.job)
        return case is not None and code.generation <= case.generation

    def release_after_clean_run(self, code: Code) -> bool:
        """Note a clean run; return whether it ended a quarantine."""
        case = self._cases.get(code.job)
        if case is None or not case.until_clean_run or code.generation > case.generation:
            return False
        del self._cases[code.job]
        return True

    def renew(self, job: JobId, older_than: int) -> None:
        """End the quarantine of generations below this number: a newer one is given another chance."""
        case = self._cases.get(job)
        if case is not None and case.generation < older_than:
            del self._cases[job]

    @property
    def reasons(self) -> Mapping[JobId, str]:
        return {job: case.reason for job, case in self._cases.items()}


class Pool:
    def __init__(
        self, *, clock: Clock, spawner: Spawner, init: EngineInfo, memory_budget: int, tasks: TaskGroup
    ) -> None:
        # What its workers use
        self.clock = clock
        self.spawner = spawner
        self.flush_queue = FlushQueue()
        self.init = init
        self.tasks = tasks
        self._memory_budget = memory_budget
        self.op_times = {name: Histogram(SHORT_SECONDS) for name in init.ops}  # from the question to its answer
        self._supervisor = Supervisor(self)
        self._quarantine = Quarantine()
        self._pending_runs: dict[RunId, PendingRun] = {}
        self._vms: dict[JobId, dict[int, Vm]] = {}  # by generation: where the next run begins
        self._retired: dict[JobId, int] = {}  # generations below are not kept ...
        self._line: deque[PendingRun] = deque()  # for a worker of their job's own
        self._held: Counter[tuple[JobId, int]] = Counter()  # ... unless somebody needs them for longer than one call
        self._loads: Counter[JobId] = Counter()
        self._spares: dict[JobId, int] = {}  # how many fleeting VMs each worker keeps ready
        self._ids = count(FIRST_ID + randbits(50))  # drawn: a lock that a killed daemon left is no call's of this one
        self._is_stopping = False
        self._idle = get_running_loop().create_future()

    async def open(self, workers: int) -> None:
        self._supervisor.open(workers)
        if not await self._supervisor.wait_until_up():
            raise PoolError(f"no worker could be started: {self._supervisor.trouble}")

    # The public interface

    def new_id(self) -> RunId:
        """Return an id for a call that is no recorded run: a cycle, a request, a test."""
        return RunId(next(self._ids))

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        """Run the procedure in its job's VM, which is loaded if need be, and return how it ended.

        A fresh run has a VM of its own, which goes with it.  Cancelling this cancels the run, and waits until it has
        ended; doing so twice does not wait.
        """
        run = request.run
        if self._is_stopping:
            return endings.never_begun(Why.STOPPED)
        if run in self._pending_runs:
            raise ValueError(f"run {run} is under way")
        new_future = get_running_loop().create_future
        pending = PendingRun(request=request, host=host, ending=new_future(), op_times=self.op_times, is_fresh=is_fresh)
        self._pending_runs[run] = pending
        try:
            self._admit(pending)
            return await pending.ending
        except CancelledError:
            pending.ending = new_future()  # the first one was cancelled with the task
            self.cancel(run, Why.CANCELLED)
            await pending.ending
            raise
        finally:
            self._forget(run)

    def _forget(self, run: RunId) -> None:
        self._pending_runs.pop(run).stop_waiting()
        if self._is_stopping and not self._pending_runs:
            set_done(self._idle)

    def keep_spares(self, code: Code, count: int) -> None:
        """Keep that many VMs of this code ready for fresh runs; drop those of older code of its job."""
        if not self._is_stopping:
            self._spares[code.job] = count
            worker = self._worker_for(code)
            if worker is not None:  # else the first run has it kept
                worker.keep_template(code, count)

    def cancel(self, run: RunId, why: Why) -> None:
        """Tell the run to end; `run` then returns its ending.  A run that is not known has ended already."""
        pending = self._pending_runs.get(run)
        if pending is not None and not any(worker.cancel(run, why) for worker in self._supervisor):
            pending.end(endings.never_begun(why))

    async def check(self, code: Code) -> None:
        """Compile all files of this code and keep nothing.  Raises ScriptError when one does not compile."""
        if not code.source and not code.more:
            return
        if self._is_stopping:
            raise PoolError("the workers are being stopped")
        for _ in range(TRIES):
            compiled = self._supervisor.least_loaded().check(code)
            if not await within(self.clock, PATIENCE, compiled):
                raise PoolError(f"{code.chunk} was not compiled within {PATIENCE:.0f} s: {self._supervisor.trouble}")
            if compiled.exception() is None:
                reason = compiled.result()
                if reason is not None:
                    raise_compile_error(code, reason)
                return
        raise PoolError(f"{code.chunk} could not be compiled: {compiled.exception()}")

    def loads_of(self, job: JobId) -> int:
        """Return how many VMs were made for the job's runs since the daemon started."""
        return self._loads[job]

    def retire(self, job: JobId, older_than: int) -> None:
        """Retire the job's VMs of earlier generations than this: each is closed after its last run."""
        self._retired[job] = older_than
        self._quarantine.renew(job, older_than)
        for vm in list(self._vms.get(job, {}).values()):
            if not self._is_kept(vm.code):
                self._release(vm)
        for worker in list(self._supervisor):
            worker.forget_template(job, older_than)
            self._stop_if_empty(worker)

    @contextmanager
    def holding(self, code: Code) -> Iterator[None]:
        """Keep the VM of this version, with its globals, between calls, even if a newer version retires it."""
        key = (code.job, code.generation)
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
            if not self._is_kept(code):
                self.discard(*key)

    def _is_kept(self, code: Code) -> bool:
        is_held = (code.job, code.generation) in self._held
        return is_held or code.generation >= self._retired.get(code.job, 0)

    def discard(self, job: JobId, generation: int) -> None:
        """Drop the VM of this generation, which was tried and is not wanted; earlier and later ones stay."""
        vm = self._vms.get(job, {}).get(generation)
        if vm is not None:
            self._release(vm)

    def stats(self) -> PoolStats:
        workers = [worker.info for worker in self._supervisor]
        rights = next((worker.rights for worker in self._supervisor if worker.rights), ())
        return PoolStats(
            rights=rights,
            workers=workers,
            quarantined=self._quarantine.reasons,
            deaths=self._supervisor.deaths,
            loads=self._loads.total(),
            kills=self._supervisor.kills,
            waiting=sum(not pending.ending.done() for pending in self._line),
            most_own=self._supervisor.most_own,
            answering=sum(worker.job is None and worker.is_answering for worker in self._supervisor),
        )

    async def stop(self, grace: float) -> None:
        """Stop all runs and all workers.

        1. no run begins any more  2. running ones may end by themselves  3. the rest are asked to end as `stopped`
        4. runs that do not end are given up  5. the workers are killed
        """
        self._is_stopping = True
        await self._wait_until_idle(grace)
        for run in list(self._pending_runs):
            self.cancel(run, Why.STOPPED)
        await self._wait_until_idle(STOP_LIMIT)
        for pending in list(self._pending_runs.values()):
            pending.end(endings.unstoppable(Why.STOPPED))
        await self._supervisor.close()

    async def _wait_until_idle(self, seconds: float) -> None:
        if self._pending_runs:
            await within(self.clock, seconds, self._idle)

    # Beginning a run

    def _admit(self, pending: PendingRun) -> None:
        """Begin the run in its VM, or let it wait: in line for a worker, or there until the VM is loaded."""
        if pending.ending.done():
            return
        code = pending.request.code
        vm = None if pending.is_fresh else self._vms.get(code.job, {}).get(code.generation)
        if vm is not None and (vm.worker.job is not None) is not self._needs_own_worker(code):
            self._release(vm)  # it is in a worker that is of the wrong kind now
            vm = None
        worker = self._worker_for(code) if vm is None else vm.worker
        if worker is None:
            pending.stop_waiting()
            self._line.append(pending)
            self._make_room()
            return
        if pending.is_fresh:
            worker.begin_fresh(pending, self._spares.get(code.job, 0))
            return
        vm = vm or self._load(code, worker)
        if vm.is_loaded:
            vm.worker.begin(vm, pending)
            return
        vm.waiting.append(pending)
        if pending.timer is None:
            pending.timer = self.clock.call_later(PATIENCE, partial(self._give_up, pending))

    def _advance_line(self) -> None:
        """Begin the runs in line for which there is room, and make room for others."""
        while self._line and (self._line[0].ending.done() or self._supervisor.has_room):
            self._admit(self._line.popleft())
        self._make_room()

    def _make_room(self) -> None:
        """Stop idle workers of single jobs for the runs in line; the globals of their jobs are lost."""
        for worker in self._supervisor.idle_workers(len(self._line)):
            vms = list(worker.vms.values())
            if not any((vm.code.job, vm.code.generation) in self._held for vm in vms):
                log.info("a job's idle worker makes room for another's; its globals are reset", job=worker.job)
                for vm in vms:
                    self._release(vm)

    def _give_up(self, pending: PendingRun) -> None:
        if not pending.ending.done():
            reason = f"no worker was available within {PATIENCE:.0f} s: {self._supervisor.trouble}"
            pending.ending.set_exception(PoolError(reason))

    def _needs_own_worker(self, code: Code) -> bool:
        return code.isolation is Isolation.PROCESS or self._quarantine.holds(code)

    def _worker_for(self, code: Code) -> WorkerProcess | None:
        """Return the worker where a VM of this code belongs; None if there is no room for a separate one."""
        is_alone = self._needs_own_worker(code)
        return self._supervisor.own_worker(code.job) if is_alone else self._supervisor.least_loaded()

    def _load(self, code: Code, worker: WorkerProcess) -> Vm:
        vm = worker.load_vm(code)
        self._vms.setdefault(code.job, {})[code.generation] = vm
        self._loads[code.job] += 1
        if not self._is_kept(code):
            worker.mark_for_removal(vm)
        return vm

    def _release(self, vm: Vm) -> None:
        """Drop this VM after its last run; the job's next run begins in another one."""
        self._forget_vm(vm)
        vm.worker.mark_for_removal(vm)
        self._stop_if_empty(vm.worker)

    def _forget_vm(self, vm: Vm) -> None:
        vms = self._vms.get(vm.code.job, {})
        if vms.get(vm.code.generation) is vm:
            del vms[vm.code.generation]
            if not vms:
                del self._vms[vm.code.job]

    def _stop_if_empty(self, worker: WorkerProcess) -> None:
        if worker.job is not None and worker.is_empty and not worker.is_retiring:
            self._supervisor.stop_worker(worker)

    # What the workers tell it

    def loaded(self, vm: Vm, reason: str | None) -> None:
        """Begin the runs that wait for the VM, or end them where it could not be loaded for this reason."""
        waiting, vm.waiting = vm.waiting, []
        if reason is not None:
            self._forget_vm(vm)
            self._stop_if_empty(vm.worker)
        for pending in waiting:
            if pending.ending.done():
                continue
            if reason is None:
                vm.worker.begin(vm, pending)
            else:
                pending.end(endings.failed(reason))

    def ended(self, vm: Vm, channel: RunChannel, end: RunEnd) -> None:
        if vm.is_marked and vm.template is None:
            self._forget_vm(vm)
        if (recording := channel.pending.request.recording) is not None:
            recording.reads = end.reads
        if end.ended is Ended.UNBEGUN and channel.why is Why.NOTHING:
            self._try_again(channel.pending, "its VM had ended before it could begin", guilty=False)
        elif end.ended is Ended.UNBEGUN:
            channel.pending.end(endings.never_begun(channel.why))
        else:
            channel.pending.end(self._end_quarantine_if_clean(vm, endings.from_end(end)))
        self._supervisor.note_used(vm.worker)
        self._stop_if_empty(vm.worker)
        self._advance_line()

    def _end_quarantine_if_clean(self, vm: Vm, ending: Ending) -> Ending:
        """Let the next run begin in a shared worker, with fresh globals."""
        is_clean = ending.outcome is Outcome.SUCCESS and self._quarantine.release_after_clean_run(vm.code)
        if not is_clean or vm.code.isolation is Isolation.PROCESS:
            return ending
        log.info("a job is out of quarantine", job=vm.code.job)
        self._release(vm)
        return replace(ending, globals_reset=True)

    def stuck(self, worker: WorkerProcess, channel: RunChannel, report: RunStuck | None) -> None:
        """End the run as unstoppable and replace its worker, whose report says which limit it was and the CPU used."""
        if report is None:
            why, cpu_ms = channel.why, worker.stepped.get(channel.run, 0)
        else:
            why, cpu_ms = report.why or channel.why or Why.CPU, report.cpu_ms
        request = channel.pending.request
        worker.abandon(channel)
        channel.pending.end(endings.unstoppable(why, cpu_ms))
        if why is not Why.STOPPED:
            self._put_in_quarantine(request, "could not be stopped")
        if not worker.is_retiring:
            self._replace(worker)

    def closing_for_ever(self, worker: WorkerProcess) -> None:
        """Replace a worker that takes too long to close a VM."""
        log.warning("a worker is replaced: it takes too long to close a VM", pid=worker.pid)
        if not worker.is_retiring:
            self._replace(worker)

    def _replace(self, worker: WorkerProcess) -> None:
        waiting = []
        for vm in list(worker.vms.values()):
            self._forget_vm(vm)
            waiting += vm.waiting
            vm.waiting = []
            worker.mark_for_removal(vm)
        self._supervisor.replace(worker)
        for pending in waiting:
            self._admit(pending)

    def _put_in_quarantine(self, request: Request, what: str) -> None:
        reason = f"run {request.run} {what}"
        log.warning("a job is quarantined: it has a worker of its own now", job=request.code.job, reason=reason)
        self._quarantine.put(request.code, reason, until_clean_run=True)

    def measured(self, worker: WorkerProcess, largest: Sequence[tuple[int, int]]) -> None:
        """Hear the (VM, bytes) of a worker's largest VMs: in a shared one over its budget, the largest moves out."""
        if worker.job is not None:
            return
        self._advance_line()  # several times a second: descriptors that others had may be free again
        if worker.is_retiring or worker.used_bytes <= self._memory_budget:
            return
        used, staying = worker.used_bytes, []
        for number, size in largest:
            vm = worker.vms.get(number)
            if vm is None or vm.is_marked:
                used -= size
            else:
                staying.append((size, number))
        if used > self._memory_budget and staying:
            size, number = max(staying)
            vm = worker.vms[number]
            reason = f"its VM of {size / MIB:.0f} MB was the largest of a worker over its memory budget"
            log.warning("a job moves to a worker of its own; its globals are reset", job=vm.code.job, reason=reason)
            self._quarantine.put(vm.code, reason, until_clean_run=False)
            self._release(vm)

    def proven(self, worker: WorkerProcess) -> None:
        """Hear of the worker's answer to its first ping."""
        self._supervisor.note_proven(worker)
        self._advance_line()

    def died(self, worker: WorkerProcess, death: Death) -> None:
        for vm in worker.vms.values():
            self._forget_vm(vm)
        self._supervisor.mark_lost(worker, death)
        for channel in worker.channels:
            worker.abandon(channel)
            if worker.is_up:
                self._lose(channel, death)
            else:
                self._try_again(channel.pending, f"its worker died: {death.reason}", guilty=False)
        # When no run was being stepped, it may be the fault of a script that was being compiled.
        suspect = worker.is_up and not death.blameless and not death.stepped
        for pending in [pending for vm in worker.vms.values() for pending in vm.waiting]:
            if suspect:
                self._put_in_quarantine(pending.request, f"was about to begin when its worker died: {death.reason}")
            if worker.is_up:
                self._try_again(pending, f"its worker died: {death.reason}", guilty=suspect)
            else:
                self._admit(pending)
        self._advance_line()

    def _lose(self, channel: RunChannel, death: Death) -> None:
        guilty = channel.run in death.stepped and not death.blameless
        why = Why.STOPPED if self._is_stopping else channel.why
        cpu_ms = death.stepped.get(channel.run, 0)
        if guilty and why is not Why.STOPPED:
            self._put_in_quarantine(channel.pending.request, f"was being stepped when its worker died: {death.reason}")
        if why is Why.NOTHING:
            channel.pending.end(endings.lost(f"its worker died: {death.reason}", guilty=guilty, cpu_ms=cpu_ms))
        else:
            channel.pending.end(endings.unstoppable(why, cpu_ms))

    def _try_again(self, pending: PendingRun, reason: str, *, guilty: bool) -> None:
        pending.tries += 1
        if pending.tries < TRIES and not self._is_stopping:
            self._admit(pending)
        else:
            pending.end(endings.lost(reason, guilty=guilty))


def raise_compile_error(code: Code, reason: str) -> NoReturn:
    where = COMPILE_ERROR.fullmatch(reason)
    if where is None:
        raise ScriptError(code.chunk, None, reason)
    raise ScriptError(code.chunk_shown_as(where["file"]), int(where["line"]), where["reason"])
