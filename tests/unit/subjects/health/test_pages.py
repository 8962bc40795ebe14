"""The daemon's health: the probe, the whole picture and a scrape over HTTP, and its page."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from spyweb.lua.session import PoolStats, WorkerInfo
from spyweb.model import JobId
from spyweb.stalls import LoopStats
from spyweb.subjects.health.pages import tiles_of
from spyweb.subjects.health.views import Health, is_missing, view_health
from spyweb.web.app import tcp_app
from spyweb.web.pages.words import NBSP, pieces_of
from tests.fakes.client import Client, client_of, get_json
from tests.fakes.daemon_service import MARKUP, FakeDaemonService, make_stats, make_vitals
from tests.fakes.dashboard import make_dashboard_service, page_of


def make_health(**changes: object) -> Health:
    return view_health(make_vitals(**changes), ())


def test_figures_that_ask_for_somebody_are_marked() -> None:
    quiet = {tile.words: tile for tile in tiles_of(make_health(), (50, 100))}
    assert all(tile.tone == "" for tile in quiet.values())
    assert quiet["behind the schedule"].figure == f"3{NBSP}ms"
    assert quiet["event loop stalls"].figure == "0"

    stalls = LoopStats(stalls=2, worst_ms=1_500)
    health = make_health(
        scheduler_lag_ms=6_000, store=make_stats(stalled_s=3.0, pending=9), loop=stalls, storage_errors=4
    )
    loud = {tile.words: tile for tile in tiles_of(health, (4, 100))}
    assert loud["behind the schedule"].tone == "bad"
    assert loud["writes pending"].tone == "bad"
    assert [tile.tone for tile in loud.values() if tile.used is not None] == ["warn"]
    assert loud[f"event loop stalls, at most 1.5{NBSP}s"].figure == "2"
    assert loud["store calls of scripts failed"].figure == "4"


def test_a_store_without_a_disk_has_no_gauge() -> None:
    assert all(tile.used is None for tile in tiles_of(make_health(), None))
    assert {tile.used for tile in tiles_of(make_health(), (0, 0))} == {None, 0.0}


def test_protections_that_are_missing_are_told_apart() -> None:
    rights = ("no files, by Landlock 7", "no_new_privs: not in force (1)")
    assert [is_missing(right) for right in rights] == [False, True]


def test_commands_are_told_apart_from_words() -> None:
    assert pieces_of("see `spyweb outbox`: all") == [(False, "see "), (True, "spyweb outbox"), (False, ": all")]
    assert pieces_of("`a` `") == [(True, "a"), (False, " ")]
    assert pieces_of("") == []


def make_pool(count: int = 1) -> PoolStats:
    worker = WorkerInfo(pid=11, job=None, vms=2, runs=1, used_bytes=70_000, retiring=False)
    return PoolStats(
        rights=["no files", f"no_new_privs: not in force ({MARKUP})"],
        workers=[replace(worker, pid=n, job=JobId(MARKUP) if n == 1 else None) for n in range(count)],
        quarantined={JobId(MARKUP): MARKUP},
        deaths=2,
    )


async def test_it_says_whether_jobs_run_on_time_and_what_is_in_force() -> None:
    service = make_dashboard_service()
    service.measured = make_vitals(pool=replace(make_pool(), quarantined={}))
    page = await page_of("/health", service)
    assert "Jobs run on time" in page
    assert "1,000 of each job" in page
    assert "127.0.0.1:7979" in page
    assert ">starting<" in page  # the pid of the first is 0


async def test_each_problem_says_what_to_do() -> None:
    service = make_dashboard_service()
    service.measured = make_vitals(store=make_stats(failed=f"data/spyweb.db: {MARKUP}"), dead_messages=2)
    page = await page_of("/health", service)
    assert "Free the disk or repair the database" in page
    assert 'href="/outbox">The outbox</a>' in page
    assert 'class="mark bad"' in page
    assert "<title" in page
    assert "2 problems · spyweb" in page


async def test_the_probe_says_ok_without_names_or_paths() -> None:
    async with client_of(tcp_app(FakeDaemonService(api_key="secret"))) as client, client.get("/healthz") as answer:
        text = await answer.text()
    assert json.loads(text)["status"] == "ok"
    assert json.loads(text)["jobs"]["broken"] == 1
    assert not any(word in text for word in ("prices", "backup", "spyweb.db", "pid"))


async def test_the_probe_fails_when_scheduler_or_writer_stand_still() -> None:
    vitals = make_vitals(scheduler_lag_ms=61_000, store=make_stats(stalled_s=11.0))
    async with client_of(tcp_app(FakeDaemonService(vitals=vitals))) as client:
        status, health = await get_json(client, "/healthz")
    problems = ["the scheduler is 1m1s behind", "a write has waited 11s for the disk"]
    assert (status, health["status"], health["problems"]) == (503, "failing", problems)


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
