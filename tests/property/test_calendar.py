"""The day ahead is what a look at each due time gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from spyweb.cooperative import run_at_once
from spyweb.model import At, Cron, Every, JobId, Never, Schedule
from spyweb.schedules.due import upcoming
from spyweb.settings.units import DAY_MS
from spyweb.subjects.when.service import SLOT_MS, day_ahead
from tests.fakes.daemon_service import NOW_MS
from tests.fakes.harness import make_planned, make_spec

MINUTE_MS = 60_000
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe"]
CRONS = ["*/5 * * * *", "0 3 * * *", "*/20 * * * * *", "17 1-5 * * 1-5", "59 23 * * *", "0 0 29 2 *", "30 2 * * *"]
SCHEDULES = st.one_of(
    st.integers(7_000, 30 * 3_600_000).map(lambda ms: Every(period_ms=ms)),
    st.sampled_from([60_000, 300_000, 900_000, 3_600_000]).map(lambda ms: Every(period_ms=ms)),
    st.tuples(st.sampled_from(CRONS), st.sampled_from(ZONES)).map(
        lambda both: Cron(expression=both[0], timezone=both[1])
    ),
    st.integers(-5_000, DAY_MS).map(lambda ms: At(at_ms=NOW_MS + ms)),
    st.just(Never()),
)
MOMENTS = st.sampled_from([NOW_MS + 7_654_321, 1_774_746_000_000, 1_792_886_400_000])  # two near a change of the clock


@given(st.lists(st.tuples(SCHEDULES, st.integers(-90_000_000, 90_000)), max_size=6), MOMENTS)
def test_the_counts_of_a_day_are_those_of_its_due_times(jobs: Sequence[tuple[Schedule, int]], now_ms: int) -> None:
    planned, due = [], Counter[int]()
    starts: Counter[int] = Counter()
    from_ms = now_ms - now_ms % SLOT_MS
    for number, (schedule, behind) in enumerate(jobs):
        job = JobId(f"job{number}")
        planned.append(make_planned(job, schedule, now_ms + behind))
        times = upcoming(make_spec(job, schedule=schedule), cursor_of(schedule, now_ms + behind, now_ms))
        coming = list(takewhile(lambda due_ms: due_ms <= now_ms + DAY_MS, times))
        due.update((due_ms - from_ms) // SLOT_MS for due_ms in coming)
        starts.update({(due_ms - from_ms) // MINUTE_MS for due_ms in coming})

    found = run_at_once(day_ahead(planned, now_ms))
    assert {slot: count for slot, count in enumerate(found.sums) if count} == dict(due)
    assert found.total == due.total() == sum(row.total for row in found.rows)
    if starts:
        most = max(starts.values())
        first = min(minute for minute, count in starts.items() if count == most)
        assert found.busiest is not None
        assert (found.busiest.jobs, found.busiest.at_ms) == (most, from_ms + first * MINUTE_MS)
    else:
        assert found.busiest is None


def cursor_of(schedule: Schedule, cursor_ms: int, now_ms: int) -> int:
    """Return the cursor once all that is due by now has been dealt with."""
    if isinstance(schedule, Every):
        passed = max(0, (now_ms - cursor_ms) // schedule.period_ms)
        return cursor_ms + passed * schedule.period_ms
    return max(cursor_ms, now_ms)
