"""The audit of the jobs of a test, in short."""

from __future__ import annotations

from spyweb.model import Cursor, JobId, Outcome
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.store.model.runs import Change, ScheduleStep, SkippedRange
from spyweb.store.sqlite.store import Store
from spyweb.subjects.when.audit import JobAudit, RunAuditService
from tests.fakes.changes import PRICES, run_once
from tests.fakes.harness import Harness


async def audit(t: Harness, job: str = "prices", since_ms: int | None = None) -> JobAudit:
    """Return the audit of one job, to which something was due in the last days."""
    service = RunAuditService(store=t.store, clock=t.clock, live=t.live)
    (found,) = await service.audit(t.clock.now_ms() - 7 * DAY_MS if since_ms is None else since_ms, JobId(job))
    return found


def counts(found: JobAudit) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {kind: count for kind, count in found.counts.items() if count}


def gaps(found: JobAudit) -> list[tuple[int, int, int]]:
    """Return the first and the last due time of each gap, and how many there are."""
    return [(each.first_ms, each.last_ms, each.count) for each in found.groups if each.kind == "unexplained"]


async def record_minutes(store: Store, from_ms: int, job: JobId = PRICES, *, lost: int | None = None) -> None:
    """Record ten minutes of a job that is due in each: it ran in five, and was skipped in four; the tenth is open.

    Of the run that was due in the minute `lost` nothing is on record.
    """
    step = ScheduleStep(job=job, until_ms=from_ms, due_ms=from_ms, schedule=f"every {MINUTE_MS}")
    cursor = Cursor(job=job, due_ms=from_ms + 9 * MINUTE_MS, schedule=step.schedule)
    await store.runs.record(Change(cursors=[cursor], steps=[step]))
    for minute in range(1, 6):
        due_ms = from_ms + minute * MINUTE_MS
        if minute != lost:
            await run_once(store, job, due_ms=due_ms, ended_ms=due_ms + 500)
    skipped = SkippedRange(
        job=job,
        outcome=Outcome.SKIPPED,
        first_due_ms=from_ms + 6 * MINUTE_MS,
        last_due_ms=from_ms + 9 * MINUTE_MS,
        count=4,
        reason="<b>busy</b>",
        at_ms=cursor.due_ms,
    )
    await store.runs.record(Change(skipped=[skipped]))
