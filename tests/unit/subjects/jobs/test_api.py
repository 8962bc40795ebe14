"""The jobs over HTTP."""

from __future__ import annotations

from pathlib import Path

import msgspec

from spyweb.views.jobs import JobView, NextRun
from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of, get_json, post_json
from tests.fakes.daemon_service import MARKUP, NOW_MS, FakeDaemonService, three_jobs
from tests.fakes.keys import Doors


async def test_jobs_are_an_array_of_objects_with_id_name_and_enabled(client: Client) -> None:
    _, jobs = await get_json(client, "/api/jobs")
    assert [(job["id"], job["name"], job["enabled"]) for job in jobs] == [
        ("backup", "Backup", True),
        ("prices", "prices", True),
        ("typo", "typo", False),
    ]
    assert msgspec.convert(jobs, list[JobView]) == three_jobs()


async def test_a_list_of_jobs_is_filtered_and_sorted_a_page_at_a_time(client: Client) -> None:
    async with client.get("/api/jobs?sort=-id&limit=2&q=p") as answer:
        assert [job["id"] for job in await answer.json()] == ["typo", "prices"]
        assert answer.headers["Link"] == '<?sort=-id&limit=2&q=p&after=prices>; rel="next"'
    async with client.get("/api/jobs?sort=-id&limit=2&q=p&after=prices") as answer:
        assert [job["id"] for job in await answer.json()] == ["backup"]
        assert "Link" not in answer.headers
    _, paused = await get_json(client, "/api/jobs?state=paused")
    assert [job["id"] for job in paused] == ["backup"]
    assert (await get_json(client, "/api/jobs?state=gone"))[0] == 400


async def test_next_runs_of_a_span_are_all_until_then(client: Client) -> None:
    _, found = await get_json(client, f"/api/next?until={NOW_MS + 300_000}")
    _, first = await get_json(client, f"/api/next?until={NOW_MS + 300_000}&count=2")
    assert (len(found), found[-1]["due_ms"], len(first)) == (9, NOW_MS + 270_000, 2)
    assert (await get_json(client, "/api/next?until=tomorrow"))[0] == 400


async def test_next_runs_show_local_time_and_zone(client: Client) -> None:
    _, found = await get_json(client, "/api/next?job=prices&count=2")
    due = msgspec.convert(found, list[NextRun])
    assert [run.local for run in due] == ["Thu 2026-01-01 01:00:30 CET", "Thu 2026-01-01 01:01:00 CET"]


async def test_trigger_pause_and_resume_reach_the_service(client: Client, service: FakeDaemonService) -> None:
    assert await post_json(client, "/api/jobs/prices/trigger") == (200, {"run": 9})
    paused = {"job": "backup", "paused": True, "was_paused": False, "next_due_ms": None}
    assert await post_json(client, "/api/jobs/Backup/pause") == (200, paused)
    resumed = {"job": "backup", "paused": False, "was_paused": True, "next_due_ms": NOW_MS + 30_000}
    assert await post_json(client, "/api/jobs/backup/resume") == (200, resumed)
    assert service.story == ["trigger prices", "pause backup", "resume backup"]


async def test_the_log_of_a_job_that_never_logged_is_empty(tmp_path: Path) -> None:
    service = FakeDaemonService(root=tmp_path)
    async with client_of(socket_app(service)) as client:
        assert await get_json(client, "/api/jobs/prices/logs") == (200, [])
        service.log_file(three_jobs()[1].id).parent.mkdir(parents=True)
        service.log_file(three_jobs()[1].id).write_text("one\ntwo\nthree\n")
        assert await get_json(client, "/api/jobs/prices/logs?lines=2") == (200, ["two", "three"])


async def test_a_job_is_shown_with_its_source(client: Client) -> None:
    status, detail = await get_json(client, "/api/jobs/Backup")
    assert (status, detail["row"]["job"]["id"], detail["generation"]) == (200, "backup", 3)
    _, source = await get_json(client, "/api/jobs/backup/source")
    assert source["lines"] == ["local a = 1", MARKUP]
    assert (await get_json(client, "/api/jobs/backup/source?file=x.lua"))[0] == 404
    assert (await get_json(client, "/api/jobs/nothing"))[0] == 404


async def test_a_key_of_some_jobs_sees_no_others_beside_them(doors: Doors) -> None:
    assert [each["job"] for each in (await doors.json("/api/jobs/prices", "limited"))["follows"]] == ["prices"]
    overview = await doors.json("/api/overview", "limited")
    assert [row["job"]["id"] for row in overview["rows"]] == ["prices"]
    assert overview["verdict"]["jobs"] == 1


async def test_charts_and_the_day_ahead_are_shown(client: Client) -> None:
    status, chart = await get_json(client, "/api/jobs/prices/chart?span=7d")
    assert (status, chart["job"], chart["span"]) == (200, "prices", "7d")
    assert (await get_json(client, "/api/jobs/prices/chart?span=1y"))[0] == 400
    assert (await get_json(client, "/api/next/day"))[0] == 200
