"""Move a job's cursor for a reason other than a due time: first sight, an edit, an absence.  Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from spyweb.model import Cron, Cursor, Every, JobId, JobSpec, Never, Outcome, Pings, Schedule
from spyweb.schedules.due import (
    UNARMED,
    Missed,
    after_edit,
    already_past,
    first_cursor,
    missed_until,
    next_due,
    parse_schedule_text,
    schedule_text,
)
from spyweb.store.model.runs import SkippedRange

AWAY, EDITED = "paused, disabled or absent", "due under the schedule before the edit"
REPEATED_MS = 600_000  # a clock set back by no more than this is a correction: a cron's times are not due again


class Activation(Struct, frozen=True, kw_only=True):
    """The cursor with which a job's schedule goes on, and the skipped ranges to record for the time before."""

    cursor: Cursor
    skipped: tuple[SkippedRange, ...] = ()


def activate(spec: JobSpec, known: Cursor | None, now_ms: int, spread_ms: int) -> Activation:
    """Start the schedule of a job that has become live or was edited.

    `spread_ms` is the time over which the first runs of new jobs are spread.
    """
    if known is None:
        return _first_seen(spec, now_ms, spread_ms)
    if known.active_since_ms is None:  # recorded before this was
        known = replace(known, active_since_ms=now_ms)
    if waits_for_the_past(spec.schedule, known.due_ms, now_ms):  # the clock was set back while nothing ran
        known = replace(known, due_ms=now_ms)
    if not spec.enabled or known.paused:
        return Activation(cursor=deactivated(known, now_ms))
    if known.idle_since_ms is not None:
        return _after_absence(spec, known, now_ms)
    if _is_edited(spec, known):
        return _after_edit(spec, known, now_ms)
    return Activation(cursor=known)


def waits_for_the_past(schedule: Schedule, cursor_ms: int, now_ms: int) -> bool:
    """Return whether a job would not run until the clock has caught up after it was set back.

    A cron's due times are times on the clock, so those that were dealt with are not due again after a mere correction.
    After more than that it goes on from now; the store still knows the times that have run, and none runs twice.
    """
    match schedule:
        case Every() | Pings():
            return cursor_ms > now_ms
        case Cron():
            return cursor_ms > now_ms + REPEATED_MS
        case _:
            return False


def deactivated(known: Cursor, now_ms: int) -> Cursor:
    """Return the cursor of a job that is absent, disabled or paused, from now on if it was not before."""
    return known if known.idle_since_ms is not None else replace(known, idle_since_ms=now_ms)


def _first_seen(spec: JobSpec, now_ms: int, spread_ms: int) -> Activation:
    text = schedule_text(spec.schedule)
    idle_since_ms = None if spec.enabled else now_ms
    cursor = Cursor(
        job=spec.id,
        due_ms=first_cursor(spec, now_ms, spread_ms),
        schedule=text,
        idle_since_ms=idle_since_ms,
        active_since_ms=now_ms,
    )
    past = _past(spec, now_ms)
    for skipped in past:
        cursor = replace(cursor, due_ms=skipped.last_due_ms)
    return Activation(cursor=cursor, skipped=past)


def _after_absence(spec: JobSpec, known: Cursor, now_ms: int) -> Activation:
    edited = _after_edit(spec, known, now_ms, Outcome.PAUSED, AWAY) if _is_edited(spec, known) else None
    cursor = replace(edited.cursor if edited else known, idle_since_ms=None, active_since_ms=now_ms)
    if isinstance(spec.schedule, Pings) and cursor.due_ms != UNARMED:
        cursor = replace(cursor, due_ms=now_ms)  # what was not expected meanwhile is not late
    absent = missed_until(spec.schedule, cursor.due_ms, now_ms)
    before = edited.skipped if edited else ()
    return Activation(
        cursor=replace(cursor, due_ms=absent.last_ms) if absent else cursor,
        skipped=(*before, *_skipped(spec, Outcome.PAUSED, absent, now_ms, AWAY)),
    )


def _is_edited(spec: JobSpec, known: Cursor) -> bool:
    return known.schedule != schedule_text(spec.schedule)


def _after_edit(
    spec: JobSpec, known: Cursor, now_ms: int, outcome: Outcome = Outcome.MISSED, reason: str = EDITED
) -> Activation:
    earlier = _earlier(known)
    cursor = replace(
        known,
        schedule=schedule_text(spec.schedule),
        due_ms=after_edit(earlier, spec.schedule, known.due_ms, now_ms),
        active_since_ms=now_ms,
    )
    following_ms = next_due(spec.schedule, cursor.due_ms)  # from there on the new schedule applies
    until_ms = now_ms if following_ms is None else min(now_ms, following_ms - 1)
    unrun = missed_until(earlier, known.due_ms, until_ms)
    return Activation(cursor=cursor, skipped=(*_past(spec, now_ms), *_skipped(spec, outcome, unrun, now_ms, reason)))


def _earlier(known: Cursor) -> Schedule:
    """Return the schedule before the edit; Never if its times can't be computed any more, so that none is recorded."""
    try:
        return parse_schedule_text(known.schedule)
    except ValueError:
        return Never()


def _past(spec: JobSpec, now_ms: int) -> tuple[SkippedRange, ...]:
    past = already_past(spec.schedule, now_ms)
    return _skipped(spec, Outcome.MISSED, past, now_ms, past.reason if past else "")


def _skipped(spec: JobSpec, outcome: Outcome, due: Missed | None, now_ms: int, reason: str) -> tuple[SkippedRange, ...]:
    return (skipped_of(spec.id, outcome, due, now_ms, reason),) if due else ()


def skipped_of(job: JobId, outcome: Outcome, due: Missed, at_ms: int, reason: str) -> SkippedRange:
    return SkippedRange(
        job=job,
        outcome=outcome,
        first_due_ms=due.first_ms,
        last_due_ms=due.last_ms,
        count=due.count,
        reason=reason,
        at_ms=at_ms,
    )
