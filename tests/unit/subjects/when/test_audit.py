"""The audit of due times: all that was due is compared with what is on record."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.model import At, Cron, Every, JobId, Misfire, MisfirePolicy, Never, Overlap, Schedule
from spyweb.runs.live import LiveJob
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.when.audit import MOST_GROUPS, RunAuditService
from tests.fakes.audits import audit, counts, gaps, record_minutes
from tests.fakes.changes import NEWS
from tests.fakes.client import Client, get_json
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.command import Answer, spyweb
from tests.fakes.daemon_service import BACKUP, NOW_MS, FakeDaemonService
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.keys import Doors
from tests.fakes.memory_store import MemoryStore

MINUTE, HOUR, DAY = 60, 3_600, 86_400
SKIP = Misfire(policy=MisfirePolicy.SKIP)
PRICES = JobId("prices")


def in_minutes(found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [((first - START_MS) // MINUTE_MS, (last - START_MS) // MINUTE_MS, count) for first, last, count in found]


async def edit(t: Harness, **settings: object) -> None:
    """Let the job go on with other settings, as a reload does."""
    job = t.live.find(PRICES)
    assert job is not None
    await t.scheduler.catch_up([job])
    t.live.remove(PRICES)
    after = LiveJob(spec=replace(job.spec, **settings), code=job.code, digest="2", cursor=job.cursor)
    after.recorded, after.reached_ms, after.kept_since_ms = job.recorded, job.reached_ms, job.kept_since_ms
    t.live.add(after)
    await t.scheduler.activate([after], {})
    await t.clock.turn()


async def test_each_due_time_that_ran_is_counted_once_and_the_last_minute_is_left_out() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(10 * MINUTE + 5)
        found = await audit(t)
    assert (found.due, counts(found), found.groups) == (10, {"ran": 10}, [])
    assert found.since_ms - START_MS < 0, "before that the job did not exist"


async def test_a_due_time_without_a_row_is_unexplained_and_so_is_one_that_a_row_does_not_count() -> None:
    store = MemoryStore(clock := FakeClock())
    async with harness(store, clock) as t:
        await t.settle(make_job(misfire=SKIP))
        await clock.turn(10 * MINUTE)
    clock.advance(HOUR)
    async with harness(store, clock) as t:
        await t.settle(make_job(misfire=SKIP))
        await clock.turn(10 * MINUTE)
        store.execute("UPDATE run SET due_ms = NULL WHERE id IN (3, 4, 7)")
        store.execute("UPDATE run SET count = count - 2 WHERE count > 1")
        found = await audit(t)
    assert in_minutes(gaps(found)) == [(2, 3, 2), (6, 6, 1), (10, 69, 2)]
    assert counts(found) == {"ran": 16, "missed": 58, "unexplained": 5}


async def test_the_gaps_that_are_listed_are_bounded_and_all_are_counted() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(60 * MINUTE)
        t.store.execute("UPDATE run SET due_ms = NULL WHERE id % 2 = 0")
        found = await audit(t)
    assert (len(gaps(found)), counts(found)["unexplained"]) == (MOST_GROUPS, 29)


async def test_a_due_time_that_a_running_daemon_does_not_handle_is_unexplained_and_without_one_it_waits() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(5 * MINUTE)
        with t.refused():
            await t.clock.turn(5 * MINUTE)
            behind = await audit(t)
            (alone,) = await RunAuditService(store=t.store, clock=t.clock).audit(0)
        await t.clock.turn(5 * MINUTE)
        after = await audit(t)
    assert [each.why for each in behind.groups] == ["not handled: the schedule is behind"]
    assert counts(behind) == {"ran": 5, "unexplained": 4}
    assert counts(alone) == {"ran": 5, "waiting": 4}
    assert counts(after) == {"ran": 9, "missed": 5}


async def test_a_start_that_is_late_is_counted_and_a_run_in_the_queue_waits() -> None:
    async with harness() as t:
        job = make_job(overlap=Overlap.QUEUE)
        t.pool.held.add(job.id)
        await t.settle(job)
        await t.clock.turn(5 * MINUTE + 1)
        waits = await audit(t)
        t.pool.held.clear()
        await t.finish(1)
        await t.clock.turn(2 * MINUTE)
        found = await audit(t)
    assert counts(waits) == {"ran": 1, "waiting": 4}
    assert counts(found) == {"ran": 3, "late": 4}


async def test_due_times_that_are_skipped_have_their_reason() -> None:
    async with harness() as t:
        job = make_job()
        t.pool.held.add(job.id)
        await t.settle(job)
        await t.clock.turn(5 * MINUTE + 1)
        found = await audit(t)
    assert counts(found) == {"ran": 1, "skipped": 4}
    assert [(each.kind, each.count, each.why) for each in found.groups] == [("skipped", 4, "overlap: the job is busy")]


async def test_each_time_counts_by_the_schedule_that_the_job_had_then() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(30 * MINUTE)
        await edit(t, schedule=Every(period_ms=7_000))
        await t.clock.turn(90)
        await edit(t, schedule=Cron(expression="*/5 * * * *", timezone="Asia/Kathmandu"))
        await t.clock.turn(30 * MINUTE)
        await edit(t, schedule=Never())
        await t.clock.turn(30 * MINUTE)
        await edit(t, schedule=At(at_ms=t.clock.now_ms() + HOUR_MS))
        await t.clock.turn(2 * HOUR)
        found = await audit(t)
        rows = await t.store.runs.list(PRICES, limit=1_000)
    assert counts(found) == {"ran": found.due}
    assert found.due == sum(row.count for row in rows) == 30 + 13 + 6 + 1


@pytest.mark.parametrize("schedule", [Every(period_ms=MINUTE_MS), Cron(expression="* * * * *", timezone="UTC")])
async def test_what_was_due_while_a_job_was_paused_is_paused_before_and_after_it_is_resumed(schedule: Schedule) -> None:
    async with harness() as t:
        job = make_job(schedule=schedule)
        await t.settle(job)
        await t.clock.turn(10 * MINUTE + 5)
        await t.scheduler.pause(job)
        await t.clock.turn(10 * MINUTE)
        paused = await audit(t)
        await t.scheduler.resume(job)
        await t.clock.turn(10 * MINUTE)
        resumed = await audit(t)
    assert paused.due == paused.counts["ran"] + 9
    assert counts(resumed) == {"ran": resumed.due - 10, "paused": 10}
    assert {(each.kind, each.why) for each in (*paused.groups, *resumed.groups)} == {
        ("paused", "the job was paused, disabled or absent")
    }


async def test_nothing_is_due_to_a_removed_job_until_it_is_back_and_then_the_time_between_is_on_record() -> None:
    async with harness() as t:
        job = make_job()
        await t.settle(job)
        await t.clock.turn(10 * MINUTE + 5)
        await t.scheduler.deactivate([job])
        t.delete(job)
        await t.clock.turn(10 * MINUTE)
        removed = await audit(t)
        await t.settle(make_job(schedule=Every(period_ms=2 * MINUTE_MS)))
        await t.clock.turn(10 * MINUTE)
        back = await audit(t)
    assert counts(removed) == {"ran": 11}
    assert counts(back) == {"ran": 11 + 4, "paused": 10 + 1}


async def test_the_hour_that_a_clock_shows_twice_or_never_is_counted_as_the_schedule_does() -> None:
    for month, day, hours in ((3, 28, 47), (10, 24, 49)):  # of two days
        clock = FakeClock(int(datetime(2026, month, day, tzinfo=UTC).timestamp()) * 1000)
        async with harness(clock=clock) as t:
            await t.settle(
                make_job(schedule=Cron(expression="0 * * * *", timezone="Europe/Berlin")),
                make_job("nightly", schedule=Cron(expression="30 2 * * *", timezone="Europe/Berlin")),
            )
            await clock.turn(2 * DAY - 1)
            hourly, nightly = await audit(t), await audit(t, "nightly")
        assert (counts(hourly), counts(nightly)) == ({"ran": 48}, {"ran": 2}), hours


@pytest.mark.parametrize("schedule", [Every(period_ms=7 * MINUTE_MS), Cron(expression="*/7 * * * *", timezone="UTC")])
async def test_a_clock_that_is_set_back_and_corrected_leaves_nothing_unexplained(schedule: Schedule) -> None:
    store = MemoryStore(clock := FakeClock())
    for jumps in ((-HOUR, HOUR), (3 * HOUR, -5 * HOUR), (-90 * DAY,)):
        async with harness(store, clock) as t:
            watching = t.tasks.create_task(t.scheduler.watch_the_clock())
            await t.settle(make_job(schedule=schedule))
            await clock.turn(2 * HOUR)
            for jump in jumps:
                clock.jump(jump)
                await clock.turn(30 * MINUTE)
                found = await audit(t)
                assert gaps(found) == []
            await clock.turn(3 * HOUR)
            found = await audit(t, since_ms=clock.now_ms() - 2 * HOUR_MS)
            assert found.counts["ran"] == found.due >= 16
            watching.cancel()
        clock.jump(-HOUR)  # while no daemon runs


async def test_where_runs_were_pruned_the_audit_begins_there_and_says_so() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(2 * HOUR + 5)
        await edit(t, schedule=Every(period_ms=2 * MINUTE_MS))
        await t.clock.turn(2 * HOUR)
        whole = await audit(t)
        await t.store.runs.prune(keep=30, older_than_ms=0)
        cut = await audit(t)
        await t.store.runs.prune(keep=30, older_than_ms=t.clock.now_ms() - HOUR_MS)
        steps, *_ = await t.store.past_runs.due(PRICES, 0, t.clock.now_ms(), 0)
    assert (counts(whole), counts(cut)) == ({"ran": 121 + 59}, {"ran": 29})
    assert (t.clock.now_ms() - cut.since_ms) // MINUTE_MS == 60
    assert [step.schedule for step in steps] == ["every 120000"], "earlier schedules no longer matter"


async def test_a_schedule_that_is_not_on_record_or_can_not_be_computed_is_not_guessed() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(HOUR)
        await edit(t, schedule=Every(period_ms=2 * MINUTE_MS))
        await t.clock.turn(HOUR)
        t.store.execute("UPDATE schedule SET schedule = 'cron Nowhere/Here * * * * *' WHERE id = 1")
        after = await audit(t)
        t.store.execute("DELETE FROM schedule WHERE id = 2")  # as a daemon of an earlier version leaves it
        service = RunAuditService(store=t.store, clock=t.clock, live=t.live)
        assert await service.audit(0) == []
    assert counts(after) == {"ran": 29}


async def test_a_week_of_seconds_of_which_nothing_is_on_record_is_counted_without_being_walked() -> None:
    async with harness() as t:
        jobs = [make_job(f"j{n}", schedule=Every(period_ms=1_000)) for n in range(50)]
        jobs += [make_job(f"k{n}", schedule=Cron(expression="* * * * * *", timezone="UTC")) for n in range(50)]
        await t.settle(*jobs)
        await t.scheduler.deactivate(jobs)
        t.clock.advance(7 * DAY)
        found = await RunAuditService(store=t.store, clock=t.clock, live=t.live).audit(t.clock.now_ms() - 7 * DAY_MS)
    assert {each.counts["paused"] // 1_000 for each in found} == {604}


async def test_audits_wait_for_one_another() -> None:
    async with harness() as t:
        await t.settle(make_job())
        await t.clock.turn(HOUR)
        service = RunAuditService(store=t.store, clock=t.clock, live=t.live)
        await service.one_at_a_time.acquire()
        second = asyncio.create_task(service.audit(0))
        await t.clock.turn(MINUTE)
        assert not second.done()
        service.one_at_a_time.release()
        assert len(await second) == 1


async def test_the_api_shows_each_job_with_its_counts_and_gaps(client: Client, service: FakeDaemonService) -> None:
    begin_ms = NOW_MS - 11 * MINUTE_MS
    await record_minutes(service.store, begin_ms, lost=3)
    status, (found,) = await get_json(client, "/api/audit/runs")
    lost_ms = begin_ms + 3 * MINUTE_MS
    assert (status, found) == (200, {
        "job": "prices", "since_ms": begin_ms, "due": 10,
        "counts": {"ran": 4, "late": 0, "skipped": 4, "missed": 0, "paused": 0, "waiting": 0, "unexplained": 2},
        "groups": [
            {"kind": "unexplained", "why": "nothing is on record", "first_ms": lost_ms, "last_ms": lost_ms, "count": 1},
            {"kind": "skipped", "why": "<b>busy</b>", "first_ms": lost_ms + 3 * MINUTE_MS,
             "last_ms": lost_ms + 6 * MINUTE_MS, "count": 4},
            {"kind": "unexplained", "why": "not handled: the schedule is behind", "first_ms": NOW_MS - MINUTE_MS,
             "last_ms": NOW_MS - MINUTE_MS, "count": 1},
        ],
    })  # fmt: skip
    _, (later,) = await get_json(client, f"/api/audit/runs?job=prices&since={lost_ms}")
    assert later["due"] == 7
    assert (await get_json(client, "/api/audit/runs?job=nothing"))[1] == []
    assert (await get_json(client, "/api/audit/runs?since=x"))[0] == 400


async def test_a_key_of_some_jobs_sees_no_audit_of_others(doors: Doors) -> None:
    for job in (PRICES, BACKUP):
        await record_minutes(doors.service.store, NOW_MS - 11 * MINUTE_MS, job)
    assert [each["job"] for each in await doors.json("/api/audit/runs", "limited")] == ["prices"]
    assert await doors.status("GET", "/api/audit/runs?job=backup", "limited") == 403


async def test_the_page_says_that_all_is_on_record_or_what_is_not() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        assert "Nothing was due." in (await get_page(client, "/when/audit"))[1]
        await record_minutes(service.store, NOW_MS - 10 * MINUTE_MS, NEWS)
        _, whole = await get_page(client, "/when/audit")
        await record_minutes(service.store, NOW_MS - 10 * MINUTE_MS, lost=3)
        _, page = await get_page(client, "/when/audit")
    assert "Every due time of the last 7 days is on record." in whole
    assert "Every due time" not in page
    assert "1\N{NO-BREAK SPACE}due time unexplained" in page
    assert page.count("nothing is on record") == 1
    assert 'href="/when/audit"' in await page_of("/when", service)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "config.toml").touch()
    (tmp_path / "jobs" / "prices.lua").write_text('-- /// job\n-- every = "1m"\n-- ///\n')
    return tmp_path


async def record_in_file(path: Path, lost: int | None = None) -> None:
    store = await open_store(path, clock=RealClock())
    await record_minutes(store, RealClock().now_ms() - 11 * MINUTE_MS - 30_000, lost=lost)
    await store.close()


def test_the_command_reads_the_database_where_no_daemon_runs_and_fails_for_an_unexplained_due_time(
    project: Path,
) -> None:
    assert spyweb("audit", root=project) == Answer(0, "", "nothing was due until a minute ago\n")
    asyncio.run(record_in_file(project / "data" / "spyweb.db"))
    whole = spyweb("audit", root=project)
    assert (whole.code, whole.table, whole.err) == (
        0,
        [["prices", "10", "5", "4", "1"]],
        "each due time is explained\n",
    )
    assert "prices: 4 due times skipped, " in spyweb("audit", "prices", "--since", "1h", root=project).out

    (project / "data" / "spyweb.db").unlink()
    asyncio.run(record_in_file(project / "data" / "spyweb.db", lost=2))
    lost = spyweb("audit", root=project)
    assert (lost.code, lost.err) == (1, "")
    assert lost.out.splitlines()[-1].endswith(": nothing is on record")
    (found,) = json.loads(spyweb("audit", "-o", "json", root=project).out)
    assert found["counts"]["unexplained"] == 1
    assert spyweb("audit", "--since", "soon", root=project).code == 2
    assert spyweb("audit", "news", root=project).code == 2


def test_the_command_asks_the_daemon_that_runs(project: Path) -> None:
    service = FakeDaemonService(clock=RealClock())
    asyncio.run(record_in_memory(service))
    with serve_daemon_socket(service, project / "data"):
        answer = spyweb("audit", "prices", root=project)
    assert answer.code == 1
    skipped, behind = answer.out.splitlines()[2:]
    assert skipped.endswith(": <b>busy</b>")
    assert behind.endswith(": not handled: the schedule is behind")


async def record_in_memory(service: FakeDaemonService) -> None:
    await record_minutes(service.store, RealClock().now_ms() - 11 * MINUTE_MS - 30_000)
