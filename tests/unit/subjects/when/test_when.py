"""What runs when: the day ahead, the gaps of the past, maintenance, and their pages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from spyweb.cooperative import run_at_once
from spyweb.errors import Refused
from spyweb.model import Cron, Every, JobId, Never, Outcome, Schedule
from spyweb.runs.live import LiveJob
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once, Recurring
from spyweb.store.model.access import Scope
from spyweb.store.model.runs import Change
from spyweb.subjects.runs.views import brief
from spyweb.subjects.when import service as when
from spyweb.subjects.when.pages import ROWS, WIDTH, draw_heat_map, draw_maintenance
from tests.fakes.changes import make_skipped
from tests.fakes.client import Client, get_json
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, post_form, signed_in
from tests.fakes.harness import make_job, make_planned
from tests.fakes.keys import Doors
from tests.fakes.pool import LOST
from tests.fakes.served import Served, serving
from tests.fakes.uptime import record, result

AT_THREE = Cron(expression="0 3 * * *", timezone="UTC")


def plan(name: str, schedule: Schedule) -> LiveJob:
    return make_planned(name, schedule, NOW_MS)


def test_a_herd_is_found_among_jobs_that_run_all_the_time() -> None:
    herd = [plan(f"nightly{number}", AT_THREE) for number in range(14)]
    found = run_at_once(when.day_ahead([plan("each second", Every(period_ms=1_000)), *herd], NOW_MS + 1))

    assert found.busiest is not None
    assert (found.busiest.at_ms, found.busiest.words) == (NOW_MS + 3 * HOUR_MS, "15 jobs start within a minute")
    assert found.rows[-1].name == "each second"
    assert found.rows[-1].total == 24 * 3_600
    assert found.total == 24 * 3_600 + 14


def test_a_daily_job_is_due_once_in_a_day_whenever_one_looks() -> None:
    for minutes in range(0, 24 * 60, 5):
        found = run_at_once(when.day_ahead([plan("nightly", AT_THREE)], NOW_MS + minutes * 60_000))
        assert found.total == 1


def test_a_gap_says_from_when_to_when_and_what_followed_and_a_lost_run_is_one() -> None:
    missed = make_run(3, outcome=Outcome.MISSED, started_ms=None, count=7, last_due_ms=NOW_MS, reason="down")
    gap = when.view_gap(missed, "Prices", brief(make_run(4)))

    assert (gap.from_ms, gap.until_ms, gap.count, gap.reason) == (NOW_MS - 60_000, NOW_MS, 7, "down")
    assert gap.followed_by is not None
    assert gap.followed_by.words == "Succeeded"

    gap = when.view_gap(make_run(3, outcome=Outcome.LOST, due_ms=None), "Prices", None)
    assert (gap.from_ms, gap.until_ms, gap.count) == (NOW_MS - 60_000, NOW_MS - 60_000, 1)


PRICES, NEWS = JobId("prices"), JobId("news")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs: prices every quarter of an hour, news by hand."""
    jobs = make_job("prices", schedule=Every(period_ms=900_000)), make_job("news", schedule=Never())
    async with serving(tmp_path, *jobs) as served:
        yield served


async def test_the_day_ahead_has_the_jobs_that_are_scheduled(served: Served) -> None:
    await served.t.clock.turn(20)
    found = await served.calendar.day_ahead()
    assert [(row.job, row.total) for row in found.rows] == [(PRICES, 96)]

    await served.jobs.pause(PRICES)
    assert (await served.calendar.day_ahead()).total == 0


async def test_gaps_say_why_and_what_followed(served: Served) -> None:
    await served.t.store.runs.record(Change(skipped=[make_skipped(NEWS, reason="the daemon was down")]))
    await served.run(NEWS, LOST)

    page = await served.calendar.gaps(NEWS)
    lost, missed = page.gaps
    assert (missed.outcome, missed.count, missed.reason) == (Outcome.MISSED, 3, "the daemon was down")
    assert missed.followed_by is not None
    assert (missed.followed_by.run, missed.followed_by.words) == (lost.run, "Lost")
    assert (page.count, page.before) == (4, None)
    assert (await served.calendar.gaps(PRICES)).gaps == []


async def test_gaps_come_in_pages_and_since_a_moment(served: Served) -> None:
    for first in (1_000, 9_000_000):
        skipped = make_skipped(NEWS, first=first, last=first, reason=str(first))
        await served.t.store.runs.record(Change(skipped=[skipped]))

    page = await served.calendar.gaps(limit=1)
    assert [gap.from_ms for gap in page.gaps] == [9_000_000]
    assert [gap.from_ms for gap in (await served.calendar.gaps(limit=9, before=page.before)).gaps] == [1_000]
    assert [gap.from_ms for gap in (await served.calendar.gaps(since_ms=5_000)).gaps] == [9_000_000]


