"""The jobs over HTTP."""

from __future__ import annotations

from pathlib import Path

import msgspec

from spyweb.views.jobs import JobView, NextRun
from spyweb.web.app import socket_app, tcp_app
from tests.fakes.client import client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService, three_jobs


async def test_jobs_are_an_array_of_objects_with_id_name_and_enabled() -> None:
    async with client_of(tcp_app(FakeDaemonService())) as client:
        _, jobs = await get_json(client, "/api/jobs")
    assert isinstance(jobs, list)
    assert [(job["id"], job["name"], job["enabled"]) for job in jobs] == [
        ("backup", "Backup", True),
        ("prices", "prices", True),
        ("typo", "typo", False),
    ]
    assert msgspec.convert(jobs, list[JobView]) == three_jobs()


async def test_next_runs_show_local_time_and_zone() -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        _, found = await get_json(client, "/api/next?job=prices&count=2")
    due = msgspec.convert(found, list[NextRun])
    assert [run.local for run in due] == ["Thu 2026-01-01 01:00:30 CET", "Thu 2026-01-01 01:01:00 CET"]


async def test_trigger_pause_and_resume_reach_the_service() -> None:
    service = FakeDaemonService()
    async with client_of(socket_app(service)) as client:
        assert await post_json(client, "/api/jobs/prices/trigger") == (200, {"run": 9})
        assert await post_json(client, "/api/jobs/Backup/pause") == (200, {"job": "backup", "paused": True})
        assert await post_json(client, "/api/jobs/backup/resume") == (200, {"job": "backup", "paused": False})
    assert service.story == ["trigger prices", "pause backup", "resume backup"]


async def test_the_log_of_a_job_that_never_logged_is_empty(tmp_path: Path) -> None:
    service = FakeDaemonService(root=tmp_path)
    async with client_of(socket_app(service)) as client:
        assert await get_json(client, "/api/jobs/prices/logs") == (200, [])
        service.log_file(three_jobs()[1].id).parent.mkdir(parents=True)
        service.log_file(three_jobs()[1].id).write_text("one\ntwo\nthree\n")
        assert await get_json(client, "/api/jobs/prices/logs?lines=2") == (200, ["two", "three"])
