"""The overview: its words, how all jobs stand, and its page."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import ClientSession
from msgspec import structs
from msgspec.structs import replace

from spyweb.cooperative import run_at_once
from spyweb.errors import Problem, StoreError
from spyweb.model import After, Every, Failure, JobId, Never, Outcome, RunId, RunMark
from spyweb.store.model.access import Scope
from spyweb.store.model.runs import FailingSeries, RunStrip, StripWish
from spyweb.subjects.jobs.overview import OverviewRow, Standing, make_overview, make_verdict, standing_of, view_row
from spyweb.subjects.jobs.service import KEPT_S
from spyweb.subjects.jobs.words import draw_row, words_of_row
from spyweb.views.jobs import JobState, JobView, view_job
from spyweb.views.runs import last_run
from tests.fakes.daemon_service import NOW_MS, make_run, three_jobs
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, signed_in
from tests.fakes.harness import make_job, make_spec
from tests.fakes.pool import FAILED, SUCCESS
from tests.fakes.served import Served, serving

SERIES = FailingSeries(since_ms=5, count=7, first=RunId(3))


def job(name: str = "prices", **changes: object) -> JobView:
    view = view_job(make_spec(JobId(name)), last=make_run(job=JobId(name)))
    return replace(view, **changes)


def rows(*standings: Standing) -> list[OverviewRow]:
    return [OverviewRow(job=job(f"job{at}"), standing=standing) for at, standing in enumerate(standings)]


@pytest.mark.parametrize(
    ("changes", "is_failing", "standing"),
    [
        ({}, False, Standing.WELL),
        ({}, True, Standing.FAILING),
        ({"state": JobState.RUNNING}, False, Standing.RUNNING),
        ({"state": JobState.RUNNING}, True, Standing.FAILING),
        ({"state": JobState.PAUSED}, True, Standing.FAILING),
        ({"state": JobState.PAUSED}, False, Standing.PAUSED),
        ({"state": JobState.WAITING}, False, Standing.WAITING),
        ({"error": "jobs/prices.lua:1: x"}, False, Standing.OUTDATED),
        ({"enabled": False, "state": JobState.DISABLED}, True, Standing.DISABLED),
        ({"enabled": False, "state": JobState.RUNNING}, False, Standing.RUNNING),
        ({"state": JobState.BROKEN, "enabled": False}, False, Standing.BROKEN),
        ({"last": None}, False, Standing.NEW),
        ({"last": last_run(make_run(4, outcome=Outcome.SKIPPED))}, False, Standing.SKIPPED),
        ({"last": last_run(make_run(4, outcome=Outcome.SKIPPED))}, True, Standing.FAILING),
    ],
)
def test_what_needs_somebody_is_stronger_than_what_goes_on(
    changes: dict[str, object], is_failing: bool, standing: Standing
) -> None:
    assert standing_of(job("prices", **changes), is_failing=is_failing) is standing


@pytest.mark.parametrize("changes", [{"storage_errors": 2}, {"note": "not as expected: no items"}])
def test_a_success_with_something_wrong_is_to_be_looked_at(changes: dict[str, object]) -> None:
    view = view_job(make_spec(), last=make_run(1, **changes))
    assert standing_of(view, is_failing=False) is Standing.DOUBTFUL


@pytest.mark.parametrize(
    ("standings", "words"),
    [
        ([], "No jobs yet"),
        ([Standing.WELL], "The one job is healthy"),
        ([Standing.WELL] * 1_200, "All 1,200 jobs healthy"),
        ([Standing.PAUSED, Standing.WELL], "All 2 jobs healthy"),
        ([Standing.FAILING, Standing.WELL], "1 of 2 jobs failing"),
        ([Standing.FAILING, Standing.BROKEN, Standing.OUTDATED], "1 of 3 jobs failing; 2 files do not load"),
        ([Standing.BROKEN], "1 file does not load"),
        ([Standing.DOUBTFUL, Standing.WELL], "1 of 2 jobs with warnings"),
    ],
)
def test_the_verdict_says_how_it_stands(standings: list[Standing], words: str) -> None:
    verdict = make_verdict(rows(*standings))
    assert verdict.words == words
    assert verdict.is_well is (words.startswith(("All", "The", "No")))


def test_what_is_wrong_with_the_daemon_comes_first() -> None:
    verdict = make_verdict(rows(Standing.WELL), problems=["nothing is stored: disk full", "x"])
    assert verdict.words == "nothing is stored: disk full, and 1 more"
    assert not verdict.is_well


def test_the_worst_stand_first_and_the_others_by_name() -> None:
    standings = [Standing.WELL, Standing.DOUBTFUL, Standing.RUNNING, Standing.FAILING]
    given = rows(*standings)
    found = run_at_once(make_overview(given, problems=[], warnings=["x"], now_ms=9))
    assert (found.verdict.warnings, found.at_ms) == (["x"], 9)
    assert [row.job.id for row in found.rows] == ["job3", "job1", "job0", "job2"]
    assert found.states == {"failing": 1, "doubtful": 1, "running": 1, "well": 1}


def test_the_last_error_or_result_is_one_short_line() -> None:
    backup, prices, typo = three_jobs()
    assert view_row(backup).result == "jobs/backup.lua:3: disk"
    assert view_row(prices).result == "succeeded"
    assert (view_row(backup).standing, view_row(backup, strip=RunStrip()).standing) == (
        Standing.FAILING,
        Standing.PAUSED,
    )
    assert view_row(typo).result.startswith("jobs/typo.lua:1: unexpected symbol")
    long = view_job(make_spec(), last=make_run(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="x" * 999 + "\ny"))
    assert view_row(long).result == "x" * 199 + "…"
    refused = view_job(make_spec(), last=make_run(result="42", storage_errors=1))
    assert view_row(refused).result == "42; 1 storage error"


def test_a_row_says_since_when_it_fails_and_what_the_strip_says() -> None:
    strip = RunStrip(ids=[3, 4, 0], marks="sfm", took_ms=[10, 30, -1])
    row = view_row(job(), strip=strip, series=SERIES, held_up=["news"])
    assert row.failing is not None
    assert (row.failing.since_ms, row.failing.words) == (5, "7 runs in a row")
    assert (row.success_rate, row.median_ms, row.newest, row.held_up) == (0.5, 10, 4, ["news"])
    assert view_row(job(), strip=strip, held_up=["news"]).held_up == ()


PRICES, NEWS, TYPO = JobId("prices"), JobId("news"), JobId("typo")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs without a schedule: prices, and news after a success of prices."""
    jobs = make_job("prices", schedule=Never()), make_job("news", schedule=Never(), after=(After(job=PRICES),))
    async with serving(tmp_path, *jobs) as served:
        yield served