async def test_what_may_not_be_seen_is_left_out(served: Served) -> None:
    await served.t.clock.turn(20)
    await served.t.store.runs.record(Change(skipped=[make_skipped(NEWS, reason="the daemon was down")]))
    found = served.calendar
    assert (await found.day_ahead(lambda job: job != PRICES)).total == 0
    assert (await found.gaps(may_see=lambda job: job != NEWS)).gaps == []
    assert [gap.job for gap in (await found.gaps(may_see=lambda job: job == NEWS)).gaps] == [NEWS]


async def test_maintenance_is_that_of_the_rules_and_jobs_of_the_moment(served: Served) -> None:
    maintenance, now_ms = served.maintenance, served.t.clock.now_ms()
    assert not (await maintenance.view()).next

    rule = MaintenanceRule(Once(now_ms + 3 * DAY_MS, now_ms + 4 * DAY_MS), ("prices",))
    served.reloader.maintenance = MaintenanceCalendar([rule])
    served.t.live.link()
    (window,) = (await maintenance.view()).next
    assert (window.start_ms, window.job_count) == (now_ms + 3 * DAY_MS, 1)
    assert not (await maintenance.view(days=2)).next
    assert not (await maintenance.view(may_see=lambda job: job == NEWS)).next
    assert maintenance.until(PRICES) is None
    served.t.clock.advance(3 * 86_400)
    assert (maintenance.until(PRICES), maintenance.until(NEWS)) == (window.end_ms, None)


async def test_maintenance_begins_now_for_jobs_and_tags_and_ends_early(served: Served) -> None:
    maintenance, now_ms = served.maintenance, served.t.clock.now_ms()
    first = await maintenance.begin(HOUR_MS, "anna", jobs=["PRI*"], tags=[], text="move")
    assert (maintenance.until(PRICES), maintenance.until(NEWS)) == (now_ms + HOUR_MS, None)
    every = await maintenance.begin(2 * HOUR_MS, "anna", jobs=[], tags=[], text="")
    assert (maintenance.until(NEWS), maintenance.windows().until(None, now_ms)) == (now_ms + 2 * HOUR_MS,) * 2
    assert [each.id for each in (await maintenance.view(may_see=lambda job: job == NEWS)).now] == [every]
    await maintenance.end(every)
    assert (maintenance.until(PRICES), maintenance.until(NEWS)) == (now_ms + HOUR_MS, None)
    for jobs, tags in ((["nothing"], []), ([], ["nothing"]), (["!"], []), (["pri*"] * (when.MOST_NAMED + 1), [])):
        with pytest.raises(Refused):
            await maintenance.begin(HOUR_MS, "anna", jobs=jobs, tags=tags, text="")
    for _ in range(when.MOST_BEGUN - 1):
        await maintenance.begin(HOUR_MS, "anna", jobs=[], tags=[], text="")
    with pytest.raises(Refused, match="at most"):
        await maintenance.begin(HOUR_MS, "anna", jobs=[], tags=[], text="")
    served.t.clock.advance(3_600)
    assert maintenance.until(PRICES) is None
    await maintenance.begin(HOUR_MS, "anna", jobs=[], tags=[], text="")
    assert len(await served.t.store.incidents.maintenance()) == 1, "those that ended are deleted"
    with pytest.raises(Refused, match=f"no maintenance {first}"):
        await maintenance.end(first)


async def test_what_maintenance_has_excused_stays_so_after_it_has_ended(served: Served) -> None:
    maintenance, store, clock = served.maintenance, served.t.store, served.t.clock
    await record(store, result(clock.now_ms(), up=False))
    window = await maintenance.begin(HOUR_MS, "anna", jobs=["prices"], tags=[], text="")
    clock.advance(600)
    await maintenance.end(window)
    clock.advance(60)
    span = (await store.uptime.read([PRICES], clock.now_ms(), ["24h"]))[PRICES].spans["24h"]
    assert (span.excused_ms, span.down_ms) == (10 * MINUTE_MS, MINUTE_MS)

    await maintenance.begin(HOUR_MS, "anna", jobs=["prices"], tags=[], text="")
    clock.advance(2 * 3_600)
    restarted = when.MaintenanceService(
        live=served.t.live, planned=MaintenanceCalendar, store=store.incidents, uptime=store.uptime, clock=clock
    )
    store.uptime.excused = MaintenanceCalendar().excused
    await restarted.load()
    span = (await store.uptime.read([PRICES], clock.now_ms(), ["24h"]))[PRICES].spans["24h"]
    assert span.excused_ms == HOUR_MS + 10 * MINUTE_MS, "windows that ended while nothing ran are known"


