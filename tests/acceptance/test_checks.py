"""Checks of all kinds against servers that fail, each in a way of its own, over virtual weeks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from spyweb.model import JobId, Outcome
from spyweb.ops.network.certificate import machine_trust
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.subjects.status.service import StatusService
from tests.fakes.checked import CASES, SECRET, Case, open_checked
from tests.fakes.weeks import Weeks, open_weeks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PERIOD_MS, DAYS = 6 * HOUR_MS, 14  # as in checked.py
RUNS = DAYS * DAY_MS // PERIOD_MS
IN_OUTAGES = 12  # a run in which many servers fail


def outage(case: Case) -> range:
    """Return the runs in which a server fails: slow ones together, each other from a moment of its own on."""
    number = CASES.index(case)
    first, count = (IN_OUTAGES, 2) if case.is_slow else (4 + number % 17, 1 + number % 9)
    return range(first, first + count)


def failures(case: Case) -> range:
    return outage(case) if case.says else range(0)


def in_maintenance(case: Case) -> range:
    """Return the runs in a maintenance window, whose results hold as long as it lasts."""
    return range(3, RUNS, 4) if case.kind == "command" else range(0)


@asynccontextmanager
async def begun(root: Path, patch: pytest.MonkeyPatch, *stops: int) -> AsyncIterator[tuple[Weeks, int]]:
    """Let the checks run so many times, with a restart at each stop before the last; yield when the first run was."""
    begins_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS  # certificates are of today
    async with open_checked(root, *CASES) as servers:
        patch.setenv("SSL_CERT_FILE", str(servers.trusted))
        machine_trust.cache_clear()

        def before(at_ms: int) -> None:
            run = (at_ms - begins_ms) // PERIOD_MS
            for case in CASES:
                servers.set_fault(case, is_broken=run in outage(case))

        moments = [begins_ms - MINUTE_MS, *(begins_ms + stop * PERIOD_MS - 1 for stop in stops)]
        try:
            for from_ms, until_ms in pairwise(moments):
                async with open_weeks(root, from_ms) as weeks:
                    assert not weeks.daemon.reloader.broken
                    await weeks.pass_until(until_ms, before)
                    if until_ms == moments[-1]:
                        yield weeks, begins_ms
        finally:
            machine_trust.cache_clear()


async def test_each_fails_while_its_server_does_says_why_and_counts_as_down_for_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(tmp_path, monkeypatch, IN_OUTAGES, RUNS) as (weeks, begins_ms):
        store = weeks.daemon.runtime.store
        uptimes = await store.uptime.read([JobId(case.name) for case in CASES], weeks.clock.now_ms())
        wrong = list[tuple[str, str]]()
        for case in CASES:
            runs, failed = await weeks.runs(case.name), failures(case)
            assert len(runs) == RUNS
            assert [n for n, run in enumerate(runs) if run.outcome is not Outcome.SUCCESS] == [*failed], case
            wrong += [(case.name, runs[n].reason) for n in failed if case.says not in runs[n].reason]
            span, excused = uptimes[JobId(case.name)].spans["30d"], set(in_maintenance(case))
            down_ms, excused_ms = len({*failed} - excused) * PERIOD_MS, len(excused) * PERIOD_MS
            assert abs(span.excused_ms - excused_ms) <= 1, case  # the last one is not over
            assert (span.down_ms, span.up_ms + span.excused_ms) == (down_ms, RUNS * PERIOD_MS - down_ms - 1), case
            incidents = await store.incidents.list(subject=f"job:{case.name}")
            spans = [(each.opened_ms, each.closed_ms) for each in incidents]
            assert spans == [(begins_ms + at * PERIOD_MS, begins_ms + failed.stop * PERIOD_MS) for at in failed[:1]]
    assert wrong == []


async def test_pages_and_metrics_show_which_are_down_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    down = {case.name for case in CASES if IN_OUTAGES in failures(case)}
    async with (
        begun(tmp_path, monkeypatch, IN_OUTAGES + 1) as (weeks, _),
        aiohttp.ClientSession(weeks.dashboard) as browser,
    ):

        async def page(path: str) -> str:
            async with browser.get(path, headers={"Accept": "text/html"}) as answer:
                assert answer.status == 200
                return await answer.text()

        metrics, overview = await page("/metrics"), await page("/")
        assert set(re.findall(r'check_up\{check="\w+",job="(\w+)"\} 0', metrics)) == down
        assert len(re.findall(r"check_up\{.*\} 1", metrics)) == len(CASES) - len(down)
        slow = next(case.name for case in CASES if case.fault == "slow")
        assert slow in down
        assert not re.search(rf'check_latency_seconds{{check="http",job="{slow}"}}', metrics)
        assert set(re.findall(r'<li id="j-(\w+)" data-state="failing"', overview)) == down
        page_of_slow = await page(f"/jobs/{slow}")
        assert f"<bdi>{slow}</bdi>: down" in page_of_slow
        assert re.search(r'aria-label="Latencies from .*: 3 succeeded, 1 failed"', page_of_slow)
        certificate = next(case.name for case in CASES if case.kind == "tls" and case.name not in down)
        assert "The certificate is valid for another" in await page(f"/jobs/{certificate}")


async def test_the_status_page_tells_anybody_how_each_is_and_nothing_else_and_its_export_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(tmp_path, monkeypatch, IN_OUTAGES + 1) as (weeks, _), aiohttp.ClientSession(weeks.url) as browser:
        service = weeks.daemon.services[StatusService]
        await service.export()
        files = {file.name: file.read_bytes() for file in (tmp_path / "exported").iterdir()}
        for name, content in files.items():
            async with browser.get(f"/status/{name}", headers={"X-Forwarded-For": "192.0.2.1"}) as answer:
                assert (answer.status, await answer.read() == content) == (200, True), name
    told = json.loads(files["status.json"])
    jobs = {job["name"]: job for group in told["groups"] for job in group["jobs"]}
    assert jobs.keys() == {case.name for case in CASES}
    for case in CASES:
        job, failed = jobs[case.name], failures(case)
        known = {*range(IN_OUTAGES + 1)} - {*in_maintenance(case)}
        assert (job["state"] == "down") is (IN_OUTAGES in failed)
        assert job["uptime"]["30d"] == pytest.approx(1 - len(known & {*failed}) / len(known), abs=2e-5)
    assert len(told["incidents"]) == sum(len(failures(case)) > 0 and failures(case)[0] <= IN_OUTAGES for case in CASES)
    everything = b"".join(files.values()).decode()
    says = [case.says for case in CASES if case.says]
    assert [text for text in (SECRET, "127.0.0.1", str(tmp_path), *says) if text in everything] == []
