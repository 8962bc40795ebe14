"""A run, from its claim to its record.

A start is admitted (overlap), claimed in the store, run in its job's VM, and concluded: its end, its retry and the jobs
that follow it are committed together.  What is claimed survives a crash: see `take_up`.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, TaskGroup
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from spyweb.clock import Clock
from spyweb.errors import PoolError, Refused, StoreError
from spyweb.jobs.aftermath import dependents, may_retry, next_attempt
from spyweb.jobs.live import LiveJob, LiveJobs
from spyweb.jobs.overlap import QUEUE_LIMIT, Admission, admit
from spyweb.jobs.records import ctx_of, end_of, ended, never_ran, run_of, skip_of
from spyweb.lua.session import Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Cursor, Ending, Failure, MisfirePolicy, Outcome, Overlap, Run, RunId, RunState
from spyweb.store.protocol import Begin, Change, End, NewRun, Runs, Stretch

log = structlog.get_logger()

STORE_PATIENCE = 5.0  # seconds between attempts to record what the store refused
STOP_PATIENCE = 3.0  # seconds for runs to end once they have been told to stop


class Machine(Protocol):
    """What steps VMs (lua/pool.py)."""

    async def run(self, request: Request, host: Host) -> Ending: ...

    def cancel(self, run: RunId, why: Why) -> None: ...


class CountingHost(Host, Protocol):
    @property
    def storage_errors(self) -> int: ...


class Observer(Protocol):
    """Who watches one run, line by line."""

    def log(self, level: str, text: bytes) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A wish that a job run."""

    trigger: Mapping[str, object]
    due_ms: int | None = None
    patient: bool = False  # made up for: waits where another would be skipped
    observer: Observer | None = None  # a watched run (`spyweb run`) starts no other job


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A start on its way to the store."""

    new: NewRun
    observer: Observer | None = None


HostFor = Callable[[LiveJob, Run, Observer | None], CountingHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What runs need; all of it is built by daemon.py."""

    machine: Machine
    runs: Runs
    live: LiveJobs
    clock: Clock
    host_for: HostFor
    random: Callable[[], float]


