"""Compare what was due by each job's schedules, which are on record with their changes, with the rows about it.

A due time is explained by its row: a run, or a range that did not run, with the reason.  One later than the cursor is
not handled yet.  After a clock was set back, the times that it shows again count as it shows them then.
"""

from __future__ import annotations

from asyncio import Lock
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.model import Cursor, JobId, JobSpec, Schedule
from spyweb.runs.live import LiveJobs
from spyweb.schedules.due import AWAY, Missed, last_due, missed_until, parse_schedule_text
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.store.model.runs import DueKind, DueRow, ScheduleStep
from spyweb.store.sqlite.store import Store
from spyweb.views.jobs import MaySee, anything
from spyweb.views.runs import late_after
from spyweb.words import cut

USUAL_MS, MOST_MS = 7 * DAY_MS, 400 * DAY_MS
SETTLED_MS = MINUTE_MS  # a running daemon has recorded a due time by then
MOST_GROUPS, LONGEST_REASON = 10, 200  # of a job and a kind; characters
Verdict = tuple[DueKind, str]  # and the reason
NOT_THERE: Verdict = "unexplained", "nothing is on record"


class DueGroup(Struct):
    """Due times that did not run for the same reason, whichever run was in the way; each gap is a group of its own."""

    kind: DueKind
    why: str
    first_ms: int
    last_ms: int
    count: int


class JobAudit(Struct, kw_only=True):
    """The due times of a job."""

    job: JobId
    since_ms: int  # later than asked where nothing earlier is on record
    due: int = 0
    counts: dict[DueKind, int]
    groups: list[DueGroup] = []  # the first ones of each kind

    def count(self, kind: DueKind, why: str, due: Missed) -> None:
        self.due += due.count
        self.counts[kind] += due.count
        if kind in ("ran", "late", "waiting"):
            return
        why, of_kind = cut(why, LONGEST_REASON), [group for group in self.groups if group.kind == kind]
        alike = [group for group in of_kind if group.why == why and kind != "unexplained"]
        if alike:
            alike[0].count, alike[0].last_ms = alike[0].count + due.count, due.last_ms
        elif len(of_kind) < MOST_GROUPS:
            self.groups.append(DueGroup(kind, why, due.first_ms, due.last_ms, due.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAuditService:
    store: Store
    clock: Clock
    live: LiveJobs | None = None  # None: no daemon runs, and `specs` has the jobs
    specs: Mapping[JobId, JobSpec] = field(default_factory=dict)
    one_at_a_time: Lock = field(default_factory=Lock, init=False)  # of many jobs it takes seconds, and memory

    async def audit(self, since_ms: int, job: JobId | None = None, may_see: MaySee = anything) -> list[JobAudit]:
        """Compare the due times of a job, or of all, in the order of their ids; without jobs to which none was due."""
        now_ms, cursors = self.clock.now_ms(), await self.store.runs.cursors()
        chosen = sorted(each for each in cursors if job in (None, each) and may_see(each))
        since_ms, until_ms = max(since_ms, now_ms - MOST_MS), now_ms - SETTLED_MS
        async with self.one_at_a_time:
            found = [await self._audit_job(cursors[each], since_ms, until_ms) for each in chosen]
        return [each for each in found if each.due]

    async def _audit_job(self, cursor: Cursor, since_ms: int, until_ms: int) -> JobAudit:
        job = self.live.find(cursor.job) if self.live else None
        spec = job.spec if job else self.specs.get(cursor.job)
        until_ms -= spec.jitter_ms if spec else 0
        open_as: Verdict = "waiting", ""
        if cursor.idle_since_ms is not None:
            open_as = "paused", AWAY
            until_ms = until_ms if spec else cursor.due_ms  # nothing is due to a job that was removed
        elif job and job.mine and job.scheduled and job.kept_since_ms <= until_ms:
            open_as = "unexplained", "not handled: the schedule is behind"
        steps, rows, known_ms = await self.store.past_runs.due(cursor.job, since_ms, until_ms, late_after(spec))
        since_ms, pieces = pieces_of(steps, cursor, max(since_ms, known_ms), until_ms)
        found = JobAudit(job=cursor.job, since_ms=since_ms, counts=dict.fromkeys(get_args(DueKind), 0))
        left = deque(rows)
        for piece in pieces:
            await run_in_slices(self.clock, compare(found, piece, left, cursor.due_ms, open_as))
        return found


# A schedule, a cursor of it, until when its due times count, and the id after which ranges are about them: those before
Piece = tuple[Schedule, int, int, int]  # are of a clock that was set back


def pieces_of(steps: list[ScheduleStep], cursor: Cursor, since_ms: int, until_ms: int) -> tuple[int, list[Piece]]:
    """Return since when the record is complete, and by which schedules the job went from then on, oldest first."""
    found = list[Piece]()
    if not steps or steps[-1].schedule != cursor.schedule:  # a daemon of an earlier version changed it
        return until_ms, found
    for step in reversed(steps):
        try:
            schedule = parse_schedule_text(step.schedule)
        except ValueError:  # its due times can't be computed here
            return max(since_ms, until_ms), found[::-1]
        at_ms = last_due(schedule, step.due_ms, since_ms) or step.due_ms
        found.append((schedule, at_ms, until_ms, step.run))
        until_ms = min(until_ms, step.until_ms)
    return max(since_ms, steps[0].due_ms), found[::-1]


def compare(found: JobAudit, piece: Piece, rows: deque[DueRow], cursor_ms: int, open_as: Verdict) -> Steps[None]:
    """Count the due times of a piece by the rows about them, and take out the rows that are done; without a row those
    later than the cursor count as `open_as`."""
    schedule, at_ms, end_ms, first_run = piece
    while True:
        while rows and rows[0].range is not None and rows[0].range <= first_run:
            rows.popleft()
        row = rows[0] if rows and rows[0].first_ms <= end_ms else None
        gap_ms = row.first_ms - 1 if row else end_ms
        for until_ms, (kind, why) in ((min(gap_ms, cursor_ms), NOT_THERE), (gap_ms, open_as)):
            if due := missed_until(schedule, at_ms, until_ms):
                at_ms = due.last_ms
                found.count(kind, why, due)
        if row and (due := missed_until(schedule, at_ms, min(row.last_ms, end_ms))):
            at_ms = due.last_ms
            is_whole = (due.first_ms, at_ms) == row[:2] and (len(rows) == 1 or rows[1].first_ms > at_ms)
            missing = max(0, due.count - row.times) if is_whole else 0
            found.count(row.kind, row.reason.partition(" (run ")[0], replace(due, count=due.count - missing))
            if missing:
                found.count("unexplained", "the row about them counts fewer", replace(due, count=missing))
        if row is None or row.last_ms > end_ms:
            return
        rows.popleft()
        yield
