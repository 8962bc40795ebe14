"""Compute when jobs are due.  Pure: due times are integer milliseconds, a function of schedule and cursor alone.

The cursor is the last due time that was run or recorded; the next due time is the first one after it.  `activate` moves
the cursor for other reasons: a new job, an edit, an absence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import chain, islice, repeat

from msgspec import Struct
from msgspec.structs import replace

from spyweb.model import At, Cron, Cursor, Every, JobId, JobSpec, MisfirePolicy, Never, Outcome, Pings, Schedule, Start
from spyweb.ownership import pool_of
from spyweb.schedules.cron import LAST_DAY, cron_after, cron_count, cron_until, parse_cron
from spyweb.settings.units import DAY_MS
from spyweb.settings.values import is_timezone
from spyweb.store.model.runs import ScheduleStep, SkippedRange

SPREAD_MS = 10_000  # over which the first runs of many new jobs are spread, at most
UNARMED = 0  # the cursor of a job that expects pings, before the first ping; later it is the time of the last ping
ON_TIME_MS = 5_000  # how late a running daemon may start a run under `misfire = "skip"`


class Missed(Struct, frozen=True, kw_only=True):
    """A range of consecutive due times that do not run."""

    first_ms: int
    last_ms: int
    count: int  # a cron expression's is a lower bound when the range is longer than five years
    reason: str = ""


class DueDecision(Struct, frozen=True, kw_only=True):
    """The decision about all due times: the ones to run, the ones recorded as missed, and the new cursor."""

    cursor_ms: int
    runs: Sequence[int] = ()  # due times, oldest first
    missed: Sequence[Missed] = ()


def next_due(schedule: Schedule, cursor_ms: int) -> int | None:
    """Return the first due time later than the cursor."""
    match schedule:
        case Every(period_ms=period_ms):
            return cursor_ms + period_ms
        case Cron(expression=expression, timezone=timezone):
            return cron_after(expression, timezone, cursor_ms)
        case At(at_ms=at_ms):
            return at_ms if at_ms > cursor_ms else None
        case Never() | Pings():
            return None


def first_due_after(schedule: Schedule, cursor_ms: int, moment_ms: int) -> int | None:
    """Return the first due time later than a moment, also one before the cursor: those of `every` go by the cursor."""
    if isinstance(schedule, Every):
        return moment_ms + schedule.period_ms - (moment_ms - cursor_ms) % schedule.period_ms
    return next_due(schedule, moment_ms)


def expected_ping(schedule: Pings, cursor_ms: int) -> int | None:
    """Return when the next ping is expected; None before the first one has come."""
    return None if cursor_ms == UNARMED else next_due(schedule.schedule, cursor_ms)


def last_due(schedule: Schedule, cursor_ms: int, now_ms: int) -> int | None:
    """Return the last due time later than the cursor and not later than now."""
    match schedule:
        case Every(period_ms=period_ms):
            due_ms: int | None = now_ms - (now_ms - cursor_ms) % period_ms
        case Cron(expression=expression, timezone=timezone):
            due_ms = cron_until(expression, timezone, now_ms)
        case At(at_ms=at_ms):
            due_ms = at_ms if at_ms <= now_ms else None
        case Never() | Pings():
            due_ms = None
    return due_ms if due_ms is not None and due_ms > cursor_ms else None


def missed_until(schedule: Schedule, cursor_ms: int, now_ms: int) -> Missed | None:
    """Return the due times later than the cursor and not later than now, as one range."""
    first_ms = next_due(schedule, cursor_ms)
    if first_ms is None or first_ms > now_ms:
        return None
    last_ms = None if first_ms == now_ms else last_due(schedule, first_ms, now_ms)
    if last_ms is None:
        return Missed(first_ms=first_ms, last_ms=first_ms, count=1)
    return Missed(first_ms=first_ms, last_ms=last_ms, count=_count(schedule, first_ms, last_ms))


def _count(schedule: Schedule, first_ms: int, last_ms: int) -> int:
    match schedule:
        case Every(period_ms=period_ms):
            return 1 + (last_ms - first_ms) // period_ms
        case Cron(expression=expression, timezone=timezone):
            return 1 + cron_count(expression, timezone, first_ms, last_ms)
        case At() | Never() | Pings():
            return 1


def newest_until(schedule: Schedule, cursor_ms: int, now_ms: int, limit: int) -> list[int]:
    """Return at most `limit` due times later than the cursor and not later than now: the newest, oldest first."""
    found: list[int] = []
    due_ms = last_due(schedule, cursor_ms, now_ms)
    while due_ms is not None and len(found) < limit:
        found.append(due_ms)
        due_ms = last_due(schedule, cursor_ms, due_ms - 1)
    return found[::-1]


def upcoming(spec: JobSpec, cursor_ms: int) -> Iterator[int]:
    """Yield the next due times, as long as there are any.  Those of a rare cron expression take a while."""
    due_ms = next_due(spec.schedule, cursor_ms)
    while due_ms is not None and due_ms < LAST_DAY * DAY_MS:
        yield due_ms
        due_ms = next_due(spec.schedule, due_ms)


def earliest(due: Iterable[tuple[JobId, Iterator[int]]], count: int) -> Generator[None, None, list[tuple[int, JobId]]]:
    """Return the first due times of several jobs together, in steps, computing no more of each than is needed."""
    waiting: list[Iterator[tuple[int, JobId]]] = []
    for job, times in due:
        waiting.append(zip(chain(list(islice(times, 1)), times), repeat(job)))
        yield
    found: list[tuple[int, JobId]] = []
    for each in islice(merge(*waiting), count):
        found.append(each)
        yield
    return found


def first_cursor(spec: JobSpec, now_ms: int, spread_ms: int = SPREAD_MS) -> int:
    """Return the cursor of a new job: `every` is due now, or one period later, plus its share of the spread."""
    match spec.schedule:
        case Every(period_ms=period_ms):
            spread = _share(spec.id, min(period_ms, spread_ms))
            return now_ms + spread - (period_ms if spec.start is Start.NOW else 0)
        case Pings():
            return UNARMED
        case _:
            return _from_now(spec.schedule, now_ms)


def after_edit(old: Schedule, new: Schedule, cursor_ms: int, now_ms: int) -> int:
    """Return the cursor under an edited schedule: `every` counts from the cursor but is due now at the earliest, all
    others begin now.  A cursor in the future, left by a clock that was set back, counts as now."""
    if isinstance(new, Pings):
        return cursor_ms if isinstance(old, Pings) else UNARMED
    if isinstance(new, Every):
        return max(min(cursor_ms, now_ms), now_ms - new.period_ms)
    return now_ms if isinstance(new, Cron) and cursor_ms >= now_ms else _from_now(new, now_ms)


def jittered(spec: JobSpec, due_ms: int) -> int:
    """Return when the run for this due time starts: always the same moment, and never past the next due time."""
    if not spec.jitter_ms:
        return due_ms
    following_ms = next_due(spec.schedule, due_ms)
    room_ms = spec.jitter_ms if following_ms is None else min(spec.jitter_ms, following_ms - due_ms - 1)
    return due_ms + _share(f"{spec.id} {due_ms}", room_ms + 1)


def decide_due(spec: JobSpec, cursor_ms: int, now_ms: int, *, kept_since_ms: int = 0) -> DueDecision:
    """Decide which due times that have come run now, and which are recorded as missed.

    A due time is missed when a later one has come too, or when its grace is over.  The newest due times run, so the
    missed ones are one range before them.  Under `misfire = "skip"` without a grace a due time is missed when it came
    before this daemon took over the schedule, or more than ON_TIME_MS ago.
    """
    schedule, misfire = spec.schedule, spec.misfire
    passed = missed_until(schedule, cursor_ms, now_ms)
    if passed is not None and jittered(spec, passed.last_ms) > now_ms:  # jitter still holds back the last one
        last_ms = last_due(schedule, cursor_ms, passed.last_ms - 1)
        passed = replace(passed, last_ms=last_ms, count=passed.count - 1) if last_ms is not None else None
    if passed is None:
        return DueDecision(cursor_ms=cursor_ms)

    runs = newest_until(
        schedule, cursor_ms, passed.last_ms, misfire.limit if misfire.policy is MisfirePolicy.ALL else 1
    )
    earliest_ms = None if misfire.grace_ms is None else now_ms - misfire.grace_ms  # None: it is never too late
    if misfire.grace_ms is None and misfire.policy is MisfirePolicy.SKIP:
        earliest_ms = max(kept_since_ms, now_ms - ON_TIME_MS)
    if earliest_ms is not None:
        runs = [due_ms for due_ms in runs if jittered(spec, due_ms) >= earliest_ms]
    missed = _before(spec, cursor_ms, passed, runs)
    return DueDecision(cursor_ms=passed.last_ms, runs=runs, missed=[missed] if missed else [])


def _before(spec: JobSpec, cursor_ms: int, passed: Missed, runs: Sequence[int]) -> Missed | None:
    """Return the rest of the range before the runs; the store joins adjacent ranges with the same reason."""
    if not runs:
        is_late = spec.misfire.grace_ms is not None
        return replace(passed, reason="later than its misfire_grace" if is_late else "passed while nothing could run")
    last_ms = last_due(spec.schedule, cursor_ms, runs[0] - 1)
    if last_ms is None:
        return None
    all_run = spec.misfire.policy is MisfirePolicy.ALL
    reason = "beyond misfire_limit or misfire_grace" if all_run else "a later due time ran in its place"
    return replace(passed, last_ms=last_ms, count=max(1, passed.count - len(runs)), reason=reason)


def _from_now(schedule: Schedule, now_ms: int) -> int:
    """Return a cursor under which nothing before now is due, but now itself is."""
    return now_ms if isinstance(schedule, At) and schedule.at_ms < now_ms else now_ms - 1


def _share(text: str, room_ms: int) -> int:
    """Return a number below `room_ms` that is always the same for the same text, and evenly spread over texts."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % max(1, room_ms)


