"""Tell what is wrong beside runs that fail, from what `jobs` and health know.  Pure.

What a run's end shows (`shown_by`) is noted in the transaction that records it.  Everything else has no such moment: it
comes with time, with a file, with the health of the daemon.  `compare` leads the signs that are noted to those that are
there now, so it does not matter when it is asked, nor what happened while nobody did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from spyweb.incidents.truth import EMPTY, LATE, SILENT, STORAGE, Sign, SignGone, SignSeen
from spyweb.model import Every, JobId, Pings
from spyweb.runs.live import LiveJob
from spyweb.runs.records import shortfall_in
from spyweb.schedules.due import first_due_after, jittered
from spyweb.settings.units import format_duration
from spyweb.store.model.runs import End
from spyweb.words import counted

BROKEN, QUARANTINED, HELD_BACK = "broken", "quarantined", "held_back"
OF_A_JOB: Final = frozenset({LATE, SILENT, BROKEN, QUARANTINED, HELD_BACK})
# What is wrong with a part of the daemon, of which a problem is known.
OF_A_PART: Final[Mapping[str, str]] = {
    "scheduler": "behind",
    "store": "refusing",
    "disk": "stuck",
    "workers": "missing",
}
LONGEST_TEXT = 500  # characters


class Conditions(Struct, frozen=True, kw_only=True):
    """The troubles that the parts of the daemon know of now, each with its words."""

    broken: Mapping[JobId, str] = {}  # jobs whose file does not load, also where an earlier version runs
    quarantined: Mapping[JobId, str] = {}
    held_back: Mapping[JobId, str] = {}
    parts: Mapping[str, str] = {}  # of the daemon
    lasting_ms: Mapping[str, int] = {}  # how long that of a part has lasted, where that is known

    def of_job(self, job: JobId, now_ms: int) -> dict[str, Sign]:
        known = {BROKEN: self.broken, QUARANTINED: self.quarantined, HELD_BACK: self.held_back}
        return {sign: Sign(now_ms, jobs[job][:LONGEST_TEXT]) for sign, jobs in known.items() if job in jobs}

    def of_part(self, part: str, now_ms: int) -> dict[str, Sign]:
        if part not in self.parts:
            return {}
        since_ms = now_ms - self.lasting_ms.get(part, 0)
        return {OF_A_PART[part]: Sign(since_ms, self.parts[part][:LONGEST_TEXT])}


NO_CONDITIONS = Conditions()


def shown_by(end: End) -> Mapping[str, str]:
    """Return what a run's end shows beside its outcome."""
    signs = {}
    if short := shortfall_in(end.note):
        signs[EMPTY] = short[:LONGEST_TEXT]
    if end.storage_errors:
        signs[STORAGE] = counted(end.storage_errors, "storage error")
    return signs


class Now(NamedTuple):
    ms: int
    floor_ms: int  # where the clock was set back to, or was at the start: what is later than now was then at the latest

    def since(self, *moments: int | None) -> int:
        """Return the latest of what has happened, now if nothing has."""
        latest_ms = max((moment for moment in moments if moment), default=self.ms)
        return latest_ms if latest_ms <= self.ms else min(self.floor_ms, self.ms)


def signs_of(job: LiveJob, conditions: Conditions, noted: Mapping[str, Sign], now: Now) -> Mapping[str, Sign]:
    """Return what is wrong with a job now, of OF_A_JOB."""
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
    """Return the sign that nothing has started for a due time; one that is noted stays until a run starts."""
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


# A job is asked about again and again until its next run; reckoning a time of `cron` takes long.
_first_due = lru_cache(maxsize=16_384)(first_due_after)


def _late_ping(job: LiveJob, schedule: Pings, noted: Sign | None, now: Now) -> Sign | None:
    """Return the sign that a job elsewhere has not told of a run in time.

    A ping may have come while the daemon was down, and nobody heard it: what was not late before gets the grace again.
    """
    expected_ms = job.expected_ms
    if expected_ms is None or job.queue.in_flight:
        return None
    if noted is not None and job.cursor.due_ms > noted.since_ms:
        return None  # one has come since, and the next is late by itself
    late_ms = expected_ms + schedule.grace_ms
    if late_ms <= job.kept_since_ms and noted is None:
        late_ms = job.kept_since_ms + schedule.grace_ms
    if now.ms < late_ms:
        return None
    grace = f" within {format_duration(schedule.grace_ms)} of that" if schedule.grace_ms else ""
    return Sign(expected_ms, f"a ping was expected, and none has come{grace}")


def _silent(job: LiveJob, noted: Sign | None, now: Now) -> Sign | None:
    """Return the sign that no run has succeeded for too long; one that is noted stays until a run does."""
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
    """Yield what leads the signs that are noted to those that were found; others than such signs stay."""
    for sign, (since_ms, text) in found.items():
        if sign not in noted:
            yield SignSeen(sign, text, since_ms)
    for sign in noted:
        if sign not in found and (sign in OF_A_JOB or sign in OF_A_PART.values()):
            yield SignGone(sign)
