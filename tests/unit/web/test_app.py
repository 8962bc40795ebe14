"""What each door serves, and in what shape.  The app is called in memory: no socket is opened but loopback's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from spyweb.errors import ConfigError, NoAccess, Problem, ScriptError, StoreClosed
from spyweb.jobs.health import Health
from spyweb.jobs.view import JobView, NextRun, event_from_json
from spyweb.model import Run
from spyweb.web.app import socket_app, tcp_app
from tests.fakes.desk import FakeDesk, a_watched_run, make_stats, make_vitals, refused, three_jobs, three_runs

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def client_of(app: web.Application) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app)) as client:
        yield client


async def get_json(client: Client, path: str, **headers: str) -> tuple[int, object]:
    async with client.get(path, headers=headers) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


async def post_json(client: Client, path: str) -> tuple[int, object]:
    async with client.post(path) as answer:
        return answer.status, await answer.json()


# -- TCP ------------------------------------------------------------------------------------------------------


async def test_tcp_serves_the_probe_and_the_jobs_and_nothing_else() -> None:
    async with client_of(tcp_app(FakeDesk(), None)) as client:
        assert (await get_json(client, "/healthz"))[0] == 200
        assert (await get_json(client, "/api/jobs"))[0] == 200
        for path in ("/", "/api/runs", "/api/next", "/api/health", "/api/jobs/prices/logs"):
            assert await get_json(client, path) == (404, {"error": "Not Found"})
        assert (await post_json(client, "/api/jobs/prices/trigger"))[0] == 404


async def test_jobs_are_an_array_of_objects_with_id_name_and_enabled() -> None:
    async with client_of(tcp_app(FakeDesk(), None)) as client:
        _, jobs = await get_json(client, "/api/jobs")
    assert isinstance(jobs, list)
    assert [(job["id"], job["name"], job["enabled"]) for job in jobs] == [
        ("backup", "Backup", True),
        ("prices", "prices", True),
        ("typo", "typo", False),
    ]
    assert msgspec.convert(jobs, list[JobView]) == three_jobs()


async def test_a_wrong_method_says_which_are_right() -> None:
    async with client_of(tcp_app(FakeDesk(), None)) as client, client.post("/api/jobs") as answer:
        assert answer.status == 405
        assert await answer.json() == {"error": "Method Not Allowed"}
        assert answer.headers["Allow"] == "GET,HEAD"


async def test_the_probe_says_ok_without_names_or_paths() -> None:
    async with client_of(tcp_app(FakeDesk(), "secret")) as client, client.get("/healthz") as answer:
        text = await answer.text()
    assert json.loads(text)["status"] == "ok"
    assert json.loads(text)["jobs"]["broken"] == 1
    assert not any(word in text for word in ("prices", "backup", "spyweb.db", "pid"))


@pytest.mark.parametrize(
    ("vitals", "problem"),
    [
        (make_vitals(scheduler_lag_ms=61_000), "the scheduler is 1m1s behind"),
        (make_vitals(store=make_stats(oldest_pending_s=11.0)), "a write has waited 11s for the disk"),
    ],
)
async def test_the_probe_fails_when_scheduler_or_writer_stand_still(vitals: object, problem: str) -> None:
    desk = FakeDesk(vitals=vitals)  # type: ignore[arg-type]
    async with client_of(tcp_app(desk, None)) as client:
        status, health = await get_json(client, "/healthz")
    assert isinstance(health, dict)
    assert (status, health["status"], health["problems"]) == (503, "failing", [problem])


# -- the socket -----------------------------------------------------------------------------------------------


async def test_the_socket_gives_the_whole_picture_of_health() -> None:
    async with client_of(socket_app(FakeDesk())) as client:
        _, found = await get_json(client, "/api/health")
    health = msgspec.convert(found, Health)
    assert (health.workers[0].pid, health.quarantined) == (11, {"backup": "it crashed"})


async def test_runs_are_paged_and_chosen_by_job() -> None:
    async with client_of(socket_app(FakeDesk())) as client:
        _, every = await get_json(client, "/api/runs")
        _, page = await get_json(client, "/api/runs?limit=1&before=3")
        _, of_backup = await get_json(client, "/api/runs?job=Backup")
    assert msgspec.convert(every, list[Run]) == three_runs()
    assert [run["id"] for run in page] == [2]  # type: ignore[attr-defined]
    assert [run["job"] for run in of_backup] == ["backup"]  # type: ignore[attr-defined]


async def test_next_runs_show_local_time_and_zone() -> None:
    async with client_of(socket_app(FakeDesk())) as client:
        _, found = await get_json(client, "/api/next?job=prices&count=2")
    due = msgspec.convert(found, list[NextRun])
    assert [run.local for run in due] == ["Thu 2026-01-01 01:00:30 CET", "Thu 2026-01-01 01:01:00 CET"]


@pytest.mark.parametrize("query", ["count=0", "count=x", "count=1e3", "count=10001", "count=" + "9" * 5000])
async def test_a_number_out_of_range_is_a_bad_request(query: str) -> None:
    async with client_of(socket_app(FakeDesk())) as client:
        status, answer = await get_json(client, f"/api/next?{query}")
    assert (status, answer) == (400, {"error": "count: expected a whole number from 1 to 10000"})


async def test_trigger_pause_and_resume_reach_the_desk() -> None:
    desk = FakeDesk()
    async with client_of(socket_app(desk)) as client:
        assert await post_json(client, "/api/jobs/prices/trigger") == (200, {"run": 9})
        assert await post_json(client, "/api/jobs/Backup/pause") == (200, {"job": "backup", "paused": True})
        assert await post_json(client, "/api/jobs/backup/resume") == (200, {"job": "backup", "paused": False})
    assert desk.story == ["trigger prices", "pause backup", "resume backup"]


async def test_an_unknown_job_is_named_with_its_nearest() -> None:
    async with client_of(socket_app(FakeDesk())) as client:
        status, answer = await post_json(client, "/api/jobs/price/trigger")
    assert (status, answer) == (404, {"error": "no job is named 'price': did you mean 'prices'?"})


async def test_the_log_of_a_job_that_never_logged_is_empty(tmp_path: Path) -> None:
    desk = FakeDesk(root=tmp_path)
    async with client_of(socket_app(desk)) as client:
        assert await get_json(client, "/api/jobs/prices/logs") == (200, [])
        desk.log_file(three_jobs()[1].id).parent.mkdir(parents=True)
        desk.log_file(three_jobs()[1].id).write_text("one\ntwo\nthree\n")
        assert await get_json(client, "/api/jobs/prices/logs?lines=2") == (200, ["two", "three"])


# -- a watched run --------------------------------------------------------------------------------------------


async def test_a_watched_run_is_streamed_line_by_line() -> None:
    desk = FakeDesk()
    async with client_of(socket_app(desk)) as client, client.post("/api/jobs/prices/run") as answer:
        lines = [line async for line in answer.content]
    assert [event_from_json(line) for line in lines] == a_watched_run()
    assert desk.story == ["run prices", "closed"]


async def test_a_run_refused_before_its_first_event_is_a_plain_error() -> None:
    async with client_of(socket_app(FakeDesk(refusal=refused()))) as client:
        answer = await post_json(client, "/api/jobs/prices/run")
    assert answer == (409, {"error": "prices is running", "code": "refused"})


async def test_an_error_in_mid_stream_is_its_last_line() -> None:
    desk = FakeDesk(late_refusal=StoreClosed())
    async with client_of(socket_app(desk)) as client, client.post("/api/jobs/prices/run") as answer:
        lines = [line async for line in answer.content]
    assert json.loads(lines[-1]) == {"event": "error", "error": "The store is closed.", "code": "store"}
    assert desk.story[-1] == "closed"


# -- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConfigError([Problem("config.toml", 3, "port", "expected a whole number")]), 422, "config"),
        (ScriptError("jobs/x.lua", 1, "unexpected symbol"), 422, "script"),
        (StoreClosed(), 503, "store"),
        (NoAccess("data belongs to root"), 403, "no_access"),
        (refused(), 409, "refused"),
    ],
)
@pytest.mark.parametrize("make_app", [socket_app, lambda desk: tcp_app(desk, None)])
async def test_spywebs_errors_have_a_status_and_a_code(
    error: Exception, status: int, code: str, make_app: Callable[[FakeDesk], web.Application]
) -> None:
    async with client_of(make_app(FakeDesk(trouble=error))) as client:
        assert await get_json(client, "/api/jobs") == (status, {"error": str(error), "code": code})


async def test_a_bug_is_told_to_nobody_but_the_log() -> None:
    async with client_of(socket_app(FakeDesk(trouble=KeyError("the secret")))) as client:
        assert await get_json(client, "/api/jobs") == (500, {"error": "Internal Server Error"})