async def row_of(served: Served, job: JobId = PRICES) -> OverviewRow:
    found = {row.job.id: row for row in (await served.overview.look()).rows}
    assert found[job] == await served.overview.row(job)
    return found[job]


async def test_jobs_without_a_run_are_new_and_nothing_needs_attention(served: Served) -> None:
    found = await served.overview.look()

    assert found.verdict.words == "All 2 jobs healthy"
    assert [(row.job.id, row.standing, row.strip, row.result) for row in found.rows] == [
        (NEWS, Standing.NEW, "", "no run yet"),
        (PRICES, Standing.NEW, "", "no run yet"),
    ]


async def test_a_job_that_fails_stands_above_with_since_when_why_and_what_waits_for_it(served: Served) -> None:
    await served.run(PRICES, SUCCESS, FAILED, FAILED)
    found = await served.overview.look()
    row = found.rows[0]

    assert found.verdict.words == "1 of 2 jobs failing"
    assert not found.verdict.is_well
    assert (row.job.id, row.standing, row.strip) == (PRICES, Standing.FAILING, "sff")
    assert row.failing is not None
    assert (row.failing.count, row.failing.words) == (2, "2 runs in a row")
    assert found.verdict.since_ms == row.failing.since_ms == await first_failure(served)
    assert row.result == "jobs/x.lua:1: boom"
    assert list(row.held_up) == [NEWS]
    assert row.success_rate == 1 / 3


async def first_failure(served: Served) -> int | None:
    runs = await served.t.store.runs.list(PRICES)
    return [run for run in runs if run.outcome is Outcome.FAILED][-1].started_ms