@lru_cache(maxsize=4096)  # also keeps one copy of a text that many jobs share
def schedule_text(schedule: Schedule) -> str:
    """Write the whole schedule as one line; the cursor keeps it to notice an edit."""
    match schedule:
        case Every(period_ms=period_ms):
            return f"every {period_ms}"
        case Cron(expression=expression, timezone=timezone):
            return f"cron {timezone} {expression}"
        case At(at_ms=at_ms):
            return f"at {at_ms}"
        case Never():
            return "never"
        case Pings(schedule=expected):
            return f"pings {schedule_text(expected)}"


def parse_schedule_text(text: str) -> Schedule:
    """Parse what `schedule_text` wrote.  Raises ValueError, also if this machine does not know the zone."""
    kind, _, rest = text.partition(" ")
    match kind:
        case "every":
            return Every(period_ms=int(rest))
        case "cron":
            timezone, _, expression = rest.partition(" ")
            parse_cron(expression)
            if not is_timezone(timezone):
                raise ValueError(f"no time zone {timezone!r} here")
            return Cron(expression=expression, timezone=timezone)
        case "at":
            return At(at_ms=int(rest))
        case "never":
            return Never()
        case "pings":
            expected = parse_schedule_text(rest)
            if isinstance(expected, Every | Cron):
                return Pings(schedule=expected)
            raise ValueError(f"not a schedule: {text!r}")
        case _:
            raise ValueError(f"not a schedule: {text!r}")


