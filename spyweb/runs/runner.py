"""Carry each run from its claim to its record.

A request is admitted by its job's queue, claimed in the store, run in its job's VM, and concluded: its end, its retry
and the starts of the jobs that follow it are committed together.  A claimed run survives a crash: see `take_up`.
"""

from __future__ import annotations

from asyncio import Event, Future, Task, TaskGroup, gather, get_running_loop, shield
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.checks.settings import check_values
from spyweb.clock import Clock
from spyweb.cooperative import set_done, within
from spyweb.errors import STORE_REFUSED, PoolError, Refused, StoreCorrupt, StoreMoved
from spyweb.logs.output import note_refused, tell_refusal, until_accepted
from spyweb.lua.endings import failed, never_begun
from spyweb.lua.pool import Pool
from spyweb.lua.wire import Why
from spyweb.model import (
    Ending,
    Failure,
    JobId,
    Outcome,
    Pings,
    Run,
    RunId,
    RunState,
    TaskBegun,
    TaskRow,
    Trigger,
    TriggerType,
)
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ownership import NO_TRUST
from spyweb.permissions.policy import Audit
from spyweb.runs import records
from spyweb.runs.counters import RunCounters
from spyweb.runs.end_batcher import EndBatcher
from spyweb.runs.followups import after_loss, follow_up, may_retry, what_follows
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.recordings import RunRecorder
from spyweb.runs.run_queue import Admission
from spyweb.runs.uptime import latency_of, stale_of
from spyweb.stalls import StallRecorder, Work, work_for
from spyweb.store.interchange.value_json import decode_json
from spyweb.store.model.entries import ChangeEvent
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.runs import Begin, Change, End, NewRun, RequestKey, SkippedRange
from spyweb.store.sqlite.store import Store

log = structlog.get_logger()

STORE_PATIENCE = 5.0  # seconds before a refused question or commit is repeated
STOP_PATIENCE = 3.0  # seconds for runs to end after the signal to stop
LAST_PATIENCE = 2.0  # seconds for recording ended runs
LEFT_OPEN = "left open for the next start"
DELETED = "the job was deleted"
BY_REQUEST = "cancelled by request"
CANCELLED = Ending(outcome=Outcome.FAILED, failure=Failure.CANCELLED, reason=BY_REQUEST)
# Its effects and its part in the crash are unknown: it is repeated only where its job allows retries.
LOST = Ending(outcome=Outcome.LOST, reason="the daemon died", guilty=True)
NOTHING = Change()  # no follow-up
BUG = "internal error (see the log)"
UNSURE = Ending(outcome=Outcome.LOST, reason=f"it did not begin: {NO_TRUST}")


class Observer(Protocol):
    """Watches one run, line by line."""

    def log(self, level: str, text: bytes) -> None: ...

    def task(self, event: TaskBegun | TaskRow) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None: ...

    @property
    def audit(self) -> Audit | None:
        """Return the audit that records the permissions that the run uses, if there is one."""


class RunRequest(Struct, frozen=True, kw_only=True):
    """A request that a job run once."""

    trigger: Trigger
    due_ms: int | None = None
    made_up_for: bool = False  # one of several missed due times: it waits where another would be skipped
    observer: Observer | None = None  # a watched run (`spyweb run`) is not retried and starts no other job
    payload: bytes | None = None  # JSON that is too large for the trigger
    key: RequestKey | None = None  # of the client's request
    begun: Future[Run] | None = None  # of a run that happens elsewhere: gets the recorded run, and nothing is started


def by_hand(
    observer: Observer | None = None,
    *,
    debug: bool = False,
    dry_run: bool = False,
    values: Mapping[str, object] | None = None,
    payload: object = None,
    parent: str = "",
) -> RunRequest:
    """Make the request of a manual run, with values that override the job's, and a payload for its trigger."""
    trigger = Trigger(
        type=TriggerType.MANUAL,
        values=values or {},
        payload=payload,
        traceparent=parent,
        debug=debug,
        dry_run=dry_run,
        watched=observer is not None,
    )
    return RunRequest(trigger=trigger, observer=observer)


class ClaimedRun(NamedTuple):
    """A request that was admitted, on its way to the store."""

    job: LiveJob
    request: RunRequest
    new: NewRun
    admission: Admission


