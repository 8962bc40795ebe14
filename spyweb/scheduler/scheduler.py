"""Decide when runs happen: every due time either runs or leaves a record saying why not.

A timer for each job wakes the scheduler; what is due then is computed from the job's cursor alone (schedules/due.py),
so a late, early or doubled wake-up, a restart or a clock that jumps can neither lose a due time nor run it twice.  The
cursor moves in the commit that claims the run.

A cursor that another process has moved is never overwritten: see `Runs.write_cursors`.
"""

from __future__ import annotations

from asyncio import CancelledError, Lock, wait
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import CursorMoved, Refused
from spyweb.logs.output import tell_refusal
from spyweb.model import Cursor, JobId, Outcome, Trigger, TriggerType
from spyweb.runs.live import JobChange, LiveJob, LiveJobs
from spyweb.runs.runner import Claims, Runner, RunRequest
from spyweb.scheduler.timers import Timers
from spyweb.schedules.due import (
    SPREAD_MS,
    Activation,
    DueDecision,
    activate,
    deactivated,
    decide_due,
    jittered,
    moved,
    next_due,
    schedule_text,
    skipped_of,
    waits_for_the_past,
)
from spyweb.store.model.runs import Change, SkippedRange
from spyweb.store.sqlite.runs import Runs

log = structlog.get_logger()

LOOK_AT_CLOCK_EVERY = 3.0  # seconds; for that long an `every` does not run after the clock was set back
CLAIMED_TOGETHER = 64  # jobs
CLAIM_PATIENCE_MS = 5_000  # before a claim that the store refused is tried again
TRUST_PATIENCE_MS = 500  # before a node that may not act asks again whether it may
CLOCK_JUMP_MS = 2_000  # between wall clock and monotonic clock: more than drift
CATCH_UP_MS = 10  # between jobs that have missed due times
CATCH_UP_MOST_MS = 10_000
FEW = 10  # new jobs that need no spreading

SCHEDULED = Trigger(type=TriggerType.SCHEDULE)


class DueRuns(Struct, frozen=True, kw_only=True, eq=False):
    """The due times of one job, and how far they move its cursor."""

    job: LiveJob
    requests: Sequence[RunRequest]
    before: Cursor
    cursor: Cursor
    skipped: Sequence[SkippedRange] = ()  # due times that do not run


