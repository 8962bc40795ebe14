"""Check every few seconds for problems other than failed runs: late and silent jobs, broken files, the daemon's health.

The signs of a run's end are recorded in the transaction that records the run.  These signs have no such moment, so
`compare` yields the differences between the recorded signs and the current ones, at any time.  A sign must last before
it is recorded: a half-saved file is broken only for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.alerts.watcher import LONGEST_TEXT, OF_POOLS, AlertWatcher, subject_of
from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import STORE_REFUSED
from spyweb.incidents.truth import DAEMON, JOB, LATE, SILENT, Sign, SignGone, SignSeen
from spyweb.logs.output import tell_refusal
from spyweb.model import Every, JobId, Pings
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.schedules.due import first_due_after, jittered
from spyweb.settings.units import format_duration
from spyweb.store.model.incidents import SubjectChange
from spyweb.store.sqlite.incidents import Incidents
from spyweb.store.sqlite.runs import Runs

log = structlog.get_logger()

CHECK_S = 5.0  # no event announces most signs
STEADY_S = 12.0  # three checks have found it
IN_A_CHECK = 1_000  # jobs that may be late or silent; more are checked in turn

Signs = Mapping[str, Sign]
BROKEN, QUARANTINED, HELD_BACK = "broken", "quarantined", "held_back"
UNSERVED, NOBODY = "unserved", "no node is up that may run these jobs"
OF_A_JOB: Final = frozenset({LATE, SILENT, BROKEN, QUARANTINED, HELD_BACK})
# The sign of a part of the daemon that has a problem.
OF_A_PART: Final[Mapping[str, str]] = {
    "scheduler": "behind",
    "store": "refusing",
    "disk": "stuck",
    "workers": "missing",
    "nodes": UNSERVED,
    "backup": "unmade",
}


class Conditions(Struct, frozen=True, kw_only=True):
    """The current problems that the parts of the daemon know, each in words."""

    broken: Mapping[JobId, str] = {}  # jobs whose file does not load, even where an earlier version runs
    quarantined: Mapping[JobId, str] = {}
    held_back: Mapping[JobId, str] = {}
    parts: Mapping[str, str] = {}  # of the daemon
    pools: Sequence[str] = ()  # of slots, with jobs that no node may run
    lasting_ms: Mapping[str, int] = {}  # how long a part's problem has lasted, where that is known

    def of_job(self, job: JobId, now_ms: int) -> dict[str, Sign]:
        known = {BROKEN: self.broken, QUARANTINED: self.quarantined, HELD_BACK: self.held_back}
        return {sign: Sign(now_ms, jobs[job][:LONGEST_TEXT]) for sign, jobs in known.items() if job in jobs}

    def of_part(self, part: str, now_ms: int) -> dict[str, Sign]:
        if part not in self.parts:
            return {}
        since_ms = now_ms - self.lasting_ms.get(part, 0)
        return {OF_A_PART[part]: Sign(since_ms, self.parts[part][:LONGEST_TEXT])}


class Now(NamedTuple):
    ms: int
    floor_ms: int  # the clock at the start, or where it was set back to: the latest time of moments after `ms`

    def since(self, *moments: int | None) -> int:
        """Return the latest of these moments; now where there is none."""
        latest_ms = max((moment for moment in moments if moment), default=self.ms)
        return latest_ms if latest_ms <= self.ms else min(self.floor_ms, self.ms)


def signs_of(job: LiveJob, conditions: Conditions, noted: Mapping[str, Sign], now: Now) -> Mapping[str, Sign]:
    """Return the current signs of a job, of those in OF_A_JOB."""
    found = conditions.of_job(job.id, now.ms)
    if isinstance(job.spec.schedule, Pings):
        late = _late_ping(job, job.spec.schedule, noted.get(LATE), now)
    else:
        late = _late(job, noted.get(LATE), now)
    if late:
        found[LATE] = late
    if silent := _silent(job, noted.get(SILENT), now):
        found[SILENT] = silent
    return found


def _late(job: LiveJob, noted: Sign | None, now: Now) -> Sign | None:
    """Return the sign that no run has started for a due time; a recorded sign stays until a run starts."""
    patience_ms = job.spec.alerts.late_after_ms
    if patience_ms is None:
        return None
    if noted is not None and job.started_ms < noted.since_ms <= now.ms - patience_ms:
        return noted
    since_ms = now.since(job.started_ms, job.cursor.active_since_ms)
    if now.ms - since_ms < patience_ms or not job.scheduled:
        return None
    schedule = job.spec.schedule
    due_ms = _first_due(schedule, job.cursor.due_ms if isinstance(schedule, Every) else 0, since_ms)
    if due_ms is None or now.ms - (begins_ms := jittered(job.spec, due_ms)) < patience_ms:
        return None
    return Sign(begins_ms, f"it was due, and no run has started for {format_duration(patience_ms)}")


# A job is checked again and again until its next run, and computing a time of `cron` is slow.
_first_due = lru_cache(maxsize=16_384)(first_due_after)


def _late_ping(job: LiveJob, schedule: Pings, noted: Sign | None, now: Now) -> Sign | None:
    """Return the sign that a job elsewhere has not sent its ping in time.

    A ping may have been sent while the daemon was down: a job that was not late before gets the grace again.
    """
    expected_ms = job.expected_ms
    if expected_ms is None or job.queue.in_flight:
        return None
    if noted is not None and job.cursor.due_ms > noted.since_ms:
        return None  # a ping has come since; the next may be late by itself
    late_ms = expected_ms + schedule.grace_ms
    if late_ms <= job.kept_since_ms and noted is None:
        late_ms = job.kept_since_ms + schedule.grace_ms
    if now.ms < late_ms:
        return None
    grace = f" within {format_duration(schedule.grace_ms)} of that" if schedule.grace_ms else ""
    return Sign(expected_ms, f"a ping was expected, and none has come{grace}")


def _silent(job: LiveJob, noted: Sign | None, now: Now) -> Sign | None:
    """Return the sign that no run has succeeded for too long; a recorded sign stays until a run succeeds."""
    patience_ms = job.spec.alerts.no_success_ms
    if patience_ms is None:
        return None
    if noted is not None and job.succeeded_ms <= noted.since_ms <= now.ms - patience_ms:
        return noted
    since_ms = now.since(job.succeeded_ms, job.cursor.active_since_ms)
    if now.ms - since_ms < patience_ms or job.cursor.paused:
        return None
    return Sign(since_ms, f"no run has succeeded for {format_duration(patience_ms)}")


def compare(noted: Mapping[str, Sign], found: Mapping[str, Sign]) -> Iterator[SignSeen | SignGone]:
    """Yield the events that turn the recorded signs into the current ones; signs of other kinds stay."""
    for sign, (since_ms, text) in found.items():
        if sign not in noted:
            yield SignSeen(sign, text, since_ms)
    for sign in noted:
        if sign not in found and (sign in OF_A_JOB or sign in OF_A_PART.values()):
            yield SignGone(sign)


class Doubt(NamedTuple):
    """A sign that has not lasted long enough to be recorded."""

    at: float  # when it was first seen, by the monotonic clock
    since_ms: int | None  # when it began, as first seen


@dataclass(kw_only=True, eq=False)
class SignWatch:
    """Knows the recorded signs, and checks for others."""

    watcher: AlertWatcher
    live: LiveJobs
    incidents: Incidents
    runs: Runs
    conditions: Callable[[], Conditions]
    clock: Clock

    def __post_init__(self) -> None:
        self._noted: dict[str, Signs] = {}  # of each subject with a problem
        self._doubtful: dict[str, dict[str, Doubt]] = {}  # signs that are not recorded yet, by subject
        self._conditions = Conditions()
        self._timed: list[JobId] = []  # jobs that may be late or silent
        self._place = 0  # where the next check begins
        self._is_linked = True  # specs have changed since the last check
        self._recalled: set[JobId] = set()  # jobs whose last runs were read from the record
        self._began_ms = self.clock.now_ms()
        self._is_over = False
        self._now = Now(self._began_ms, self._began_ms)  # at the last check
        self.incidents.on_committed(self._take)
        self.live.on_linked(self._link)

    async def load(self) -> None:
        """Read the recorded signs, before anything changes them; again where jobs come from another node."""
        self._noted = dict(await self.incidents.signs())
        self._recalled.clear()

    async def keep_up(self) -> None:
        """Check until cancelled."""
        while True:
            await self.clock.sleep(CHECK_S)
            if self._is_over:
                continue
            try:
                await self.check()
            except STORE_REFUSED as error:
                tell_refusal("late jobs could not be checked", error, again_in_s=CHECK_S)
            except Exception:  # an internal error must not end the checks
                log.exception("internal error while checking for late jobs")

    def stop(self) -> None:
        """End the checks: a daemon that is stopping has no real problems."""
        self._is_over = True

    async def check(self) -> None:
        """Compare the current signs with the recorded ones."""
        if self._is_linked:
            self._is_linked = False
            self._timed = await run_in_slices(self.clock, self._find_timed())
        if any(job not in self._recalled for job in self._timed):
            await self._recall_runs()
        self._conditions, now_ms = self.conditions(), self.clock.now_ms()
        self._now = Now(now_ms, now_ms if now_ms < self._now.ms else self._now.floor_ms)
        node = self.live.ownership.node
        for part in OF_A_PART:
            self._note(f"{DAEMON}{node}/{part}" if node else f"{DAEMON}{part}", self._conditions.of_part(part, now_ms))
        if self.live.ownership.is_chief:
            noted = (each for each in (*self._noted, *self._doubtful) if each.startswith(OF_POOLS))
            unserved = {f"{DAEMON}{pool}": {UNSERVED: Sign(now_ms, NOBODY)} for pool in self._conditions.pools}
            for subject in {*noted, *unserved}:
                self._note(subject, unserved.get(subject, {}))
        with_signs = (JobId(each.removeprefix(JOB)) for each in (*self._noted, *self._doubtful) if each.startswith(JOB))
        start = self._place if self._place < len(self._timed) else 0
        self._place = start + IN_A_CHECK
        now, in_turn = self._conditions, self._timed[start : self._place]
        jobs = list(dict.fromkeys([*now.broken, *now.quarantined, *now.held_back, *with_signs, *in_turn]))
        await run_in_slices(self.clock, self._check_jobs(jobs))

    def _find_timed(self) -> Steps[list[JobId]]:
        timed = []
        for job in self.live:
            policy = job.spec.alerts
            may_be = policy.late_after_ms is not None or policy.no_success_ms is not None
            if may_be or isinstance(job.spec.schedule, Pings):
                timed.append(job.id)
            yield
        return timed

    async def _recall_runs(self) -> None:
        """Read from the record when each job last started and succeeded, only where it matters.

        A job that was added while this daemon ran has no past that counts; a job whose file did not load before has.
        """
        new = [job for each in self._timed if each not in self._recalled and (job := self.live.find(each))]
        if self.live.ownership.node or any((job.cursor.active_since_ms or 0) < self._began_ms for job in new):
            started, succeeded = await self.runs.started(), await self.runs.succeeded()
            for job in self.live:
                job.started_ms = max(job.started_ms, started.get(job.id, 0))
                job.succeeded_ms = max(job.succeeded_ms, succeeded.get(job.id, 0))
            self._recalled.update(job.id for job in self.live)
        self._recalled.update(self._timed)

    def _check_jobs(self, jobs: Sequence[JobId]) -> Steps[None]:
        for job_id in jobs:
            job, subject = self.live.find(job_id), subject_of(job_id)
            noted = self._noted.get(subject, {})
            if not self.live.is_mine(job_id):
                self._doubtful.pop(subject, None)
            elif job is None:  # its file does not load, so whether it is late is unknown; or it was removed
                stays = {sign: noted[sign] for sign in (LATE, SILENT) if sign in noted}
                self._note(subject, {**stays, **self._conditions.of_job(job_id, self._now.ms)})
            elif job.spec.enabled:
                self._note(subject, signs_of(job, self._conditions, noted, self._now))
            else:
                self._doubtful.pop(subject, None)
            yield

    def _note(self, subject: str, found: Signs) -> None:
        """Record signs that have lasted, and signs that have ended."""
        noted = self._noted.get(subject)
        if not noted and not found:
            self._doubtful.pop(subject, None)
            return
        doubtful, lasts = self._doubtful.pop(subject, {}), dict[str, Doubt]()
        for event in list(compare(noted or {}, found)):
            if isinstance(event, SignGone):
                self._saw(subject, event)
                continue
            doubt = doubtful.get(event.sign) or Doubt(self.clock.monotonic(), event.since_ms)
            is_steady = self.clock.monotonic() - doubt.at >= STEADY_S
            if not is_steady or not self._saw(subject, replace(event, since_ms=doubt.since_ms)):
                lasts[event.sign] = doubt
        if lasts:
            self._doubtful[subject] = lasts

    def _saw(self, subject: str, event: SignSeen | SignGone) -> bool:
        """Record an event, and count it as recorded until the store says otherwise."""
        if not self.watcher.saw(subject, event):
            return False
        signs = {sign: seen for sign, seen in self._noted.get(subject, {}).items() if sign != event.sign}
        if isinstance(event, SignSeen):
            signs[event.sign] = Sign(event.since_ms or self.clock.now_ms(), event.text)
        self._keep(subject, signs)
        return True

    def _keep(self, subject: str, signs: Signs) -> None:
        if signs:
            self._noted[subject] = signs
        else:
            self._noted.pop(subject, None)

    def _take(self, changes: Sequence[SubjectChange]) -> None:
        """Take committed changes."""
        for change in changes:
            self._keep(change.subject, change.signs)

    def _link(self) -> None:
        self._is_linked = True