AWAY, EDITED = "the job was paused, disabled or absent", "due under the schedule before the edit"
REPEATED_MS = 600_000  # a clock set back by no more than this is a correction: a cron's times are not due again


class Activation(Struct, frozen=True, kw_only=True):
    """The cursor from which a job's schedule continues, and what to record of the time before."""

    cursor: Cursor
    skipped: tuple[SkippedRange, ...] = ()
    steps: tuple[ScheduleStep, ...] = ()


def activate(spec: JobSpec, known: Cursor | None, now_ms: int, spread_ms: int) -> Activation:
    """Start the schedule of a job that is live or edited; first runs of new ones are spread over `spread_ms`."""
    if known is None:
        return _first_seen(spec, now_ms, spread_ms)
    if known.active_since_ms is None:  # recorded before this was
        known = replace(known, active_since_ms=now_ms)
    if waits_for_the_past(spec.schedule, known.due_ms, now_ms):  # the clock was set back while nothing ran
        back = replace(known, due_ms=now_ms)
        found = activate(spec, back, now_ms, spread_ms)
        return replace(found, steps=(*moved(known, back), *found.steps))
    if not spec.enabled or known.paused:
        return Activation(cursor=deactivated(known, now_ms))
    if known.idle_since_ms is not None:
        return _after_absence(spec, known, now_ms)
    if known.schedule != schedule_text(spec.schedule):
        return _after_edit(spec, known, now_ms)
    return Activation(cursor=known)