def planned(count: int) -> list[LiveJob]:
    return [make_planned(f"j{n:04}", Every(period_ms=HOUR_MS), 0) for n in range(count)]


def test_a_page_has_so_many_rows_and_the_sum_is_of_all_of_them() -> None:
    day = run_at_once(when.day_ahead(planned(ROWS + 1), 1))
    first, last, beyond = (draw_heat_map(day, page) for page in (1, 2, 7))
    assert (len(first.rows), len(last.rows), last.pages) == (ROWS, 1, 2)
    assert (beyond.page, beyond.rows) == (2, last.rows)
    assert first.herd == last.herd
    assert first.herd.most == ROWS + 1


def test_jitter_is_proposed_for_a_crowd_of_rare_jobs_alone_and_the_busiest_bar_is_the_tallest() -> None:
    often = [make_planned(f"often{n}", Every(period_ms=10_000), 0) for n in range(5)]
    nightly = [plan(f"nightly{n}", AT_THREE) for n in range(5)]
    calm, crowded = (
        draw_heat_map(run_at_once(when.day_ahead(jobs, NOW_MS + 1)), 1) for jobs in (often, [*often, *nightly])
    )
    assert (calm.crowd, calm.is_even, crowded.crowd, crowded.peak_ms) == (0, True, 5, NOW_MS + 3 * HOUR_MS)
    assert crowded.herd.most == 5 * 90 + 5
    classes = {row.name: {level for level, _ in drawn} for row, drawn in crowded.rows}
    assert (classes["nightly0"], max(classes["often0"])) == ({"h1"}, "h5")


async def test_it_says_when_most_jobs_start_draws_the_day_and_gives_gaps_their_reasons() -> None:
    page = await page_of("/when")
    assert re.search(r"Busiest at <time[^>]*>03:00</time>: 3.runs in 15 minutes</h1>", page)
    assert re.search(r"At <time[^>]*>03:00</time>, 3 jobs start within a minute", page)
    assert page.count('<svg viewBox="0 0 97 1"') == 3
    assert "3\N{NO-BREAK SPACE}runs of 3\N{NO-BREAK SPACE}jobs in the next 24 hours." in page
    assert '<a href="/when" aria-current="page">Schedule' in page
    assert re.findall(r'<tr id="g-(\d)">', page) == ["3", "2", "1"]
    for word in ("skipped", "paused", "lost"):
        assert f"{word}</span>" in page
    assert '<a href="/runs/2">' in page
    assert "nothing yet" in page


async def test_it_says_what_is_now_and_what_comes() -> None:
    async with dashboard() as client:
        status, page = await get_page(client, "/maintenance")
        assert status == 200
        assert "Maintenance now, until <time" in page
        assert "7\N{NO-BREAK SPACE}times in 7 days" in page
        assert page.count('<path class="h3"') == 2
        assert 'aria-label="7\N{NO-BREAK SPACE}windows"' in page
        assert "<code>0 3 * * *</code>" in page
        _, page = await get_page(client, "/incidents")
        assert '<a href="/maintenance">Maintenance</a> until' in page
        assert "failures do not count" in (await get_page(client, "/jobs/backup"))[1]


async def test_the_form_that_begins_maintenance_shows_what_is_wrong_and_what_was_typed() -> None:
    for given, expected in (({"for": "soon"}, "expected"), ({"for": "9w"}, "at most"), ({"for": ""}, "expected")):
        status, _, page = await post_form(make_dashboard_service(), "/maintenance", None, text="move <b>", **given)
        assert (status, expected in page, "move &lt;b&gt;" in page) == (422, True, True), given
    service = make_dashboard_service()
    assert (await post_form(service, "/maintenance", await signed_in(service, Scope.READ), **{"for": "1h"}))[0] == 403
    assert "Begin maintenance" not in await page_of(
        "/maintenance", service, await signed_in(service, Scope.READ, name="b")
    )


MONDAY_MS = 1_795_417_200_000  # Monday, 23 November 2026, 07:00 UTC
NAMES = ("backup_db", "backup_files", "prices")
NIGHTLY = MaintenanceRule(Recurring("0 3 * * *", "UTC", 2 * HOUR_MS), ("backup_*", "gone"), "copies")
NOW_ALL = MaintenanceRule(Once(MONDAY_MS - HOUR_MS, MONDAY_MS + HOUR_MS), text="reboot")