class Scheduler:
    """Turns due times into runs, or into records of why they did not run."""

    def __init__(self, *, timers: Timers, live: LiveJobs, runner: Runner, runs: Runs, clock: Clock) -> None:
        self._timers = timers
        self._live = live
        self._runner = runner
        self._runs = runs
        self._clock = clock
        self._due: dict[JobId, DueRuns] = {}  # in this wake-up
        self._claims: dict[JobId, Claims] = {}  # jobs whose cursor moves, until the store has answered
        self._put_off: set[JobId] = set()  # jobs that came due again before the store had answered
        self._refused: dict[JobId, int] = {}  # jobs whose due times the store will not claim, and since when
        self._seen_drift_ms = self._drift_ms()  # at the last check, first before there are timers
        self._one_at_a_time = Lock()  # for changes of a cursor other than a claim
        self.changes = 0  # of them that wait or are under way
        timers.after_firing = self._claim

    @property
    def lag_ms(self) -> int:
        """Return how long the oldest due time has been waiting.

        A jump of the clock, or a machine that was asleep, does not count until it is noticed: the scheduler is not
        stuck then, and the watchdog must not end the daemon.
        """
        earliest = self._timers.next_wake_ms
        unseen_jump_ms = max(0, self._drift_ms() - self._seen_drift_ms)
        return max(0, self._clock.now_ms() - unseen_jump_ms - earliest) if earliest is not None else 0

    @property
    def refused_ms(self) -> int:
        """Return how long the store has refused to claim a job's due times; of several jobs, the longest."""
        now_ms = self._clock.now_ms()
        return max(0, now_ms - min(self._refused.values(), default=now_ms))

    def claiming(self) -> set[JobId]:
        return {*self._due, *self._claims}

    def stop(self) -> None:
        """Claim the jobs that have just fired, and none after that."""
        self._timers.stop()
        self._claim()

    def watch(self, job: LiveJob) -> None:
        """Set, or set again, the timer of this job."""
        if _keeps_its_schedule(job):
            self._timers.set(job.id, partial(self._next_ms, job), partial(self._fire, job))
        else:
            self.drop(job)

    def drop(self, job: LiveJob) -> None:
        self._timers.drop(job.id)
        self._refused.pop(job.id, None)

    def _next_ms(self, job: LiveJob, now_ms: int) -> int | None:
        due_ms = next_due(job.spec.schedule, job.cursor.due_ms)
        if due_ms is None or job.id in self._put_off:
            return None
        return max(jittered(job.spec, due_ms), job.not_before_ms, now_ms + 1)

    def _fire(self, job: LiveJob) -> None:
        """Collect all due times of a job for the next claim, which moves its cursor past them in the same commit.

        One commit at a time: a second one, computed from a cursor that the store may still refuse, would leave a gap.
        """
        if job.id in self._claims or job.id in self._due:
            self._put_off.add(job.id)  # watched again once the store has answered
            return
        now_ms = self._clock.now_ms()
        decision = _decide(job, now_ms)
        if decision.cursor_ms == job.cursor.due_ms:
            return
        if not self._live.ownership.is_trusted:
            job.not_before_ms = now_ms + TRUST_PATIENCE_MS
            return
        job.not_before_ms = 0  # passed: a clock that is set back must not bring it up again
        before = job.cursor
        job.cursor = replace(before, due_ms=decision.cursor_ms)
        several = len(decision.runs) > 1
        requests = [RunRequest(trigger=SCHEDULED, due_ms=due_ms, made_up_for=several) for due_ms in decision.runs]
        missed = [skipped_of(job.id, Outcome.MISSED, each, now_ms, each.reason) for each in decision.missed]
        self._due[job.id] = DueRuns(job=job, requests=requests, before=before, cursor=job.cursor, skipped=missed)

    def _claim(self) -> None:
        """Claim in one commit the jobs that came due in one wake-up; in slices, since a commit for very many jobs would
        block the store."""
        due, self._due = list(self._due.values()), {}
        for start in range(0, len(due), CLAIMED_TOGETHER):
            together = due[start : start + CLAIMED_TOGETHER]
            change = Change(
                expects={each.job.id: each.job.recorded for each in together},
                cursors=[each.cursor for each in together],
                skipped=[skipped for each in together for skipped in each.skipped],
                steps=[step for each in together for step in moved(each.job.recorded, each.before)],
            )
            starts = [(each.job, request) for each in together for request in each.requests]
            claim = self._runner.start_all(starts, change)
            self._claims.update((each.job.id, claim) for each in together)
            claim.add_done_callback(partial(self._answered, together))

    def _answered(self, due: Sequence[DueRuns], claim: Claims) -> None:
        """Note that the cursors have moved, or put them back where the store has refused that."""
        error = CancelledError() if claim.cancelled() else claim.exception()
        for each in due:
            del self._claims[each.job.id]
        for each in due:
            if error is None:
                each.job.recorded = each.cursor
                self._refused.pop(each.job.id, None)
            elif isinstance(error, CursorMoved):
                self._go_by_the_record(each, error)
            else:
                self._restore(each, error)
        for job in [each.job for each in due if each.job.id in self._put_off]:
            self._put_off.remove(job.id)
            self.watch(job)

    def _go_by_the_record(self, due: DueRuns, moved: CursorMoved) -> None:
        """Continue from the stored cursor: another daemon has claimed this job, or another job of this commit."""
        job = due.job
        job.cursor = due.before
        if job.id == moved.job:
            log.warning(
                "a due time had been claimed already: the schedule continues from its stored cursor", job=job.id
            )
            _go_by(job, moved.found if isinstance(moved.found, Cursor) else None)
            job.mine &= self._live.ownership.has(job.slot)
        self.watch(job)

    def _restore(self, due: DueRuns, error: BaseException) -> None:
        """Restore the cursor, and try again later."""
        job, now_ms = due.job, self._clock.now_ms()
        tell_refusal("a due run could not be claimed", error, job=job.id, again_in_ms=CLAIM_PATIENCE_MS)
        due_ms = min(due.before.due_ms, job.cursor.due_ms)  # the clock may have jumped back meanwhile
        job.cursor = replace(job.cursor, due_ms=due_ms)
        job.not_before_ms = now_ms + CLAIM_PATIENCE_MS
        self._refused.setdefault(job.id, now_ms)
        self.watch(job)

    async def catch_up(self, jobs: Sequence[LiveJob]) -> None:
        """Claim the due times of these jobs before their timers fire: their schedules are about to change."""
        async with self._one_at_a_time:
            now_ms = self._clock.now_ms()
            for job in jobs:
                if _keeps_its_schedule(job) and job.not_before_ms <= now_ms:
                    self._fire(job)
            self._claim()

    @asynccontextmanager
    async def _at_rest(self, jobs: Sequence[LiveJob]) -> AsyncIterator[None]:
        """Keep these jobs from coming due in this context, once the store has answered their earlier claims.

        A claim that overtook a change of the cursor would undo it.  Afterwards the jobs get their timers back, by their
        cursors at that time: the old ones where the store has refused the change.
        """
        self.changes += 1
        try:
            async with self._one_at_a_time:
                for job in jobs:
                    self._timers.drop(job.id)
                self._claim()  # what has just fired
                while claims := {self._claims[job.id] for job in jobs if job.id in self._claims}:
                    await wait(claims)
                    for job in jobs:  # a refused claim sets its timers again
                        self._timers.drop(job.id)
                yield
        finally:
            self.changes -= 1
            for job in jobs:
                self.watch(job)

    async def activate(self, jobs: Sequence[LiveJob], known: Mapping[JobId, Cursor]) -> None:
        """Start the schedules of jobs: new ones from their `known` cursor, other ones from their current cursor."""
        async with self._at_rest(jobs):
            new = [job for job in jobs if job.is_new]
            past = await self._runs.latest() if any(job.id in known for job in new) else {}
            for job in new:
                job.recorded, job.last = known.get(job.id), job.last or past.get(job.id)
            await self._take_up(jobs)

    async def _take_up(self, jobs: Sequence[LiveJob], *, resumed: bool = False) -> None:
        now_ms = self._clock.now_ms()
        count = sum(_known(job) is None for job in jobs)
        spread_ms = SPREAD_MS if count > FEW else count * CATCH_UP_MS

        def decide(job: LiveJob) -> Activation:
            known = _known(job)
            if known and resumed:
                known = replace(known, paused=False, paused_for="")
            return activate(job.spec, known, now_ms, spread_ms)

        await self._write(jobs, decide)
        for job in jobs:
            job.kept_since_ms = now_ms
            self._refused.pop(job.id, None)
        overdue = [job for job in jobs if job.scheduled and _is_due(job, now_ms)]
        step_ms = min(CATCH_UP_MS, CATCH_UP_MOST_MS / max(1, len(overdue)))
        for position, job in enumerate(overdue):  # they do not fire all at once
            job.not_before_ms = now_ms + round(position * step_ms)

    async def deactivate(self, jobs: Sequence[LiveJob]) -> None:
        """Stop the schedules of these jobs: their files were removed."""
        async with self._at_rest(jobs):
            now_ms = self._clock.now_ms()
            taken_up = [job for job in jobs if job.mine and not job.is_new]
            await self._write(taken_up, lambda job: Activation(cursor=deactivated(job.cursor, now_ms)))

    async def note_absent(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """Record that these known jobs have no file now; return their stored cursors."""
        now_ms = self._clock.now_ms()
        known: dict[JobId, Cursor | None] = {cursor.job: cursor for cursor in cursors}

        def decide() -> Change:
            return Change(expects=known, cursors=[deactivated(cursor, now_ms) for cursor in known.values() if cursor])

        return list((await self._runs.write_cursors(decide, known.__setitem__)).cursors)

    async def pause(self, job: LiveJob) -> None:
        """Stop a job's schedule until it is resumed.  Raises Refused for a new job, and for one that is deleted."""
        await self.pause_together({job.id: ""}, [job])

    async def pause_together(self, why: Mapping[JobId, str], jobs: Sequence[LiveJob]) -> None:
        """Pause several jobs in one commit, each for its own reason.  Raises Refused as `pause` does."""
        async with self._at_rest(jobs):
            for job in jobs:
                _expect_taken_up(job)
            now_ms = self._clock.now_ms()

            def decide(job: LiveJob) -> Activation:
                before = job.cursor
                paused = replace(deactivated(before, now_ms), paused=True)
                return Activation(cursor=paused if before.paused else replace(paused, paused_for=why[job.id]))

            await self._write(jobs, decide)
        for job in jobs:
            self._tell(job, JobChange.PAUSED)

    async def resume(self, job: LiveJob) -> None:
        """Put a job back on its schedule; due times meanwhile become one `paused` record.  Raises as `pause` does."""
        async with self._at_rest([job]):
            _expect_taken_up(job)
            await self._take_up([job], resumed=True)
        self._tell(job, JobChange.RESUMED)

    async def _write(self, jobs: Sequence[LiveJob], decide: Callable[[LiveJob], Activation]) -> None:
        """Have these jobs continue from the cursors that `decide` gives, once those are stored."""

        by_id = {job.id: job for job in jobs}

        def change() -> Change:
            decided = [(job, decide(job)) for job in by_id.values()]
            return Change(
                expects={job.id: job.recorded for job in by_id.values()},
                cursors=[each.cursor for _, each in decided],
                skipped=[skipped for _, each in decided for skipped in each.skipped],
                steps=[step for job, each in decided for step in (*moved(job.recorded, _known(job)), *each.steps)],
            )

        def go_by(moved: JobId, found: Cursor | None) -> None:
            job = by_id[moved]
            if found and found.pool != (job.recorded.pool if job.recorded else job.pool):  # it is another node's
                by_id.pop(moved).mine = False
            _go_by(job, found)

        written = await self._runs.write_cursors(change, go_by)
        self._runner.counters.passed_over(written.skipped)
        for job, cursor in zip(by_id.values(), written.cursors, strict=True):
            job.reached_ms = _reached_ms(job, _known(job) or cursor, cursor)
            job.cursor = job.recorded = cursor
        self._live.tell_skipped(written.skipped)

    def _tell(self, job: LiveJob, change: JobChange) -> None:
        if self._live.listener:
            self._live.listener.changed(job, change)

    async def watch_the_clock(self) -> None:
        """Notice when the wall clock jumps back: jobs would otherwise wait until it has caught up."""
        while True:
            await self._clock.sleep(LOOK_AT_CLOCK_EVERY)
            jump_ms = self._drift_ms() - self._seen_drift_ms
            self._seen_drift_ms += jump_ms
            if abs(jump_ms) > CLOCK_JUMP_MS:
                log.warning("the clock has jumped", by_ms=jump_ms)
                async with self._one_at_a_time:
                    self._claim()  # what has just fired
                    self._after_jump()
                self._timers.clock_was_set()

    def _drift_ms(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)

    def _after_jump(self) -> None:
        now_ms = self._clock.now_ms()
        for job in [job for job in self._live if job.mine]:
            job.not_before_ms = 0
            job.kept_since_ms = min(job.kept_since_ms, now_ms)
            if waits_for_the_past(job.spec.schedule, job.cursor.due_ms, now_ms):
                back = replace(job.cursor, due_ms=now_ms)
                job.reached_ms = _reached_ms(job, job.cursor, back)
                job.cursor = back
            self.watch(job)


def _known(job: LiveJob) -> Cursor | None:
    """Return the cursor from which a job continues; None where it has none yet."""
    return job.recorded if job.is_new else job.cursor


def _go_by(job: LiveJob, found: Cursor | None) -> None:
    """Take over the stored cursor; where there is none, the cursor of an active job is written again."""
    job.recorded = found
    if found is not None and not job.is_new:
        job.cursor = found


def _is_due(job: LiveJob, now_ms: int) -> bool:
    due_ms = next_due(job.spec.schedule, job.cursor.due_ms)
    return due_ms is not None and due_ms <= now_ms


def _keeps_its_schedule(job: LiveJob) -> bool:
    """Return whether the stored cursor of the job belongs to its schedule, and this daemon runs it."""
    cursor = job.cursor
    is_away = job.gone or not job.mine or cursor.idle_since_ms is not None
    return job.scheduled and not is_away and cursor.schedule == schedule_text(job.spec.schedule)


def _expect_taken_up(job: LiveJob) -> None:
    if job.gone:
        raise Refused(f"{job.id} was removed")
    if job.is_new or not job.mine:
        raise Refused(f"{job.id} is not on its schedule yet: try again in a moment")


def _reached_ms(job: LiveJob, before: Cursor, after: Cursor) -> int:
    """Return the furthest cursor of a schedule before it is moved back."""
    return max(job.reached_ms, before.due_ms) if before.due_ms > after.due_ms else job.reached_ms


def _decide(job: LiveJob, now_ms: int) -> DueDecision:
    """Decide about all due times of a job.

    Several due times at once, as soon as a clock that was set back is past its earlier time, mean that the clock was
    corrected: the due times up to the earlier cursor have run already.
    """
    cursor_ms = job.cursor.due_ms
    decision = decide_due(job.spec, cursor_ms, now_ms, kept_since_ms=job.kept_since_ms)
    if not cursor_ms < job.reached_ms <= now_ms or not (decision.missed or len(decision.runs) > 1):
        return decision
    job.cursor, job.reached_ms = replace(job.cursor, due_ms=job.reached_ms), 0
    return decide_due(job.spec, job.cursor.due_ms, now_ms, kept_since_ms=job.kept_since_ms)
