"""A run, from its claim to its record.

A start is admitted (overlap), claimed in the store, run in its job's VM, and concluded: its end, its retry and the jobs
that follow it are committed together.  What is claimed survives a crash: see `take_up`.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task, TaskGroup, gather
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from spyweb.errors import STORE_REFUSED, Refused, StoreCorrupt
from spyweb.logs.refusals import tell_refusal
from spyweb.lua.timeouts import within
from spyweb.lua.wire import Why
from spyweb.model import Cursor, Ending, Failure, Outcome, Run, RunId, RunState
from spyweb.runs.attempt import STORE_PATIENCE, CountingHost, Observer, Surroundings, attempt, cancel
from spyweb.runs.claims import ClaimedRun, DueRuns, RunRequest, admit_due, answered, busy_with, claim_for_event
from spyweb.runs.end_batcher import EndBatcher
from spyweb.runs.followups import begin_again, next_attempt, what_follows
from spyweb.runs.lineup import line_up, queued, take_next
from spyweb.runs.live import Delay, LiveJob
from spyweb.runs.overlap import Admission, admit
from spyweb.runs.records import end_of, run_of, unbegun
from spyweb.runs.state_trigger import event_of, is_caused
from spyweb.stalls import Work, work_for
from spyweb.store.protocol import Begin, Change, End, NewRun, SkippedRange

log = structlog.get_logger()

STOP_PATIENCE = 3.0  # seconds for runs to end once they have been told to stop
LAST_PATIENCE = 2.0  # seconds for what has ended to be recorded
REPLACED, DELETED = "replaced by a newer start", "the job was deleted"


class Runner:
    """Owns every run in flight."""

    def __init__(self, around: Surroundings, tasks: TaskGroup) -> None:
        self._around = around
        self._clock = around.clock
        self._live = around.live
        self._tasks = tasks
        self._stories: set[Task[None]] = set()  # of the runs under way, each to its record
        self._observers: dict[RunId, Observer] = {}
        self._told: dict[RunId, Why] = {}  # runs that are to end, also before they have begun
        self._listeners: list[Callable[[LiveJob], None]] = []
        self._ends = EndBatcher(around.runs, around.clock)
        self._log = log.bind()  # finding it anew takes 3 us
        self._orphaned: list[Run] = []  # of an earlier daemon, whose jobs can't be loaded yet
        self._stopping = False
        self._idle = asyncio.Event()
        self._live.on_linked(self._take_up_orphaned)

    def start(
        self,
        job: LiveJob,
        starts: Sequence[RunRequest],
        *,
        cursor: Cursor | None = None,
        skipped: Sequence[SkippedRange] = (),
    ) -> Future[list[RunId | None]]:
        """Claim these starts; in the same commit the cursor moves, and what will not run is recorded.

        Gives the id of each claimed run, None for one that was claimed before; skipped starts have none.
        """
        return self.start_due([DueRuns(job=job, starts=starts, cursor=cursor, skipped=skipped)])

    def start_due(self, due: Sequence[DueRuns]) -> Future[list[RunId | None]]:
        """As `start`, for several jobs in one commit: all of it is claimed or none."""
        now_ms = self._clock.now_ms()
        claims: list[ClaimedRun] = []
        skipped: list[SkippedRange] = []
        for each in due:
            skipped += each.skipped
            admit_due(each, now_ms, claims, skipped)
        change = Change(
            expects=[each.expects for each in due if each.expects],
            cursors=[each.cursor for each in due if each.cursor],
            new=[claim.new for claim in claims],
            skipped=skipped,
        )
        return self._record(change, claims)

    def start_for_events(
        self, starts: Sequence[tuple[LiveJob, Mapping[str, object]]], change: Change
    ) -> Future[list[RunId | None]]:
        """Claim a run for each of these jobs and triggers, in the commit of this change.

        One that can't start at once waits for its turn, whatever `overlap` says.
        """
        now_ms, may_start = self._clock.now_ms(), not self._stopping
        claims = [claim_for_event(job, trigger, now_ms, may_start=may_start) for job, trigger in starts]
        return self._record(replace(change, new=[claim.new for claim in claims]), claims)

    def on_served(self, listener: Callable[[LiveJob], None]) -> None:
        """Call this each time that a run which a change of state had started has ended."""
        self._listeners.append(listener)

    def _record(self, change: Change, claims: Sequence[ClaimedRun]) -> Future[list[RunId | None]]:
        self._ends.flush()  # they share the commit
        future = self._around.runs.record(change)
        future.add_done_callback(partial(self._claimed, claims))
        return future

    def start_by_hand(self, job: LiveJob, start: RunRequest) -> Future[list[RunId | None]]:
        """As `start`, for a person: raises Refused where a due time would be skipped, and at a stop."""
        if self._stopping:
            raise Refused(f"{job.id}: the daemon stops")
        if admit(job.spec.overlap, busy=job.busy, waiting=queued(job)) is Admission.SKIP:
            raise Refused(f"{job.id}: {busy_with(job)}")
        return self.start(job, [start])

    def _make_way(self, job: LiveJob) -> None:
        """For a newcomer that is claimed: cancel what runs, give up what waits.

        Not what changes of state have started: a change comes only once.
        """
        for run in job.in_flight.values():
            if not is_caused(run):
                self._have_end(run, Why.CANCELLED)
        dropped = [run for run in job.waiting if not is_caused(run)]
        job.waiting = [run for run in job.waiting if is_caused(run)]
        self._write_off(job, dropped, REPLACED)

    def _have_end(self, run: Run, why: Why) -> None:
        """Also one that is in flight but that the machine does not know yet."""
        self._told.setdefault(run.id, why)
        cancel(self._around, run.id, why)

    def _claimed(self, claims: Sequence[ClaimedRun], future: Future[list[RunId | None]]) -> None:
        refused = future.cancelled() or future.exception() is not None  # whoever asked sees the error
        for claim in claims:
            answered(claim, refused=refused)
        if refused:
            return
        for claim, run_id in zip(claims, future.result(), strict=True):
            if run_id is not None:
                if claim.replaces:
                    self._make_way(claim.job)
                self._take(claim.job, run_of(run_id, claim.new), claim.observer)
        for job in {claim.job.id: claim.job for claim in claims}.values():
            self._start_next(job)

    def _take(self, job: LiveJob, run: Run, observer: Observer | None) -> None:
        if observer:
            self._observers[run.id] = observer
        if run.state is RunState.RUNNING:
            job.in_flight[run.id] = run
            self._spawn(job, run, self._live_through(job, run))
        elif job.gone:
            self._write_off(job, [run], DELETED)
        else:
            line_up(job, run)

    def _spawn(self, job: LiveJob, run: Run, story: Coroutine[object, object, object]) -> None:
        self._begin_story(self._contain(job, run, story), f"run {run.id} of {job.id}")

    def _begin_story(self, story: Coroutine[object, object, None], name: str) -> None:
        task = self._tasks.create_task(story, name=name)
        self._stories.add(task)
        task.add_done_callback(self._stories.discard)

    async def _contain(self, job: LiveJob, run: Run, story: Coroutine[object, object, object]) -> None:
        try:
            await story
        except Exception:
            log.exception("a run met a bug in spyweb", job=job.id, run=run.id)
            bug = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="a bug in spyweb: see its log")
            await self._commit(Change(end=[end_of(run, bug, self._clock.now_ms())]))
            self._show_end(run, bug)
            self._start_next(self._live.current(job))

    def _show_end(self, run: Run, ending: Ending) -> None:
        """To whoever watches."""
        observer = self._observers.pop(run.id, None)
        if observer:
            observer.ended(run, ending)

    async def _live_through(self, job: LiveJob, run: Run) -> None:
        """The story of one run."""
        observer, caused = self._observers.get(run.id), is_caused(run)
        work_for(Work("run", job.id, run.id, job.code.generation))
        try:
            host = self._around.host_for(job, run, observer)
            ending = await self._attempt(job, run, host, is_watched=observer is not None)
            note = self._around.stalls.take_note(run.id)
            if note or host.storage_errors or host.sql_cpu_ms:
                notes = "; ".join(filter(None, (ending.note, note)))
                cpu_ms = ending.cpu_ms + host.sql_cpu_ms
                ending = replace(ending, storage_errors=host.storage_errors, note=notes, cpu_ms=cpu_ms)
            follow = Change() if observer else self._followers(job, run, ending)
            end = end_of(run, ending, self._clock.now_ms())
            is_awaited = bool(observer or follow.new or follow.skipped or job.waiting or caused or self._stopping)
            ids = await self._conclude(end, follow, is_awaited=is_awaited)
        finally:
            self._leave(job, run)
        job.last = end.applied_to(run)
        _tell(self._log, run, ending)
        if observer:
            self._show_end(run, ending)
        self._line_up(follow.new, ids)
        heir = self._live.current(job)
        self._start_next(heir)
        if caused:
            for listener in self._listeners:
                listener(heir)

    def _leave(self, job: LiveJob, run: Run) -> None:
        """It is in flight no longer, however that came."""
        job.in_flight.pop(run.id, None)
        self._told.pop(run.id, None)
        heir = self._live.current(job)
        if heir.serving and is_caused(run):
            heir.serving = False
        self._wake_if_idle()

    async def _attempt(self, job: LiveJob, run: Run, host: CountingHost, *, is_watched: bool) -> Ending:
        self._ends.under_way += 1
        try:
            return await attempt(self._around, job, run, host, self._told, once=is_watched)
        finally:
            self._ends.under_way -= 1

    async def _conclude(self, end: End, follow: Change, *, is_awaited: bool) -> list[RunId | None]:
        """Record the end of a run, with what follows it."""
        if is_awaited or not await self._ends.add(end):
            return await self._commit(replace(follow, end=[end]))
        self._around.run_ended(end.run)
        return []

    def _followers(self, job: LiveJob, run: Run, ending: Ending) -> Change:
        """What is claimed together with the end of a run: its next attempt, or the jobs that follow it."""
        if ending.outcome is Outcome.STOPPED:
            again = None if job.gone else begin_again(run)
            return Change(new=[again]) if again else Change()
        if not job.gone:
            retry = next_attempt(run, ending, job.spec.retry, self._clock.now_ms(), self._around.random)
            if retry:
                return Change(new=[retry])
        after = self._live.after(job.id)
        return what_follows(run, ending, after, self._clock.now_ms()) if after else Change()

    async def _commit(self, change: Change) -> list[RunId | None]:
        """Record a change however long the store refuses: what has happened can't be undone.

        A damaged database takes nothing more until the next start, which finds the run open.  Nothing follows it.
        """
        while True:
            try:
                ids = await self._around.runs.record(change)
                break
            except STORE_REFUSED as error:
                if isinstance(error, StoreCorrupt) and not change.begin:
                    ids = [None] * len(change.new)
                    break
                tell_refusal("not recorded yet", error, again_in_s=STORE_PATIENCE)
                await self._clock.sleep(STORE_PATIENCE)
        for end in change.end:
            self._around.run_ended(end.run)
        return ids

    def _line_up(self, claims: Sequence[NewRun], ids: Sequence[RunId | None]) -> None:
        for run in [run_of(run_id, new) for new, run_id in zip(claims, ids, strict=True) if run_id is not None]:
            job = self._live.find(run.job)
            if job is not None:
                self._wait(job, run)
            elif self._live.unloadable:
                self._orphaned.append(run)
            else:  # deleted while this was on its way to the store
                self._begin_story(self._end_unbegun([run], unbegun(DELETED)), f"write off run {run.id} of {run.job}")

    def _wait(self, job: LiveJob, run: Run) -> None:
        """Let a claimed run wait for its delay, then for its turn."""
        delay_ms = (run.start_after_ms or 0) - self._clock.now_ms()
        delay_ms = min(delay_ms, job.spec.retry.max_delay_ms)  # more: the clock was set back while nothing ran
        if delay_ms > 0:
            timer = self._clock.call_later(delay_ms / 1000, partial(self._ready, job, run))
            job.delayed[run.id] = Delay(run, timer)
        else:
            self._ready(job, run)

    def _ready(self, job: LiveJob, run: Run) -> None:
        job.delayed.pop(run.id, None)
        if self._stopping:
            return  # it is recorded as waiting, and is taken up at the next start
        if self._admits(job, run):
            line_up(job, run)
        self._start_next(job)

    def _admits(self, job: LiveJob, run: Run) -> bool:
        """Whether `overlap` lets it wait for its turn; what a change of state has started may in any case."""
        if is_caused(run):
            return True
        verdict = admit(job.spec.overlap, busy=job.busy, waiting=queued(job))
        if verdict is Admission.SKIP:
            self._write_off(job, [run], busy_with(job))
        elif verdict is Admission.REPLACE:
            self._make_way(job)
        return verdict is not Admission.SKIP

    def _write_off(self, job: LiveJob, runs: Sequence[Run], reason: str) -> None:
        if runs:
            self._spawn(job, runs[0], self._end_unbegun(runs, unbegun(reason)))

    async def _end_unbegun(self, runs: Sequence[Run], ending: Ending) -> None:
        now_ms = self._clock.now_ms()
        await self._commit(Change(end=[end_of(run, ending, now_ms) for run in runs]))
        for run in runs:
            self._show_end(run, ending)

    def _start_next(self, job: LiveJob) -> None:
        while not self._stopping and (waited := take_next(job)) is not None:
            run = replace(waited, state=RunState.RUNNING, started_ms=self._clock.now_ms())
            job.in_flight[run.id] = run
            job.serving |= is_caused(run)
            self._spawn(job, run, self._begin(job, run))

    async def _begin(self, job: LiveJob, run: Run) -> None:
        begin = Begin(run=run.id, started_ms=run.started_ms or 0, generation=job.code.generation)
        try:
            await self._commit(Change(begin=[begin]))
        except BaseException:
            self._leave(job, run)
            raise
        await self._live_through(job, run)

    async def take_up(self, open_runs: Sequence[Run]) -> None:
        """Go on with what an earlier daemon left: its running runs are lost, its waiting ones still wait.

        So do those of no live job, as long as there are files that can't be loaded.
        """
        for run in sorted(open_runs, key=_in_order_of_changes):
            job = self._live.find(run.job)
            if run.state is RunState.RUNNING:
                await self._bury(job, run)
            elif job is None and self._live.unloadable:
                self._orphaned.append(run)
            elif job is None or not job.spec.enabled:
                await self._end_unbegun([run], unbegun("the job is gone or disabled"))
            elif run.start_after_ms is None:
                line_up(job, run)  # `overlap` has let it wait already
                self._start_next(job)
            else:
                self._wait(job, run)

    def _take_up_orphaned(self) -> None:
        """Specs have changed: take up what waited for them."""
        settled = [run for run in self._orphaned if self._live.find(run.job) or not self._live.unloadable]
        if settled and not self._stopping:
            self._orphaned = [run for run in self._orphaned if run not in settled]
            self._begin_story(self.take_up(settled), "take up what was left")

    async def _bury(self, job: LiveJob | None, run: Run) -> None:
        now = self._clock.now_ms()
        # Nobody can tell what it had done, nor whether it was to blame: it repeats only where its job allows retries.
        ending = Ending(outcome=Outcome.LOST, reason="the daemon died", guilty=True)
        again = self._again(job, run, ending)
        after = self._live.after(run.job)
        follow = Change(new=[again]) if again else what_follows(run, ending, after, now)
        self._line_up(follow.new, await self._commit(replace(follow, end=[end_of(run, ending, now)])))

    def _again(self, job: LiveJob | None, run: Run, ending: Ending) -> NewRun | None:
        if job is None:
            return begin_again(run) if self._live.unloadable else None
        if not job.spec.enabled:
            return None
        if is_caused(run):
            return begin_again(run)
        return next_attempt(run, ending, job.spec.retry, self._clock.now_ms(), self._around.random)

    def forget(self, job: LiveJob) -> None:
        """A job is gone: what waits will not run; what runs ends on its VM."""
        job.gone = True
        for delay in job.delayed.values():
            delay.timer.cancel()
        waiting = [*(delay.run for delay in job.delayed.values()), *job.waiting]
        job.delayed.clear()
        job.waiting.clear()
        self._around.monitors.forget(job.id)
        self._around.stalls.forget(job.id)
        self._write_off(job, waiting, DELETED)

    async def drain(self, grace: float) -> None:
        """Start nothing more; let runs end within `grace` seconds, then have the rest stopped.

        What the store refuses to record even then is left open: the next start takes it for lost.
        """
        self._stopping = True
        await self._idle_within(grace)
        for run in self._live.running():
            self._have_end(run, Why.STOPPED)
        await self._idle_within(STOP_PATIENCE)
        stories = list(self._stories)
        if stories and not await within(self._clock, LAST_PATIENCE, gather(*stories, return_exceptions=True)):
            log.error("left open for the next start", runs=len(stories))
            for story in stories:
                story.cancel()

    async def _idle_within(self, seconds: float) -> None:
        self._idle.clear()
        self._wake_if_idle()
        timer = self._clock.call_later(seconds, self._idle.set)
        await self._idle.wait()
        timer.cancel()

    def _wake_if_idle(self) -> None:
        if self._stopping and not self._live.is_busy():
            self._idle.set()


def _in_order_of_changes(run: Run) -> int:
    return event_of(run.trigger) or 0


def _tell(to: FilteringBoundLogger, run: Run, ending: Ending) -> None:
    if ending.outcome is Outcome.SUCCESS:
        to.debug("run ended", job=run.job, run=run.id, outcome=ending.outcome.value)
        return
    level = to.debug if ending.outcome is Outcome.SKIPPED else to.warning
    facts = {
        "failure": ending.failure and ending.failure.value,
        "reason": ending.reason,
        "traceback": ending.traceback,
        "globals_reset": ending.globals_reset,
    }
    told = {name: fact for name, fact in facts.items() if fact}
    level("run ended", job=run.job, run=run.id, outcome=ending.outcome.value, **told)