class Runner:
    """Owns every run in flight."""

    def __init__(self, around: Surroundings, tasks: TaskGroup) -> None:
        self._around = around
        self._clock = around.clock
        self._live = around.live
        self._tasks = tasks
        self._observers: dict[RunId, Observer] = {}
        self._stopping = False
        self._idle = asyncio.Event()

    def start(
        self,
        job: LiveJob,
        starts: Sequence[Start],
        *,
        cursor: Cursor | None = None,
        stretches: Sequence[Stretch] = (),
    ) -> Future[list[RunId | None]]:
        """Claim these starts; in the same commit the cursor moves, and what will not run is recorded.

        Gives the id of each claimed run, None for one that was claimed before; skipped starts have none.
        """
        claims: list[Claim] = []
        skipped = list(stretches)
        ends: list[End] = []
        waiting = len(job.waiting)
        for wish in starts:
            verdict = admit(job.spec.overlap, busy=job.busy, waiting=waiting, patient=wish.patient)
            claim = self._claim(job, wish, starting=verdict is Admission.START)
            if verdict is Admission.SKIP:
                skipped.append(skip_of(claim.new, self._clock.now_ms(), _busy_with(job)))
                continue
            if verdict is Admission.REPLACE:
                ends += self._clear(job)
            job.claiming += verdict is Admission.START
            waiting += verdict is not Admission.START
            claims.append(claim)
        change = Change(
            cursors=[cursor] if cursor else (),
            new=[claim.new for claim in claims],
            end=ends,
            stretches=skipped,
        )
        future = self._around.runs.record(change)
        future.add_done_callback(partial(self._claimed, job, claims))
        return future

    def start_by_hand(self, job: LiveJob, start: Start) -> Future[list[RunId | None]]:
        """As `start`, for a person: raises Refused where a due time would be skipped."""
        if admit(job.spec.overlap, busy=job.busy, waiting=len(job.waiting)) is Admission.SKIP:
            raise Refused(f"{job.id}: {_busy_with(job)}")
        return self.start(job, [start])

    def _claim(self, job: LiveJob, wish: Start, *, starting: bool) -> Claim:
        new = NewRun(
            job=job.id,
            state=RunState.RUNNING if starting else RunState.WAITING,
            trigger=wish.trigger,
            due_ms=wish.due_ms,
            started_ms=self._clock.now_ms() if starting else None,
            generation=job.code.generation,
        )
        return Claim(new=new, observer=wish.observer)

    def _clear(self, job: LiveJob) -> list[End]:
        """Make way for a newcomer: cancel what runs, drop what waits."""
        for run in job.in_flight:
            self._around.machine.cancel(run, Why.CANCELLED)
        now = self._clock.now_ms()
        dropped = [never_ran(run.id, now, "replaced by a newer start") for run in job.waiting]
        job.waiting.clear()
        return dropped

    def _claimed(self, job: LiveJob, claims: Sequence[Claim], future: Future[list[RunId | None]]) -> None:
        job.claiming -= sum(claim.new.state is RunState.RUNNING for claim in claims)
        if future.cancelled() or future.exception() is not None:
            return  # whoever asked sees the error
        for claim, run_id in zip(claims, future.result(), strict=True):
            if run_id is not None:
                self._take(job, run_of(run_id, claim.new), claim.observer)
        self._start_next(job)

    def _take(self, job: LiveJob, run: Run, observer: Observer | None) -> None:
        if observer:
            self._observers[run.id] = observer
        if run.state is RunState.RUNNING:
            job.in_flight[run.id] = run
            self._spawn(job, run.id, self._live_through(job, run))
        else:
            job.waiting.append(run)

    def _spawn(self, job: LiveJob, run: RunId, story: Coroutine[object, object, object]) -> None:
        self._tasks.create_task(self._contain(job, run, story), name=f"run {run} of {job.id}")

    async def _contain(self, job: LiveJob, run: RunId, story: Coroutine[object, object, object]) -> None:
        try:
            await story
        except Exception:
            log.exception("a run met a bug in spyweb", job=job.id, run=run)
            bug = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="a bug in spyweb: see its log")
            await self._commit(Change(end=[end_of(run, bug, self._clock.now_ms())]))

    async def _live_through(self, job: LiveJob, run: Run) -> None:
        """The story of one run."""
        observer = self._observers.pop(run.id, None)
        host = self._around.host_for(job, run, observer)
        try:
            ending = await self._attempt(job, run, host)
            follow = self._followers(job, run, ending, chained=observer is None)
            end = end_of(run.id, ending, self._clock.now_ms(), host.storage_errors)
            ids = await self._commit(Change(end=[end], new=follow))
        finally:
            job.in_flight.pop(run.id, None)
            self._wake_if_idle()
        job.last = ended(run, end)
        _tell(run, ending)
        if observer:
            observer.ended(run, ending)
        self._line_up(follow, ids)
        self._start_next(job)

    async def _attempt(self, job: LiveJob, run: Run, host: Host) -> Ending:
        request = Request(
            run=run.id,
            code=job.code,
            timeout_ms=job.spec.timeout_ms,
            cpu_limit_ms=job.spec.cpu_limit_ms,
            arguments=(ctx_of(run), may_retry(run, job.spec.retry) and not job.gone),
        )
        try:
            return await self._around.machine.run(request, host)
        except PoolError as error:
            return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=str(error))

    def _followers(self, job: LiveJob, run: Run, ending: Ending, *, chained: bool) -> list[NewRun]:
        """What is claimed together with the end of a run: its next attempt, or the jobs that follow it."""
        if ending.outcome is Outcome.STOPPED:
            return []
        if not job.gone:
            retry = next_attempt(run, ending, job.spec.retry, self._clock.now_ms(), self._around.random)
            if retry:
                return [retry]
        return dependents(run, ending, self._live.after(job.id)) if chained else []

    async def _commit(self, change: Change) -> list[RunId | None]:
        """Record a change however long the store refuses: what has happened can't be undone."""
        while True:
            try:
                return await self._around.runs.record(change)
            except StoreError as error:
                log.error("not recorded yet", reason=str(error), again_in_s=STORE_PATIENCE)
                await self._clock.sleep(STORE_PATIENCE)

    def _line_up(self, claims: Sequence[NewRun], ids: Sequence[RunId | None]) -> None:
        for new, run_id in zip(claims, ids, strict=True):
            job = self._live.find(new.job)
            if run_id is not None and job is not None:
                self._wait(job, run_of(run_id, new))

    def _wait(self, job: LiveJob, run: Run) -> None:
        """Let a claimed run wait for its delay, then for its turn."""
        delay_ms = max(0, (run.start_after_ms or 0) - self._clock.now_ms())
        if delay_ms:
            job.delayed[run.id] = self._clock.call_later(delay_ms / 1000, partial(self._ready, job, run))
        else:
            self._ready(job, run)

    def _ready(self, job: LiveJob, run: Run) -> None:
        job.delayed.pop(run.id, None)
        if self._stopping:
            return  # it is recorded as waiting, and is taken up at the next start
        verdict = admit(job.spec.overlap, busy=job.busy, waiting=len(job.waiting))
        if verdict is Admission.SKIP:
            self._write_off(job, [never_ran(run.id, self._clock.now_ms(), _busy_with(job))])
            return
        if verdict is Admission.REPLACE:
            self._write_off(job, self._clear(job))
        job.waiting.append(run)
        self._start_next(job)

    def _write_off(self, job: LiveJob, ends: Sequence[End]) -> None:
        if ends:
            self._spawn(job, ends[0].run, self._commit(Change(end=ends)))

    def _start_next(self, job: LiveJob) -> None:
        while job.waiting and not self._stopping and (not job.busy or job.spec.overlap is Overlap.ALLOW):
            run = replace(job.waiting.popleft(), state=RunState.RUNNING, started_ms=self._clock.now_ms())
            job.claiming += 1
            self._spawn(job, run.id, self._begin(job, run))

    async def _begin(self, job: LiveJob, run: Run) -> None:
        begin = Begin(run=run.id, started_ms=run.started_ms or 0, generation=job.code.generation)
        try:
            await self._commit(Change(begin=[begin]))
        finally:
            job.claiming -= 1
        job.in_flight[run.id] = run
        await self._live_through(job, run)

    async def take_up(self, open_runs: Sequence[Run]) -> None:
        """Go on with what an earlier daemon left: its running runs are lost, its waiting ones still wait."""
        for run in open_runs:
            job = self._live.find(run.job)
            if run.state is RunState.RUNNING:
                await self._bury(job, run)
            elif job is None or not job.spec.enabled:
                reason = "the job is gone or disabled"
                await self._commit(Change(end=[never_ran(run.id, self._clock.now_ms(), reason)]))
            else:
                self._wait(job, run)

    async def _bury(self, job: LiveJob | None, run: Run) -> None:
        now = self._clock.now_ms()
        ending = Ending(outcome=Outcome.LOST, reason="the daemon died")
        again = None
        if job and job.spec.enabled and job.spec.misfire.policy is not MisfirePolicy.SKIP:
            again = next_attempt(run, ending, job.spec.retry, now, self._around.random)
        new = [again] if again else []
        self._line_up(new, await self._commit(Change(end=[end_of(run.id, ending, now)], new=new)))

    def forget(self, job: LiveJob) -> None:
        """A job is gone: what waits will not run; what runs ends on its VM."""
        job.gone = True
        now = self._clock.now_ms()
        for handle in job.delayed.values():
            handle.cancel()
        waiting = [*job.delayed, *(run.id for run in job.waiting)]
        job.delayed.clear()
        job.waiting.clear()
        self._write_off(job, [never_ran(run, now, "the job was deleted") for run in waiting])

    async def drain(self, grace: float) -> None:
        """Start nothing more; let runs end within `grace` seconds, then have the rest stopped."""
        self._stopping = True
        await self._idle_within(grace)
        for run in self._live.running():
            self._around.machine.cancel(run.id, Why.STOPPED)
        await self._idle_within(STOP_PATIENCE)

    async def _idle_within(self, seconds: float) -> None:
        self._idle.clear()
        self._wake_if_idle()
        timer = self._clock.call_later(seconds, self._idle.set)
        await self._idle.wait()
        timer.cancel()

    def _wake_if_idle(self) -> None:
        if self._stopping and not self._live.is_busy():
            self._idle.set()


def _busy_with(job: LiveJob) -> str:
    if job.spec.overlap is Overlap.QUEUE:
        return f"overlap: {QUEUE_LIMIT} runs are waiting already"
    running = ", ".join(str(run) for run in job.in_flight) or "about to start"
    return f"overlap: the job is busy (run {running})"


def _tell(run: Run, ending: Ending) -> None:
    level = log.debug if ending.outcome is Outcome.SUCCESS else log.warning
    facts = {
        "failure": ending.failure and ending.failure.value,
        "reason": ending.reason,
        "traceback": ending.traceback,
        "globals_reset": ending.globals_reset,
    }
    told = {name: fact for name, fact in facts.items() if fact}
    level("run ended", job=run.job, run=run.id, outcome=ending.outcome.value, **told)
