"""Uptime as people see it: over HTTP, on the pages and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.model import JobId, Never
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.model.uptime import UptimeSpan, bucket_of
from spyweb.subjects.runs.views import TimeSpan
from spyweb.subjects.uptime.commands import row_of_job, row_of_span
from spyweb.subjects.uptime.service import UptimeService
from spyweb.web.pages.charts import draw_days
from tests.fakes.client import Client, get_json
from tests.fakes.daemon_service import NOW_MS, PRICES, FakeDaemonService
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service
from tests.fakes.harness import make_job
from tests.fakes.keys import Doors
from tests.fakes.served import serving
from tests.fakes.uptime import record, result


async def fail_for_an_hour(service: FakeDaemonService) -> None:
    """Let the job have been up for three hours, then down until now."""
    begins = NOW_MS - 4 * HOUR_MS
    await record(service.store, result(begins, latency=bucket_of(100)), result(NOW_MS - HOUR_MS, up=False))


async def test_the_api_shows_each_span_and_each_day(client: Client, service: FakeDaemonService) -> None:
    await fail_for_an_hour(service)
    status, found = await get_json(client, "/api/jobs/prices/uptime?days=3")

    assert (status, found["job"], found["up"], found["since_ms"]) == (200, "prices", False, NOW_MS - HOUR_MS)
    assert found["spans"]["24h"] == {
        "since_ms": NOW_MS - DAY_MS, "until_ms": NOW_MS, "uptime": 0.75, "up_ms": 3 * HOUR_MS, "down_ms": HOUR_MS,
        "excused_ms": 0, "unknown_ms": 20 * HOUR_MS, "ok": 1, "failed": 1,
        "latency_p50_ms": pytest.approx(100, rel=0.091), "latency_p95_ms": pytest.approx(100, rel=0.091),
    }  # fmt: skip
    assert [*found["spans"]] == ["24h", "7d", "30d", "365d"]
    assert [day["uptime"] for day in found["days"]] == [None, 0.75, None]  # today has just begun
    assert (await get_json(client, "/api/jobs/prices/uptime?days=401"))[0] == 400
    assert (await get_json(client, "/api/jobs/nothing/uptime"))[0] == 404


async def test_a_key_of_some_jobs_sees_no_uptime_of_others(doors: Doors) -> None:
    assert [each["job"] for each in await doors.json("/api/uptime", "limited")] == ["prices"]
    assert await doors.status("GET", "/api/jobs/backup/uptime", "limited") == 403


async def test_the_page_of_a_job_draws_90_days() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        assert "No result yet." in (await get_page(client, "/jobs/prices"))[1]
        await fail_for_an_hour(service)
        _, page = await get_page(client, "/jobs/prices")
    assert 'aria-label="1 day known, 1 day with outages"' in page
    assert "<span>24&nbsp;h <b>75\N{NO-BREAK SPACE}%</b></span>" in page


async def test_the_overview_and_the_statistics_have_the_same_uptime(tmp_path: Path) -> None:
    job = make_job("prices", schedule=Never())
    async with serving(tmp_path, job) as served:
        begin_ms = served.t.clock.now_ms()
        await record(served.t.store, result(begin_ms - HOUR_MS), result(begin_ms, up=False))
        await served.t.clock.turn(3 * 3_600)
        (row,) = await served.overview.all_rows()
        statistics = await served.past.statistics(PRICES, TimeSpan.DAY)
    assert (row.uptime, statistics.uptime) == ({"24h": 0.25, "30d": 0.25}, 0.25)


def test_a_day_is_drawn_by_how_bad_it_was() -> None:
    up_ms = DAY_MS - MINUTE_MS
    days = [UptimeSpan(), UptimeSpan(up_ms=up_ms), UptimeSpan(up_ms=up_ms, down_ms=MINUTE_MS), UptimeSpan(down_ms=9)]
    drawn = draw_days([day.uptime for day in days])
    assert {letter for letter, _ in drawn.paths} == {"p", "s", "t", "f"}
    assert drawn.label == "3 days known, 2 days with outages"


async def test_the_command_shows_a_job_in_a_row_and_its_spans(service: FakeDaemonService) -> None:
    await fail_for_an_hour(service)
    (view, other) = await UptimeService(store=service.store.uptime, clock=service.clock).look([PRICES, JobId("news")])

    assert row_of_job(view) == {"job": "prices", "now": "down", **dict.fromkeys(("24h", "7d", "30d", "365d"), "75 %")}
    assert row_of_job(other) == {"job": "news", "now": "unknown", **dict.fromkeys(("24h", "7d", "30d", "365d"), "")}
    assert row_of_span(("24h", view.spans["24h"])) == {
        "span": "24h", "uptime": "75 %", "up": "3 h", "down": "1 h", "excused": "", "unknown": "20 h",
        "ok": "1", "failed": "1", "latency": "108 ms",
    }  # fmt: skip