def moved(recorded: Cursor | None, now: Cursor | None) -> tuple[ScheduleStep, ...]:
    """Return the step to a cursor that is not the recorded one, since the clock was set."""
    if recorded is None or now is None or recorded.due_ms == now.due_ms:
        return ()
    return (_step(now, min(recorded.due_ms, now.due_ms)),)


def _step(cursor: Cursor, until_ms: int) -> ScheduleStep:
    return ScheduleStep(job=cursor.job, until_ms=until_ms, due_ms=cursor.due_ms, schedule=cursor.schedule)


def waits_for_the_past(schedule: Schedule, cursor_ms: int, now_ms: int) -> bool:
    """Return whether a job would not run until the clock has caught up after it was set back.

    The due times of a cron are times on the clock: after a small correction the handled ones are not due again.  After
    a larger one the schedule continues from now; the store still knows the times that have run, so none runs twice.
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
    past = _past(spec, now_ms)
    cursor = Cursor(
        job=spec.id,
        due_ms=past[0].last_due_ms if past else first_cursor(spec, now_ms, spread_ms),
        schedule=schedule_text(spec.schedule),
        idle_since_ms=None if spec.enabled else now_ms,
        active_since_ms=now_ms,
        pool=pool_of(spec.node, spec.labels),
    )
    return Activation(cursor=cursor, skipped=past, steps=(_step(cursor, cursor.due_ms),))


def _after_absence(spec: JobSpec, known: Cursor, now_ms: int) -> Activation:
    is_edited = known.schedule != schedule_text(spec.schedule)
    edited = _after_edit(spec, known, now_ms, Outcome.PAUSED, AWAY) if is_edited else None
    cursor = replace(edited.cursor if edited else known, idle_since_ms=None, active_since_ms=now_ms)
    if isinstance(spec.schedule, Pings) and cursor.due_ms != UNARMED:
        cursor = replace(cursor, due_ms=now_ms)  # pings that were not expected meanwhile are not late
    absent = missed_until(spec.schedule, cursor.due_ms, now_ms)
    before = edited or Activation(cursor=cursor)
    return replace(
        before,
        cursor=replace(cursor, due_ms=absent.last_ms) if absent else cursor,
        skipped=(*before.skipped, *_skipped(spec, Outcome.PAUSED, absent, now_ms, AWAY)),
    )


def _after_edit(
    spec: JobSpec, known: Cursor, now_ms: int, outcome: Outcome = Outcome.MISSED, reason: str = EDITED
) -> Activation:
    try:
        earlier = parse_schedule_text(known.schedule)
    except ValueError:  # its times can no longer be computed, so none is recorded
        earlier = Never()
    cursor = replace(
        known,
        schedule=schedule_text(spec.schedule),
        due_ms=after_edit(earlier, spec.schedule, known.due_ms, now_ms),
        active_since_ms=now_ms,
    )
    following_ms = next_due(spec.schedule, cursor.due_ms)  # from there on the new schedule applies
    until_ms = now_ms if following_ms is None else min(now_ms, following_ms - 1)
    unrun = missed_until(earlier, known.due_ms, until_ms)
    skipped = (*_past(spec, now_ms), *_skipped(spec, outcome, unrun, now_ms, reason))
    return Activation(cursor=cursor, skipped=skipped, steps=(_step(cursor, until_ms),))


def _past(spec: JobSpec, now_ms: int) -> tuple[SkippedRange, ...]:
    """Return the due time of an `at` that has passed when it is first seen: it is recorded and not run."""
    if not isinstance(spec.schedule, At) or spec.schedule.at_ms >= now_ms:
        return ()
    passed = Missed(first_ms=spec.schedule.at_ms, last_ms=spec.schedule.at_ms, count=1)
    return _skipped(spec, Outcome.MISSED, passed, now_ms, "already past when it was first seen")


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
