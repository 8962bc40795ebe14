"""The probe, the whole picture, and a scrape."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from spyweb.subjects.health.views import Health
from spyweb.web.app import tcp_app
from tests.fakes.client import Client, client_of, get_json
from tests.fakes.daemon_service import FakeDaemonService, make_stats, make_vitals


async def test_the_probe_says_ok_without_names_or_paths() -> None:
    async with client_of(tcp_app(FakeDaemonService(api_key="secret"))) as client, client.get("/healthz") as answer:
        text = await answer.text()
    assert json.loads(text)["status"] == "ok"
    assert json.loads(text)["jobs"]["broken"] == 1
    assert not any(word in text for word in ("prices", "backup", "spyweb.db", "pid"))


@pytest.mark.parametrize(
    ("vitals", "problem"),
    [
        (make_vitals(scheduler_lag_ms=61_000), "the scheduler is 1m1s behind"),
        (make_vitals(store=make_stats(stalled_s=11.0)), "a write has waited 11s for the disk"),
    ],
)
async def test_the_probe_fails_when_scheduler_or_writer_stand_still(vitals: object, problem: str) -> None:
    service = FakeDaemonService(vitals=vitals)  # type: ignore[arg-type]
    async with client_of(tcp_app(service)) as client:
        status, health = await get_json(client, "/healthz")
    assert (status, health["status"], health["problems"]) == (503, "failing", [problem])


async def test_the_socket_gives_the_whole_picture_of_health(client: Client) -> None:
    _, found = await get_json(client, "/api/health")
    health = msgspec.convert(found, Health)
    assert (health.workers[0].pid, health.quarantined) == (11, {"backup": "it crashed"})


async def test_a_daemon_that_is_ready_says_so_to_anybody() -> None:
    async with client_of(tcp_app(FakeDaemonService(api_key="secret"))) as client:
        assert await get_json(client, "/readyz") == (200, {"ready": True, "reasons": []})


async def test_a_daemon_that_is_not_ready_answers_503_with_the_reason(
    client: Client, service: FakeDaemonService
) -> None:
    service.readiness.stage = "the daemon is stopping"
    assert await get_json(client, "/readyz") == (503, {"ready": False, "reasons": ["the daemon is stopping"]})


async def test_a_scrape_is_plain_text_that_prometheus_parses(client: Client) -> None:
    async with client.get("/metrics") as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        read = text_string_to_metric_families(await answer.text())
        families = {family.name for family in read}
    assert {"spyweb_build_info", "spyweb_jobs", "spyweb_run_duration_seconds"} <= families


async def test_a_compressed_answer_says_so_and_an_uncompressed_one_does_not(client: Client) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
    async with client.get("/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "spyweb_build_info" in await answer.text()


def test_a_daemon_that_nobody_scrapes_has_not_imported_the_client() -> None:
    code = "import sys, spyweb.daemon.serve; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
