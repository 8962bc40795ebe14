"""Uptime, in every kind of store; tests/property/test_uptime.py compares it with a brute force."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from spyweb.model import Cursor, JobId, RunId
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.store.model.runs import Change
from spyweb.store.model.uptime import KEPT_MS, LATENCIES, SPANS, JobUptime, UptimeSpan, bucket_of
from spyweb.store.sqlite import uptime
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_cursor, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import ENGINES
from tests.fakes.uptime import record, result

STORES = ENGINES
MINUTE = 60_000


async def last_day(store: Store, now_ms: int, job: JobId = PRICES) -> UptimeSpan:
    return (await store.uptime.read([job], now_ms, ["24h"]))[job].spans["24h"]


async def last_days(store: Store, now_ms: int, days: int, job: JobId = PRICES) -> list[UptimeSpan]:
    return [*(await store.uptime.read([job], now_ms, SPANS, days))[job].days.values()]


@pytest.fixture
def at(clock: FakeClock) -> int:
    """Return the beginning of an hour a little ahead, in the middle of a day."""
    return clock.now_ms() // DAY_MS * DAY_MS + DAY_MS + 12 * HOUR_MS


async def test_a_result_holds_until_the_next_one_or_until_it_is_stale(store: Store, at: int) -> None:
    await record(store, result(at, stale_ms=at + 2 * MINUTE))
    await record(store, result(at + MINUTE, up=False, stale_ms=at + 3 * MINUTE))
    found = (await store.uptime.read([PRICES, NEWS], at + 10 * MINUTE, SPANS))[PRICES]

    assert found.spans["24h"] == UptimeSpan(up_ms=MINUTE, down_ms=2 * MINUTE, ok=1, failed=1)
    assert found.spans == dict.fromkeys(("24h", "7d", "30d", "365d"), found.spans["24h"])
    assert (found.up, found.since_ms, found.until_ms) == (None, at + MINUTE, at + 3 * MINUTE)
    assert (await store.uptime.read([PRICES], at + 2 * MINUTE, SPANS))[PRICES].up is False


async def test_a_job_without_a_result_has_no_uptime(store: Store, at: int) -> None:
    found = (await store.uptime.read([PRICES], at, SPANS))[PRICES]
    assert (found.since_ms, {span.uptime for span in found.spans.values()}) == (None, {None})
    assert await last_days(store, at, 3) == [UptimeSpan()] * 3


@pytest.mark.parametrize("counts", [False, True])
async def test_a_result_is_in_its_hours_and_days_counted_or_not(store: Store, at: int, counts: bool) -> None:
    await record(store, result(at - 14 * HOUR_MS, latency=bucket_of(10)))  # of yesterday, 22:00
    await record(store, result(at, up=False))
    if counts:
        await store.uptime.prune(at + HOUR_MS)

    assert await last_day(store, at + HOUR_MS) == UptimeSpan(
        up_ms=14 * HOUR_MS, down_ms=HOUR_MS, ok=1, failed=1, latency={bucket_of(10): 1}
    )
    yesterday, today = await last_days(store, at + HOUR_MS, 2)
    assert (yesterday.up_ms, yesterday.ok, today.up_ms) == (2 * HOUR_MS, 1, 12 * HOUR_MS)
    assert (await last_day(store, at + 13 * HOUR_MS)).up_ms == 11 * HOUR_MS  # from 01:00 on


async def test_ends_of_one_commit_are_counted_each_and_in_their_order(store: Store, at: int) -> None:
    await record(store, result(at), result(at, job=NEWS), result(at + MINUTE, up=False), result(at + 3 * MINUTE))
    assert await last_day(store, at + 3 * MINUTE) == UptimeSpan(up_ms=MINUTE, down_ms=2 * MINUTE, ok=2, failed=1)
    assert (await last_day(store, at + 3 * MINUTE, NEWS)).up_ms == 3 * MINUTE


async def test_of_many_jobs_in_one_commit_each_gets_its_own_result(store: Store, at: int) -> None:
    jobs = [JobId(f"job{number}") for number in range(5)]
    await record(store, *[result(at, job=job) for job in jobs[:4]])
    ups = [True, False, True, False, True]
    later = [at + MINUTE, at + MINUTE, at - MINUTE, at + HOUR_MS, at + MINUTE]  # of the third an older one
    await record(store, *[result(ms, up, job) for ms, up, job in zip(later, ups, jobs, strict=True)])
    found = await store.uptime.read(jobs, at + HOUR_MS, ["24h"])

    spans = [found[job].spans["24h"] for job in jobs]
    assert [span.up_ms for span in spans] == [HOUR_MS, MINUTE, HOUR_MS, HOUR_MS, HOUR_MS - MINUTE]
    assert [(span.ok, span.failed) for span in spans] == [(2, 0), (1, 1), (2, 0), (1, 1), (1, 0)]


async def test_an_end_that_is_recorded_twice_or_that_skips_its_run_changes_nothing(store: Store, at: int) -> None:
    ends = await record(store, result(at))
    other = replace(ends[0], run=await start_run(store, NEWS, due_ms=None), stale_ms=None)
    await store.runs.record(Change(end=[*ends, replace(ends[0], run=RunId(99)), other]))
    assert await last_day(store, at + MINUTE) == UptimeSpan(up_ms=MINUTE, ok=1)


async def test_an_older_result_counts_and_the_newer_one_holds(store: Store, at: int) -> None:
    await record(store, result(at))
    await record(store, result(at - MINUTE, up=False))
    assert await last_day(store, at + MINUTE) == UptimeSpan(up_ms=MINUTE, ok=1, failed=1)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, 90 * DAY_MS])
async def test_results_go_on_after_a_clock_that_was_set_back(store: Store, at: int, ahead_ms: int) -> None:
    await record(store, result(at + ahead_ms))
    await record(store, result(at, up=False))
    await record(store, result(at + MINUTE))
    assert await last_day(store, at + 2 * MINUTE) == UptimeSpan(up_ms=MINUTE, down_ms=MINUTE, ok=1, failed=1)


@pytest.mark.parametrize("cursor", [make_cursor(paused=True), make_cursor()])
async def test_nothing_is_known_of_a_job_that_is_paused_or_absent(store: Store, at: int, cursor: Cursor) -> None:
    await record(store, result(at))
    for _ in range(2):  # a start writes the cursors again
        await store.runs.record(Change(cursors=[replace(cursor, idle_since_ms=at + MINUTE)]))
    found = (await store.uptime.read([PRICES], at + HOUR_MS, SPANS))[PRICES]
    assert (found.spans["24h"], found.up) == (UptimeSpan(up_ms=MINUTE, ok=1), None)


async def test_maintenance_is_excused_also_when_it_has_ended_early(store: Store, clock: FakeClock, at: int) -> None:
    clock.advance((at + 3 * MINUTE - clock.now_ms()) / 1000)
    windows = [(at + MINUTE, at + 2 * MINUTE), (at + 2 * MINUTE, at + HOUR_MS)]
    calendar = MaintenanceCalendar([MaintenanceRule(Once(*window), (PRICES,)) for window in windows])
    store.uptime.excused = calendar.excused
    await record(store, result(at, up=False), result(at, up=False, job=NEWS))
    await store.uptime.count({PRICES: clock.now_ms()}, calendar.excused)
    store.uptime.excused = MaintenanceCalendar().excused

    await record(store, result(at + 4 * MINUTE), result(at + 4 * MINUTE, job=NEWS))
    assert await last_day(store, at + 4 * MINUTE) == UptimeSpan(
        down_ms=2 * MINUTE, excused_ms=2 * MINUTE, ok=1, failed=1
    )
    assert (await last_day(store, at + 4 * MINUTE, NEWS)).down_ms == 4 * MINUTE


async def test_what_a_result_has_held_for_longer_than_a_day_is_counted(at: int) -> None:
    store = MemoryStore(FakeClock(at))
    await record(store, result(at, stale_ms=at + 30 * DAY_MS), result(at, job=NEWS, stale_ms=at + MINUTE))
    jobs, now_ms = [PRICES, NEWS], at + 20 * DAY_MS
    for _ in range(2):  # the first time as results that are new
        before = await store.uptime.read(jobs, now_ms, SPANS, 30)
        await store.uptime.prune(now_ms)
        assert await store.uptime.read(jobs, now_ms, SPANS, 30) == before
        now_ms += 2 * DAY_MS
    counted = dict(store._sqlite.execute("SELECT job, counted_ms FROM standing").fetchall())
    assert counted == {PRICES: at + 22 * DAY_MS - MINUTE, NEWS: at + MINUTE}


async def test_what_is_older_than_is_kept_is_deleted(store: Store, at: int) -> None:
    await record(store, result(at, stale_ms=at + HOUR_MS))
    await store.uptime.prune(at + DAY_MS)
    assert (await last_day(store, at + DAY_MS)).up_ms == HOUR_MS
    await record(store, result(at + 33 * DAY_MS, stale_ms=at + 33 * DAY_MS + HOUR_MS))
    now_ms = at + 33 * DAY_MS + 2 * HOUR_MS
    await store.uptime.prune(now_ms)
    assert (await last_day(store, at + DAY_MS)).up_ms == 0  # its hour is gone, its day is not
    assert (await store.uptime.read([PRICES], now_ms, SPANS))[PRICES].spans["365d"].up_ms == 2 * HOUR_MS
    await store.uptime.prune(now_ms + KEPT_MS["day"])
    assert await store.uptime.read([PRICES], now_ms, ["365d"]) == {PRICES: JobUptime(spans={"365d": UptimeSpan()})}


async def test_what_is_counted_while_somebody_asks_is_not_there_twice(
    store: Store, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(store, result(at), result(at + MINUTE, up=False))
    loop, follow_all = asyncio.get_running_loop(), uptime.follow_all

    async def count() -> None:
        await store.uptime.count({PRICES: at + HOUR_MS}, store.uptime.excused)

    def count_after(*asked: Any) -> Any:
        monkeypatch.undo()
        found = follow_all(*asked)
        asyncio.run_coroutine_threadsafe(count(), loop).result(10)
        return found

    monkeypatch.setattr(uptime, "follow_all", count_after)
    for _ in range(2):
        assert (await last_day(store, at + HOUR_MS)).up_ms == MINUTE


async def test_latencies_are_counted_in_buckets(store: Store, at: int) -> None:
    for latency_ms in (100, 1_000):
        await record(store, *[result(at + number, latency=bucket_of(latency_ms)) for number in range(10)])
        await store.uptime.prune(at + 2 * MINUTE)
    found = await last_day(store, at + MINUTE)
    assert found.latency == {bucket_of(100): 10, bucket_of(1_000): 10}
    assert found.percentile(50) == pytest.approx(100, rel=0.091)
    assert found.percentile(95) == pytest.approx(1_000, rel=0.091)


@pytest.mark.parametrize("latency_ms", [0, -1, 1, 37, 1_048_576, float("inf"), float("nan"), 10**400])
def test_each_latency_has_a_bucket(latency_ms: float) -> None:
    assert 0 <= bucket_of(latency_ms) < LATENCIES


@pytest.mark.parametrize(("down_ms", "share"), [(0, 1.0), (1, 0.99999), (DAY_MS, 0.5), (DAY_MS * 10**6, 0.0)])
def test_uptime_is_1_only_where_nothing_was_down(down_ms: int, share: float) -> None:
    assert UptimeSpan(up_ms=DAY_MS, down_ms=down_ms).uptime == share