JudgeEnd = Callable[[LiveJob, Run, End], SubjectEvent | None]
Claims = Future[list[RunId | None]]  # the id of each claimed run; None for one that was claimed before
HostFor = Callable[[LiveJob, Run, Observer | None], OpDispatcher]


class Monitors(Protocol):
    """Carries out the runs of monitor jobs; implemented on a floor above."""

    async def run(self, job: LiveJob, run: Run, host: OpDispatcher, ctx: Mapping[str, object]) -> Ending: ...

    def cancel(self, run: RunId, why: Why) -> None: ...

    def forget(self, job: JobId) -> None: ...


@dataclass(kw_only=True, eq=False)
class Runner:
    """Owns every run in flight."""

    store: Store
    live: LiveJobs
    pool: Pool
    monitors: Monitors
    clock: Clock
    host_for: HostFor
    run_ended: Callable[[RunId], None]  # called for every run whose end is committed
    random: Callable[[], float]
    stalls: StallRecorder
    tasks: TaskGroup
    counters: RunCounters = field(default_factory=RunCounters)
    recorder: RunRecorder = field(default_factory=RunRecorder)
    judge: JudgeEnd = lambda *_: None  # in a daemon: returns the incident event of a run's end
    served: list[Callable[[LiveJob], None]] = field(default_factory=list)  # called at the end of each run for a change

    _run_tasks: dict[Task[None], Run | None] = field(init=False, default_factory=dict)  # whose end is not recorded yet
    _observers: dict[RunId, Observer] = field(init=False, default_factory=dict)
    _cancelled: dict[RunId, Why] = field(init=False, default_factory=dict)  # runs that must end, also before they begin
    _replaced_by: dict[RunId, RunId] = field(init=False, default_factory=dict)
    _orphaned: list[Run] = field(init=False, default_factory=list)  # of an earlier daemon, of jobs that can't be loaded
    _stop: Future[None] = field(init=False, default_factory=lambda: get_running_loop().create_future())  # once it began
    _idle: Event = field(init=False, default_factory=Event)
    _refusal: str = ""  # why the store refuses what has happened, reported once for all runs

    def __post_init__(self) -> None:
        self._ends = EndBatcher(self.store.runs, self.clock)
        self.live.on_linked(self._take_up_orphaned)

    @property
    def _stopping(self) -> bool:
        return self._stop.done()

    def start(self, job: LiveJob, requests: Sequence[RunRequest]) -> Claims:
        """Claim runs other than scheduled ones."""
        return self.start_all([(job, request) for request in requests], Change())

    def start_by_hand(self, job: LiveJob, request: RunRequest) -> Claims:
        """Claim a manual run.  Raises Refused at a stop, where a due time would be skipped, for wrong conditions."""
        if self._stopping:
            raise Refused(f"{job.id}: the daemon is stopping")
        if not job.mine:
            raise Refused(f"{job.id}: another node runs it")
        if isinstance(job.spec.schedule, Pings):
            raise Refused(f"{job.id} runs elsewhere and can't be started here: send a ping to its hook after a run")
        if job.queue.admission(job.spec) is Admission.SKIP:
            raise Refused(f"{job.id}: {job.queue.busy_with(job.spec)}")
        check_values(job.spec.check, request.trigger.values)
        return self.start(job, [request])

    def start_all(self, starts: Sequence[tuple[LiveJob, RunRequest]], change: Change) -> Claims:
        """Claim runs in the commit of this change, which also records the runs that their jobs' queues skip."""
        claims: list[ClaimedRun] = []
        skipped = [*change.skipped]
        for job, request in starts:
            admission = self._admit(job, request)
            is_starting = admission is Admission.START
            resumable = job.spec.resume and not request.trigger.incident
            new = NewRun(
                job=job.id,
                state=RunState.RUNNING if is_starting else RunState.WAITING,
                trigger=replace(request.trigger, resumable=True) if resumable else request.trigger,
                due_ms=request.due_ms,
                started_ms=self.clock.now_ms() if is_starting else None,
                generation=job.code.generation,
                payload=request.payload,
                request=request.key,
            )
            if admission is Admission.SKIP:
                skipped.append(records.skip_of(new, self.clock.now_ms(), job.queue.busy_with(job.spec)))
            else:
                claims.append(ClaimedRun(job, request, new, admission))
        self._ends.flush()  # they share the commit
        future = self.store.runs.record(replace(change, new=[claim.new for claim in claims], skipped=skipped))
        future.add_done_callback(partial(self._claimed, claims, skipped))
        return future

    def _admit(self, job: LiveJob, request: RunRequest) -> Admission:
        """Admit a run by its job's queue; runs for incidents and changes wait their turn, regardless of `overlap`."""
        if request.trigger.incident:
            return job.queue.claim_in_turn()
        if request.trigger.change:
            return Admission.WAIT if self._stopping else job.queue.claim_for_change(job.spec, request.trigger)
        return job.queue.claim(job.spec, made_up_for=request.made_up_for, may_replace=not request.trigger.is_trial)

    def _claimed(self, claims: Sequence[ClaimedRun], skipped: Sequence[SkippedRange], answer: Claims) -> None:
        """Start or queue the claimed runs once they are recorded; if the store refused, the caller gets the error."""
        is_refused = answer.cancelled() or answer.exception() is not None
        ids: Sequence[RunId | None] = [None] * len(claims) if is_refused else answer.result()
        for claim, run_id in zip(claims, ids, strict=True):
            job = claim.job
            run = None if run_id is None else records.run_of(run_id, claim.new)
            job.queue.end_claim(claim.new, run)
            if run is not None:
                self._take(claim, run)
        if not is_refused:
            self._pass_over(skipped)
            for job in dict.fromkeys(claim.job for claim in claims):
                self.start_next(job)

    def _take(self, claim: ClaimedRun, run: Run) -> None:
        """Start or queue one recorded run."""
        job = claim.job
        if run.due_ms is not None:
            self.counters.of(job.id).due += 1
        if claim.request.observer:
            self._observers[run.id] = claim.request.observer
        begun = claim.request.begun
        if begun is not None:
            if not begun.done():
                begun.set_result(run)
            self._begun(job, run)
        elif run.state is RunState.RUNNING:
            self._spawn(self._live_through(job, run), run, job)
        elif job.gone:
            self._write_off([run], DELETED)
        elif job.mine:  # else its owner takes it up, by the record
            self._line_up(job, run, replaces=claim.admission is Admission.REPLACE)

    def start_next(self, job: LiveJob) -> None:
        """Start every run of this job that may start now."""
        job = self.live.current(job)
        may_start = job.mine and self.live.ownership.is_trusted and not self._stopping
        while may_start and (run := job.queue.start_next(job.spec, self.clock.now_ms())) is not None:
            self._spawn(self._live_through(job, run, has_waited=True), run, job)

    async def _live_through(self, job: LiveJob, run: Run, *, has_waited: bool = False) -> None:
        """Carry one run from its attempt to the record of its end and follow-ups, then start the next one."""
        work_for(Work("run", job.id, run.id, job.code.generation))
        if has_waited:
            begin = Begin(run=run.id, started_ms=run.started_ms or 0, generation=job.code.generation)
            await self._commit(Change(begin=[begin]))
        self._begun(job, run)
        host = self.host_for(job, run, self._observers.get(run.id))
        self._ends.under_way += 1
        try:
            ending = await self._attempt(job, run, host)
        finally:
            self._ends.under_way -= 1
        if ending.failure is Failure.CANCELLED and run.id in self._replaced_by:
            ending = replace(ending, reason=f"{ending.reason}: replaced by run {self._replaced_by[run.id]}")
        notes = (ending.note, records.DRY_RUN_NOTE if run.trigger.dry_run else "", self.stalls.take_note(run.id))
        if any(notes[1:]) or host.call.tally.storage_errors or host.call.tally.sql_cpu_s:
            note, cpu_ms = "; ".join(filter(None, notes)), ending.cpu_ms + round(host.call.tally.sql_cpu_s * 1000)
            ending = replace(ending, storage_errors=host.call.tally.storage_errors, note=note, cpu_ms=cpu_ms)
        await self._end(job, run, ending)
        if host.trace is not None:
            is_well = ending.outcome in (Outcome.SUCCESS, Outcome.SKIPPED)
            host.trace.end("" if is_well else ending.reason or ending.outcome.value)

    async def _end(
        self, job: LiveJob | None, run: Run, ending: Ending, follow: Change | None = None, heard_ms: int | None = None
    ) -> None:
        """Record and report the end of any run with its follow-ups, then start the next one."""
        ran = job if job is not None and run.id in job.queue.in_flight else None
        if follow is None:
            follow = self._followers(ran, run, ending) if ran else NOTHING
        end = self._judged(job, run, ending, follow)
        heard = {} if heard_ms is None else {run.job: heard_ms}
        is_awaited = follow.new or follow.skipped or heard or run.trigger.change or run.id in self._observers
        may_wait = ran and not is_awaited and not ran.queue.waiting and not self._stopping
        if may_wait and await self._ends.add(end):
            ids: Sequence[RunId | None] = []
            self.run_ended(run.id)
        else:
            ids = await self._commit(replace(follow, end=[end], heard=heard))
        self._leave(job, run)
        if job is not None and heard_ms is not None:
            job.hear(heard_ms)
        self._tell_end(ran, run, ending, end)
        self._pass_over(follow.skipped)
        self._take_in(follow.new, ids)
        if job is not None:
            self.start_next(job)
            for listener in self.served if run.trigger.change else ():
                listener(self.live.current(job))

    def _tell_end(self, ran: LiveJob | None, run: Run, ending: Ending, end: End) -> None:
        """Count and report a recorded end; `ran` is its job, where this daemon carried out all of the run."""
        ended = records.ended_run(run, end)
        if ran:
            ran.note_end(ended)
            _log_end(run, ending)
        if observer := self._observers.pop(run.id, None):
            observer.ended(run, ending)
        self.counters.ended(ended, has_lasted=ran is not None)
        if self.live.listener:
            self.live.listener.run_ended(ended, ran.late_ms(run) if ran else None)

    def _leave(self, job: LiveJob | None, run: Run) -> None:
        if job is not None:
            job.queue.leave(run)
        self._cancelled.pop(run.id, None)
        self._replaced_by.pop(run.id, None)
        self._wake_if_idle()

    async def begin_elsewhere(self, job: LiveJob, trigger: Trigger) -> Run:
        """Record a run that happens elsewhere, in flight until `end_elsewhere`.  Raises Refused, StoreError."""
        if self._stopping:
            raise Refused(f"{job.id}: the daemon is stopping")
        if job.gone:
            raise Refused(f"{job.id} was removed")
        begun: Future[Run] = get_running_loop().create_future()
        await shield(self.start(job, [RunRequest(trigger=trigger, begun=begun)]))
        return await begun

    def _begun(self, job: LiveJob, run: Run) -> None:
        """Count and report the start of a run, and send the ping about it."""
        late = job.late_ms(run)
        if not run.trigger.is_aside and not records.is_finding(run):
            job.started_ms = run.started_ms or 0
        if (ping := records.ping_of(job.spec, run)) is not None:
            refused = "the ping about the start of a run was not stored"  # that about its end is separate
            self.store.outbox.add([ping]).add_done_callback(partial(note_refused, refused))
        self.counters.started(run, late)
        if self.live.listener:
            self.live.listener.run_began(run, late)

    def end_elsewhere(self, job: LiveJob, run: Run, ending: Ending, heard_ms: int | None) -> Task[None]:
        """Record the end of a run that happened elsewhere; the next ping is expected from `heard_ms` on."""
        return self._spawn(self._end(job, run, ending, heard_ms=heard_ms), run, job)

    async def _attempt(self, job: LiveJob, run: Run, host: OpDispatcher) -> Ending:
        """Run it in its job's VM, or through the monitors; return its ending, also where that is an error."""
        refusal = self.stalls.refusal_of(job.id, job.code.generation)
        if refusal:
            return failed(refusal)
        found = await self._find_what_came(run)
        if isinstance(found, Ending):
            return found
        run, event = found
        if not self.live.ownership.is_trusted:
            return UNSURE
        if job.spec.monitor:
            return await self.monitors.run(job, run, host, records.ctx_of(run, event))
        is_last = job.gone or run.trigger.stands_alone or not may_retry(run, job.spec.retry)
        recording = self.recorder.begin(job.spec, self.clock.now_ms() - (run.started_ms or 0))
        request = records.request_of(run, job.spec, job.code, event, may_retry=not is_last, recording=recording)
        try:
            # The next run must not find globals that a dry run has set.
            ending = await self.pool.run(request, host, is_fresh=run.trigger.dry_run)
        except PoolError as error:
            ending = failed(str(error))
        finally:
            if recording is not None:
                recording.close()
        return await self.recorder.keep(job.spec.record, request, ending)

    async def _find_what_came(self, run: Run) -> tuple[Run, ChangeEvent | None] | Ending:
        """Return the run with its stored payload, and the change that has started it.

        Asks again while the store refuses: a claimed run must not be lost.
        """
        accepted = partial(until_accepted, self.clock, STORE_PATIENCE)
        event_id, event = run.trigger.change_event, None
        if event_id is not None and run.id not in self._cancelled:
            event = await accepted("a change could not be read yet", partial(self.store.events.find, event_id))
        payload_id, payload = records.payload_of(run), None
        if payload_id is not None and run.id not in self._cancelled:
            payload = await accepted("a payload could not be read yet", partial(self.store.runs.payload, payload_id))
        if run.id in self._cancelled:
            return never_begun(self._cancelled[run.id])
        if records.is_finding(run):
            return records.ending_of(run)
        if event_id is not None and event is None:
            return failed("the change that started it is no longer stored")
        if payload_id is None:
            return run, event
        if payload is None:
            return failed("its payload is no longer stored")
        return replace(run, trigger=replace(run.trigger, payload=decode_json(payload))), event

    def _followers(self, job: LiveJob, run: Run, ending: Ending) -> Change:
        """Return the claims that are committed with the end of a run: its next attempt, or the jobs that follow it.

        The follow-ups of a run that the end of the daemon has stopped wait for the next start.
        """
        now_ms = self.clock.now_ms()
        if run.trigger.stands_alone or (records.is_finding(run) and ending.outcome is Outcome.SUCCESS):
            return NOTHING
        again = None if job.gone or records.is_finding(run) else follow_up(job.spec, run, ending, now_ms, self.random)
        if again:
            return Change(new=[again])
        after = self.live.after(job.id)
        return what_follows(run, ending, after, now_ms) if after else NOTHING

    def _judged(self, job: LiveJob | None, run: Run, ending: Ending, follow: Change) -> End:
        """Return the end with what it means for its job; that of a run that is retried means nothing yet."""
        end = records.end_of(run, ending, self.clock.now_ms())
        if job is None or job.gone or (follow.new and any(new.job == run.job for new in follow.new)):
            return end
        alert, ping = self.judge(job, run, end), records.ping_of(job.spec, run, end)
        stale_ms, latency = stale_of(job, run, ending, end.ended_ms), latency_of(run, ending, end.ended_ms)
        return replace(end, alert=alert, ping=ping, stale_ms=stale_ms, latency=latency)

    async def _commit(self, change: Change) -> list[RunId | None]:
        """Record a change, repeating while the store refuses: the run has really started or ended.

        A damaged database accepts no changes until the next start, which finds the run open; follow-ups wait for
        it.  The same applies, during a stop, to a removed database.  A run whose start is not recorded does not begin.
        """
        while True:
            try:
                ids, self._refusal = await self.store.runs.record(change), ""
                break
            except STORE_REFUSED as error:
                is_stop = self._stopping and isinstance(error, (StoreCorrupt, StoreMoved))
                if is_stop:
                    tell_refusal(LEFT_OPEN, error, runs=len(change.end) + len(change.begin))
                    self._cancelled.update((begin.run, Why.STOPPED) for begin in change.begin)
                if is_stop or (isinstance(error, StoreCorrupt) and not change.begin):
                    ids = [None] * len(change.new)
                    break
                if str(error) != self._refusal:
                    tell_refusal("not recorded yet", error, again_in_s=STORE_PATIENCE)
                self._refusal = str(error)
                if self._stopping:
                    await self.clock.sleep(STORE_PATIENCE)
                else:  # as a stop begins it is asked at once
                    await within(self.clock, STORE_PATIENCE, self._stop)
        for end in change.end:
            self.run_ended(end.run)
        return ids

    def _pass_over(self, skipped: Sequence[SkippedRange]) -> None:
        """Count and report starts that were recorded as skipped."""
        self.counters.passed_over(skipped)
        self.live.tell_skipped(skipped)

    def _take_in(self, follow: Sequence[NewRun], ids: Sequence[RunId | None]) -> None:
        """Queue the runs that were recorded together with the end of the run before them."""
        for run in [records.run_of(run_id, new) for new, run_id in zip(follow, ids, strict=True) if run_id is not None]:
            job = self.live.find(run.job)
            if job is not None:
                self._wait(job, run) if job.mine else self.store.runs.ring()  # for its owner
            elif job is None and self.live.unloadable:
                self._orphaned.append(run)
            elif job is None:  # deleted while this was on its way to the store
                self._write_off([run], DELETED)

    def _wait(self, job: LiveJob, run: Run) -> None:
        delay_ms = (run.start_after_ms or 0) - self.clock.now_ms()
        delay_ms = min(delay_ms, job.spec.retry.max_delay_ms)  # longer: the clock was set back meanwhile
        if delay_ms > 0:
            timer = self.clock.call_later(delay_ms / 1000, partial(self._ready, job, run))
            job.queue.delayed[run.id] = (run, timer)
            if self.live.listener:
                self.live.listener.run_waits(run)
        else:
            self._ready(job, run)

    def _ready(self, job: LiveJob, run: Run) -> None:
        job.queue.delayed.pop(run.id, None)
        if self._stopping:
            return  # it is recorded as waiting; the next start takes it up
        admission = Admission.WAIT if run.trigger.is_owed or run.trigger.resumes else job.queue.admission(job.spec)
        if admission is Admission.SKIP:
            self._write_off([run], job.queue.busy_with(job.spec))
        else:
            self._line_up(job, run, replaces=admission is Admission.REPLACE)
        self.start_next(job)

    def _line_up(self, job: LiveJob, run: Run, *, replaces: bool) -> None:
        """Queue a run; if it replaces others, cancel runs in flight or waiting, except for changes and incidents."""
        if replaces:
            for running in job.queue.in_flight.values():
                if not running.trigger.is_owed:
                    self._replaced_by.setdefault(running.id, run.id)
                    self._have_end(running, Why.CANCELLED)
            self._write_off(job.queue.make_way(), f"replaced by run {run.id}")
        job.queue.line_up(run)
        if self.live.listener:
            self.live.listener.run_waits(run)

    def _have_end(self, run: Run, why: Why) -> None:
        """Cancel a run in flight, also one that the pool has not taken yet."""
        self._cancelled.setdefault(run.id, why)
        self.pool.cancel(run.id, why)
        self.monitors.cancel(run.id, why)

    def cancel(self, run_id: RunId) -> bool:
        """Cancel a run in flight, or drop a waiting one; return whether there was such a run.  It is not retried."""
        for job in self.live.with_runs():
            running = job.queue.in_flight.get(run_id)
            if running is not None:
                if running.trigger.ping:
                    self.end_elsewhere(job, running, CANCELLED, None)
                else:
                    self._have_end(running, Why.CANCELLED)
                return True
            waiting = job.queue.give_up(run_id)
            if waiting is not None:
                self._spawn(self._end(job, waiting, records.unbegun(BY_REQUEST)), waiting, job)
                return True
        return False

    def _write_off(self, runs: Sequence[Run], reason: str) -> None:
        for run in runs:
            job = self.live.find(run.job)
            self._spawn(self._end(job, run, records.unbegun(reason)), run, job)

    def _spawn(
        self, work: Coroutine[object, object, None], run: Run | None = None, job: LiveJob | None = None
    ) -> Task[None]:
        """Run this coroutine in a task that `drain` waits for, and name its run in errors."""
        if run is not None:
            work = self._contain(job, run, work)
        task = self.tasks.create_task(work, name=f"run {run.id} of {run.job}" if run else "orphaned runs")
        self._run_tasks[task] = run
        task.add_done_callback(self._run_tasks.pop)
        return task

    async def _contain(self, job: LiveJob | None, run: Run, work: Coroutine[object, object, None]) -> None:
        """Let an internal error fail this run and no other."""
        try:
            await work
        except Exception:
            log.exception("internal error in a run", job=run.job, run=run.id)
            await self._end(job, run, failed(BUG), NOTHING)
        finally:
            self._leave(job, run)  # also where this is cancelled

    async def take_up(self, open_runs: Sequence[Run], lost: Ending = LOST) -> None:
        """Take over the open runs of an earlier daemon: those in flight are lost, waiting ones keep waiting.

        Waiting runs of unknown jobs keep waiting as long as there are files that can't be loaded.
        """
        for run in sorted(open_runs, key=lambda run: run.trigger.change_event or 0):
            job = self.live.find(run.job)
            if run.state is RunState.RUNNING:
                ending = records.ending_of(run) if records.is_finding(run) else lost
                await self._end(job, run, ending, self._after_loss(job, run, ending))
            elif job is None and self.live.unloadable:
                self._orphaned.append(run)
            elif job is None or not job.spec.enabled:
                await self._end(job, run, records.unbegun("the job was removed or disabled"))
            elif run.start_after_ms is None:
                job.queue.line_up(run)  # `overlap` has let it wait already
                self.start_next(job)
            else:
                self._wait(job, run)

    def _take_up_orphaned(self) -> None:
        """Take up the orphaned runs whose jobs have become known, after a change of specs."""
        settled = [run for run in self._orphaned if self.live.find(run.job) or not self.live.unloadable]
        if settled and not self._stopping:
            self._orphaned = [run for run in self._orphaned if run not in settled]
            self._spawn(self.take_up([run for run in settled if self.live.is_mine(run.job)]))

    def _after_loss(self, job: LiveJob | None, run: Run, ending: Ending) -> Change:
        """Return the follow-ups of a run that an earlier daemon did not end: the same run again, or jobs `after` it."""
        if run.trigger.stands_alone:
            return NOTHING
        now_ms, spec = self.clock.now_ms(), job.spec if job else None
        may_be_back = bool(self.live.unloadable)
        again = after_loss(spec, run, ending, now_ms, self.random, may_be_back=may_be_back)
        return Change(new=[again]) if again else what_follows(run, ending, self.live.after(run.job), now_ms)

    def forget(self, job: LiveJob) -> None:
        """Forget a removed job: its waiting runs will not start, its runs in flight end on their VM."""
        job.gone = True
        self.monitors.forget(job.id)
        self.stalls.forget(job.id)
        self.counters.forget(job.id)
        left = [*job.queue.clear(), *job.queue.leave_elsewhere()]
        self._write_off(left if job.mine else [], DELETED)

    def under_way(self) -> list[Run]:
        """Return the runs that this daemon has begun, or whose end it records."""
        return [*filter(None, self._run_tasks.values())]

    def stop_runs(self) -> None:
        """Have the runs in flight end, but for those that happen elsewhere."""
        for run in self.live.running():
            if not run.trigger.ping:
                self._have_end(run, Why.STOPPED)

    async def drain(self, grace: float) -> None:
        """Start no more runs; let those in flight end within `grace` seconds, then stop the rest.

        Runs whose end the store refuses to record even then stay open: the next start records them as lost.
        """
        set_done(self._stop)
        for job in self.live.with_runs():
            job.queue.leave_elsewhere()  # they continue, and the next start takes them up
        await self._idle_within(grace)
        self.stop_runs()
        await self._idle_within(STOP_PATIENCE)
        run_tasks = list(self._run_tasks)
        if run_tasks and not await within(self.clock, LAST_PATIENCE, gather(*run_tasks, return_exceptions=True)):
            log.error(LEFT_OPEN, runs=len(run_tasks))
            for task in run_tasks:
                task.cancel()

    async def _idle_within(self, seconds: float) -> None:
        self._idle.clear()
        self._wake_if_idle()
        timer = self.clock.call_later(seconds, self._idle.set)
        await self._idle.wait()
        timer.cancel()

    def _wake_if_idle(self) -> None:
        if self._stopping and not self.live.is_busy():
            self._idle.set()


def _log_end(run: Run, ending: Ending) -> None:
    level = log.debug if ending.outcome in (Outcome.SUCCESS, Outcome.SKIPPED) else log.warning
    details = {
        "failure": ending.failure and ending.failure.value,
        "reason": ending.reason,
        "traceback": ending.traceback,
        "globals_reset": ending.globals_reset,
    }
    known = {name: detail for name, detail in details.items() if detail}
    level("run ended", job=run.job, run=run.id, outcome=ending.outcome.value, **known)