def shown(
    rules: Sequence[MaintenanceRule], may_see: Callable[[str], bool] = lambda _: True, days: int = 2
) -> when.MaintenanceView:
    return run_at_once(when.view_maintenance(rules, NAMES, MONDAY_MS, MONDAY_MS + days * DAY_MS, may_see))


def test_what_is_now_and_what_comes_next() -> None:
    found = shown([NIGHTLY, NOW_ALL])
    (now,) = found.now
    assert (now.start_ms, now.end_ms, now.text, list(now.jobs), now.job_count, now.cron, now.timezone) == (
        MONDAY_MS - HOUR_MS, MONDAY_MS + HOUR_MS, "reboot", [], 3, "", "",
    )  # fmt: skip
    first, second = found.next
    assert (first.start_ms, first.end_ms) == (MONDAY_MS + 20 * HOUR_MS, MONDAY_MS + 22 * HOUR_MS)
    assert second.start_ms == first.start_ms + DAY_MS
    assert (list(first.jobs), first.job_count, first.cron, first.timezone) == (
        ["backup_*", "gone"], 2, "0 3 * * *", "UTC",
    )  # fmt: skip
    assert (found.until_ms, found.is_cut) == (MONDAY_MS + 2 * DAY_MS, False)


def test_who_may_see_some_jobs_is_shown_what_is_about_these_and_no_name_of_others() -> None:
    found = shown([NIGHTLY, NOW_ALL], lambda job: job == "prices")
    assert [each.text for each in (*found.now, *found.next)] == ["reboot"]
    assert found.now[0].job_count == 1
    found = shown([NIGHTLY], lambda job: job == "backup_db")
    assert [(list(each.jobs), each.job_count) for each in found.next] == [(["backup_*"], 1)] * 2


def test_a_rule_that_meets_no_job_is_shown_to_who_sees_all() -> None:
    rule = NIGHTLY._replace(jobs=("web_*",))
    assert [each.job_count for each in shown([rule]).next] == [0, 0]
    assert not shown([rule], lambda job: job == "prices").next


def test_there_are_only_so_many() -> None:
    often = MaintenanceRule(Recurring("*/5 * * * *", "UTC", MINUTE_MS))
    found = shown([often, often], days=366)
    assert len(found.now) + len(found.next) == when.MOST_WINDOWS
    assert found.is_cut


@pytest.mark.parametrize(("query", "nights"), [("", 7), ("?days=2", 2)])
async def test_windows_of_the_next_days_are_shown(query: str, nights: int, client: Client) -> None:
    status, found = await get_json(client, f"/api/maintenance{query}")
    assert (status, [each["text"] for each in found["now"]], len(found["next"])) == (200, ["reboot"], nights)


@pytest.mark.parametrize("days", ["0", "367", "x"])
async def test_it_is_a_day_to_a_year(days: str, client: Client) -> None:
    assert (await get_json(client, f"/api/maintenance?days={days}"))[0] == 400


async def test_a_key_for_some_jobs_sees_what_is_about_these(doors: Doors) -> None:
    found = await doors.json("/api/maintenance", "other")
    assert (len(found["now"]), found["now"][0]["job_count"], found["next"]) == (1, 1, [])


def window(start_ms: int, end_ms: int, text: str = "", *jobs: str) -> when.MaintenanceWindow:
    return when.MaintenanceWindow(
        start_ms=start_ms, end_ms=end_ms, jobs=jobs, job_count=1, text=text, cron="", timezone=""
    )


def view(now: list[when.MaintenanceWindow], later: list[when.MaintenanceWindow]) -> when.MaintenanceView:
    return when.MaintenanceView(now=now, next=later, until_ms=10 * DAY_MS, is_cut=False)


def test_each_rule_has_a_row_with_its_windows() -> None:
    later = [window(5 * DAY_MS, 6 * DAY_MS, "reboot"), window(7 * DAY_MS, 8 * DAY_MS, "", "prices")]
    picture = draw_maintenance(view([window(-DAY_MS, DAY_MS, "reboot")], later), days=10)
    assert [(row.window.text, row.count) for row in picture.rows] == [("reboot", 2), ("", 1)]
    assert picture.rows[0].path == "M0 .5h100M500 .5h100"
    assert (picture.until_ms, picture.next_ms) == (DAY_MS, 5 * DAY_MS)
    assert [tick.at_ms % DAY_MS for tick in picture.ticks] == [0] * len(picture.ticks)


def test_the_shortest_is_seen_and_none_is_outside() -> None:
    picture = draw_maintenance(view([], [window(10 * DAY_MS - 1, 11 * DAY_MS)]), days=10)
    assert picture.rows[0].path == f"M{WIDTH - 4} .5h4"
    assert picture.until_ms is None