async def test_who_follows_a_failure_too_is_not_held_up(served: Served) -> None:
    follower = make_job("alarm", schedule=Never(), after=(After(job=PRICES, outcomes=frozenset({Outcome.FAILED})),))
    await served.t.settle(follower)
    await served.run(PRICES, FAILED)

    assert list((await row_of(served)).held_up) == [NEWS]


async def test_strips_go_on_from_where_they_were_read(served: Served) -> None:
    await served.run(PRICES, SUCCESS, FAILED)
    assert (await row_of(served)).strip == "sf"

    served.t.pool.held.add(PRICES)
    await served.run(PRICES, SUCCESS)
    row = await row_of(served)
    assert (row.strip, row.standing) == ("sfr", Standing.FAILING)
    assert row.running_since_ms == served.t.clock.now_ms()

    served.t.clock.advance(2)
    served.t.pool.finish(row.newest or 0)
    await served.t.clock.turn()
    row = await row_of(served)
    assert (row.strip, row.standing, row.failing, row.median_ms) == ("sfs", Standing.WELL, None, 0)


async def test_a_run_that_was_under_way_before_the_first_look_ends_in_the_strip(served: Served) -> None:
    served.t.pool.held.add(PRICES)
    await served.run(PRICES, SUCCESS)
    row = await row_of(served)
    assert row.strip == RunMark.RUNNING

    served.t.pool.finish(row.newest or 0, FAILED)
    await served.t.clock.turn()
    assert (await row_of(served)).strip == RunMark.FAILED


def is_kept(served: Served) -> bool:
    return bool(served.t.store.runs._listeners)


async def test_nobody_is_told_of_changes_before_the_first_look_and_a_minute_after_the_last(served: Served) -> None:
    assert not is_kept(served)
    await served.overview.look()
    await served.t.clock.turn(KEPT_S - 1)
    await served.overview.look()
    await served.t.clock.turn(KEPT_S - 1)
    assert is_kept(served)

    await served.t.clock.turn(2)
    assert not is_kept(served)
    await served.run(PRICES, SUCCESS)
    assert (await row_of(served)).strip == "s"


async def test_a_file_that_does_not_load_is_in_the_verdict(served: Served) -> None:
    served.reloader.broken = {TYPO: [Problem("jobs/typo.lua", 1, None, "unexpected symbol")]}
    found = await served.overview.look()

    assert found.verdict.words == "1 file does not load"
    assert (found.rows[0].job.id, found.rows[0].standing) == (TYPO, Standing.BROKEN)
    assert await row_of(served, TYPO) == found.rows[0]
    assert await served.overview.row(JobId("nobody")) is None


async def test_a_job_that_comes_later_is_read_and_one_that_goes_is_let_go(served: Served) -> None:
    await served.overview.look()
    await served.t.settle(make_job("late", schedule=Every(period_ms=60_000)))
    await served.t.clock.turn(50)
    assert (await row_of(served, JobId("late"))).strip == "s"

    served.t.live.remove(JobId("late"))
    assert JobId("late") not in {row.job.id for row in (await served.overview.look()).rows}


async def test_a_row_follows_its_job(served: Served) -> None:
    await served.run(PRICES, SUCCESS)
    assert (await row_of(served)).job.state == "idle"
    await served.t.scheduler.pause(served.job(PRICES))
    assert (await row_of(served)).job.state == "paused"


