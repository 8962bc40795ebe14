"""Look every few seconds for what is wrong beside runs that fail, and have it noted.

What is looked at is what may have changed: the troubles that the daemon knows of, what is noted already, and some in
turn of the jobs that may be late or silent.  Where all is well, and there are no such jobs, nothing else is.

A sign must last before it is noted: a file is broken for a moment whenever somebody saves it half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from spyweb.alerts.signs import NO_CONDITIONS, OF_A_PART, Conditions, Now, compare, signs_of
from spyweb.alerts.watcher import AlertWatcher, subject_of
from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import STORE_REFUSED
from spyweb.incidents.truth import DAEMON, JOB, LATE, SILENT, Sign, SignGone, SignSeen
from spyweb.logs.output import tell_refusal
from spyweb.model import JobId, Pings
from spyweb.runs.live import LiveJobs
from spyweb.store.model.incidents import SubjectChange
from spyweb.store.sqlite.incidents import Incidents
from spyweb.store.sqlite.runs import Runs

log = structlog.get_logger()

LOOK_S = 5.0  # nothing announces most of it
STEADY_S = 12.0  # so three looks have found it
AT_A_LOOK = 1_000  # jobs that may be late or silent: of very many, each is looked at once in a while

Signs = Mapping[str, Sign]


class Doubt(NamedTuple):
    """A sign that has not lasted long enough."""

    at: float  # when it was seen first, by the monotonic clock
    since_ms: int | None  # since when it was there, as it was seen first


class SignWatch:
    """Knows which signs are noted, and looks for others."""

    def __init__(
        self,
        *,
        watcher: AlertWatcher,
        live: LiveJobs,
        incidents: Incidents,
        runs: Runs,
        conditions: Callable[[], Conditions],
        clock: Clock,
    ) -> None:
        self._watcher = watcher
        self._live = live
        self._incidents = incidents
        self._runs = runs
        self._read = conditions
        self._clock = clock
        self._noted: dict[str, Signs] = {}  # of each subject that is not well
        self._doubtful: dict[str, dict[str, Doubt]] = {}  # signs of subjects that are not noted yet
        self._conditions = NO_CONDITIONS
        self._timed: list[JobId] = []  # jobs that may be late or silent
        self._place = 0  # how far they have been looked at
        self._is_linked = True  # specs have changed since the last look
        self._recalled: set[JobId] = set()  # jobs of which the record was asked when they last ran
        self._began_ms = clock.now_ms()
        self._is_over = False
        self._now = Now(clock.now_ms(), clock.now_ms())  # at the last look
        incidents.on_changed(self._take)
        live.on_linked(self._link)

    async def load(self) -> None:
        """Learn what is noted; before anything changes it."""
        self._noted = dict(await self._incidents.signs())

    async def keep_up(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            if self._is_over:
                continue
            try:
                await self.look()
            except STORE_REFUSED as error:
                tell_refusal("nobody knows yet which jobs are late", error, again_in_s=LOOK_S)
            except Exception:  # a bug here must not end what looks
                log.exception("the look for signs met a bug in spyweb")

    def stop(self) -> None:
        """Look no more: a daemon that is ending has troubles that are none."""
        self._is_over = True

    async def look(self) -> None:
        """Compare what is wrong with what is noted."""
        if self._is_linked:
            self._is_linked = False
            self._timed = await run_in_slices(self._clock, self._find_timed())
        if any(job not in self._recalled for job in self._timed):
            await self._recall_runs()
        self._conditions, now_ms = self._read(), self._clock.now_ms()
        self._now = Now(now_ms, now_ms if now_ms < self._now.ms else self._now.floor_ms)
        for part in OF_A_PART:
            self._note(f"{DAEMON}{part}", self._conditions.of_part(part, now_ms))
        await run_in_slices(self._clock, self._look_at(self._jobs_to_look_at()))

    def _find_timed(self) -> Steps[list[JobId]]:
        timed = []
        for job in self._live:
            policy = job.spec.alerts
            may_be = policy.late_after_ms is not None or policy.no_success_ms is not None
            if may_be or isinstance(job.spec.schedule, Pings):
                timed.append(job.id)
            yield
        return timed

    async def _recall_runs(self) -> None:
        """Learn when each job has last started and succeeded, from the record; only where it matters.

        A job that came while this daemon ran has no past that counts; one whose file did not load before has.
        """
        new = [job for each in self._timed if each not in self._recalled and (job := self._live.find(each))]
        if any((job.cursor.active_since_ms or 0) < self._began_ms for job in new):
            started, succeeded = await self._runs.started(), await self._runs.succeeded()
            for job in self._live:
                job.started_ms = max(job.started_ms, started.get(job.id, 0))
                job.succeeded_ms = max(job.succeeded_ms, succeeded.get(job.id, 0))
            self._recalled.update(job.id for job in self._live)
        self._recalled.update(self._timed)

    def _jobs_to_look_at(self) -> Sequence[JobId]:
        now = self._conditions
        not_well = (JobId(each.removeprefix(JOB)) for each in (*self._noted, *self._doubtful) if each.startswith(JOB))
        start = self._place if self._place < len(self._timed) else 0
        self._place = start + AT_A_LOOK
        in_turn = self._timed[start : self._place]
        return list(dict.fromkeys([*now.broken, *now.quarantined, *now.held_back, *not_well, *in_turn]))

    def _look_at(self, jobs: Sequence[JobId]) -> Steps[None]:
        for job_id in jobs:
            self._examine(job_id)
            yield

    def _examine(self, job_id: JobId) -> None:
        job, subject = self._live.find(job_id), subject_of(job_id)
        noted = self._noted.get(subject, {})
        if job is None:  # its file does not load: whether it is late by now, nobody can tell; or it is gone
            stays = {sign: noted[sign] for sign in (LATE, SILENT) if sign in noted}
            self._note(subject, {**stays, **self._conditions.of_job(job_id, self._now.ms)})
        elif job.spec.enabled:
            self._note(subject, signs_of(job, self._conditions, noted, self._now))
        else:
            self._doubtful.pop(subject, None)

    def _note(self, subject: str, found: Signs) -> None:
        """Have noted what has lasted, and what is over."""
        noted = self._noted.get(subject)
        if not noted and not found:
            self._doubtful.pop(subject, None)
            return
        doubtful, lasts = self._doubtful.pop(subject, {}), dict[str, Doubt]()
        for event in list(compare(noted or {}, found)):
            if isinstance(event, SignGone):
                self._saw(subject, event)
                continue
            doubt = doubtful.get(event.sign) or Doubt(self._clock.monotonic(), event.since_ms)
            is_steady = self._clock.monotonic() - doubt.at >= STEADY_S
            if not is_steady or not self._saw(subject, replace(event, since_ms=doubt.since_ms)):
                lasts[event.sign] = doubt
        if lasts:
            self._doubtful[subject] = lasts

    def _saw(self, subject: str, event: SignSeen | SignGone) -> bool:
        """Have it noted, and take it for noted until the store says otherwise."""
        if not self._watcher.saw(subject, event):
            return False
        signs = {sign: seen for sign, seen in self._noted.get(subject, {}).items() if sign != event.sign}
        if isinstance(event, SignSeen):
            signs[event.sign] = Sign(event.since_ms or self._clock.now_ms(), event.text)
        self._keep(subject, signs)
        return True

    def _keep(self, subject: str, signs: Signs) -> None:
        if signs:
            self._noted[subject] = signs
        else:
            self._noted.pop(subject, None)

    def _take(self, changes: Sequence[SubjectChange]) -> None:
        """Note what is committed."""
        for change in changes:
            self._keep(change.subject, change.signs)

    def _link(self) -> None:
        self._is_linked = True