async def test_a_job_that_changes_while_it_is_read_is_read_again_at_the_next_look(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.run(PRICES, SUCCESS)
    read, later = served.t.store.past_runs.strips, [FAILED]

    async def read_slowly(wanted: list[StripWish], count: int) -> Mapping[JobId, RunStrip]:
        found = await read(wanted, count)
        while later:
            await served.run(PRICES, later.pop())
        return found

    monkeypatch.setattr(served.t.store.past_runs, "strips", read_slowly)
    await served.overview.look()
    assert (await row_of(served)).strip == "sf"


async def test_jobs_are_shown_without_strips_where_the_store_refuses(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.run(PRICES, FAILED)

    async def refuse(*_: object) -> None:
        raise StoreError("disk I/O error")

    monkeypatch.setattr(served.t.store.past_runs, "strips", refuse)
    found = await served.overview.look()
    assert [(row.job.id, row.standing, row.strip) for row in found.rows] == [
        (PRICES, Standing.FAILING, ""),
        (NEWS, Standing.NEW, ""),
    ]
    monkeypatch.undo()
    assert (await row_of(served)).strip == "f"
    await served.run(PRICES, FAILED)
    monkeypatch.setattr(served.t.store.past_runs, "strips", refuse)
    assert (await row_of(served)).strip == "f", "as it was, until it is read again"


def shown(page: str) -> list[str]:
    return re.findall(r'<li id="j-(\w+)"', page)


def hidden(page: str) -> list[str]:
    return re.findall(r'<li hidden id="j-(\w+)"', page)


async def test_a_filter_hides_rows_without_javascript() -> None:
    page = await page_of("/?q=pri&sort=name")
    assert (shown(page), hidden(page)) == (["prices"], ["backup", "typo"])
    assert 'value="pri"' in page
    page = await page_of("/?state=failing")
    assert (shown(page), hidden(page)) == (["backup"], ["typo", "prices"])
    page = await page_of("/?state=nonsense&sort=nonsense&tag=none")
    assert shown(page) == []
    assert '<p id="no-match" class="nothing">' in page


async def test_without_jobs_it_teaches_a_job_a_monitor_and_an_alert(tmp_path: Path) -> None:
    async with dashboard(make_dashboard_service([], tmp_path)) as client:
        _, page = await get_page(client, "/")
    assert "No jobs yet</h1>" in page
    for file in ("jobs/hello.lua", "jobs/news/config.toml", "config.toml"):
        assert f"<code>{file}</code>" in page
    assert page.count("data-copy=") == 3
    assert f"<code>{tmp_path}</code>" in page
    service = make_dashboard_service([], tmp_path)
    async with dashboard(service) as client:
        _, page = await get_page(client, "/", **await signed_in(service, Scope.READ, jobs=("backup",)))
    assert "Your key permits no job of this project." in page
    assert str(tmp_path) not in page


async def test_a_thousand_jobs_are_few_bytes() -> None:
    """As transferred; each has its own name, result and next run, and some have their ups and downs."""
    draw = random.Random(7)
    words = ["backup", "invoices", "certificates", "feed", "thermostat", "stock", "rates", "uptime", "report"]
    rows = []
    for number in range(1_000):
        job = JobId(f"{words[number % 9]}_{number:04d}")
        due_ms, result = NOW_MS + 1_000 * draw.randrange(10_000), f"{draw.randrange(900)} rows in 3 pages"
        view = structs.replace(view_job(make_spec(job), last=make_run(result=result)), next_due_ms=due_ms)
        took_ms = [draw.randrange(90_000)] * 40
        weights = draw.choices([[1, 0, 0, 0, 0], [85, 5, 4, 4, 2], [5, 0, 4, 0, 1]], [85, 12, 3])[
            0
        ]  # sound, mixed, bad
        strip = RunStrip(marks="".join(draw.choices("stfkm", weights, k=40)), ids=range(40), took_ms=took_ms)
        rows.append(view_row(view, strip=strip))
    async with dashboard(make_dashboard_service(rows)) as client, ClientSession(auto_decompress=False) as browser:
        headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
        async with browser.get(client.make_url("/"), headers=headers) as answer:
            assert len(await answer.read()) < 50_000


CHECKED = '{"cert_days":43,"latency":85.4,"status":200}'


async def test_a_check_is_up_or_down_and_says_what_it_has_measured() -> None:
    site = view_job(make_spec(JobId("site"), check="http"), last=make_run(job=JobId("site"), result=CHECKED))
    up, down = view_row(site, strip=RunStrip()), view_row(site, strip=RunStrip(), series=SERIES)
    assert (draw_row(up).word, draw_row(down).word) == ("up", "down")
    assert words_of_row(down).heading == "down"
    assert draw_row(up).what == "85 ms, 200, certificate 43 days"
    assert view_row(replace(site, check="")).result == CHECKED, "a script may return what it likes"
    page = await page_of("/", make_dashboard_service([up]))
    assert "http check · " in page
