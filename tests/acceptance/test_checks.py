"""Checks of all kinds against servers that fail, each in a way of its own, over virtual weeks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from spyweb.model import JobId, Outcome, Run
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.model.incidents import Incident
from spyweb.store.model.uptime import UptimeSpan
from spyweb.subjects.status.service import StatusService
from tests.fakes.checked import CASES, SECRET, Case, open_checked
from tests.fakes.namespace import APART, MADE, NO_NAMESPACE, RANGE, can_be_apart
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


def in_maintenance(case: Case) -> set[int]:
    """Return the runs in a maintenance window, whose results hold as long as it lasts."""
    return {*range(3, RUNS, 4)} if case.kind == "command" else set()


class Life(NamedTuple):
    """What checks have done over so many runs, with a restart, and what was shown before that, in the outage."""

    root: Path
    begins_ms: int  # of the first run
    lived: Mapping[str, tuple[Sequence[Run], UptimeSpan, Sequence[Incident]]]  # by check
    pages: Mapping[str, bytes]  # by address
    exported: Mapping[str, bytes]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    root = tmp_path_factory.mktemp("checks")
    begins_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS  # certificates are of today
    restart_ms, end_ms = (begins_ms + stop * PERIOD_MS - 1 for stop in (IN_OUTAGES + 1, RUNS))
    async with open_checked(root, *CASES) as servers:

        def before(at_ms: int) -> None:
            run = (at_ms - begins_ms) // PERIOD_MS
            for case in CASES:
                servers.set_fault(case, is_broken=run in outage(case))

        async with open_weeks(root, begins_ms - MINUTE_MS) as weeks:
            assert not weeks.daemon.reloader.broken
            await weeks.pass_until(restart_ms, before)
            await weeks.daemon.services[StatusService].export()
            exported = {file.name: file.read_bytes() for file in (root / "exported").iterdir()}
            pages = await shown(weeks, exported)
        async with open_weeks(root, restart_ms) as weeks:
            await weeks.pass_until(end_ms, before)
            store, lived = weeks.daemon.runtime.store, {}
            uptimes = await store.uptime.read([JobId(case.name) for case in CASES], end_ms, ["30d"])
            for name, uptime in uptimes.items():
                incidents = await store.incidents.list(subjects=[f"job:{name}"])
                lived[str(name)] = (await weeks.runs(name), uptime.spans["30d"], incidents)
    return Life(root, begins_ms, lived, pages, exported)


async def shown(weeks: Weeks, files: Iterable[str]) -> dict[str, bytes]:
    """Return pages of the dashboard, and what a stranger gets of the status page."""
    of_jobs = [f"/jobs/{case.name}" for case in CASES if case.fault == "slow" or case.kind == "tls"]
    asked = {f"{weeks.dashboard}{path}": {"Accept": "text/html"} for path in ("/metrics", "/", *of_jobs)}
    asked |= {f"{weeks.url}/status/{name}": {"X-Forwarded-For": "192.0.2.1"} for name in files}
    pages = {}
    async with aiohttp.ClientSession(raise_for_status=True) as browser:
        for url, headers in asked.items():
            async with browser.get(url, headers=headers) as answer:
                pages[answer.url.path] = await answer.read()
    return pages


def test_each_fails_while_its_server_does_says_why_and_counts_as_down_for_so_long(life: Life) -> None:
    for case in CASES:
        (runs, span, incidents), failed, excused = life.lived[case.name], failures(case), in_maintenance(case)
        assert len(runs) == RUNS
        assert [n for n, run in enumerate(runs) if run.outcome is not Outcome.SUCCESS] == [*failed], case
        assert [runs[n].reason for n in failed if case.says not in runs[n].reason] == [], case
        down_ms, excused_ms = len({*failed} - excused) * PERIOD_MS, len(excused) * PERIOD_MS
        assert abs(span.excused_ms - excused_ms) <= 1, case  # the last one is not over
        assert (span.down_ms, span.up_ms + span.excused_ms) == (down_ms, RUNS * PERIOD_MS - down_ms - 1), case
        spans = [(each.opened_ms - life.begins_ms, (each.closed_ms or 0) - life.begins_ms) for each in incidents]
        assert spans == [(at * PERIOD_MS, failed.stop * PERIOD_MS) for at in failed[:1]]


@pytest.mark.skipif(not can_be_apart(), reason=NO_NAMESPACE)
def test_a_host_that_answers_no_ping_fails_its_check(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/away.toml").write_text('check = "ping"\nhost = "198.51.100.1"\ncount = 1\ntimeout = 1\n')
    run = f'{MADE}; echo 0 0 > {RANGE}; exec "$0" -m spyweb -C "$1" run away'
    said = subprocess.run([*APART, run, sys.executable, tmp_path], capture_output=True, text=True, check=False)
    assert (said.returncode, "loss < 1 does not hold: loss is 1" in said.stdout) == (1, True), said


def test_pages_and_metrics_show_which_are_down_now(life: Life) -> None:
    down = {case.name for case in CASES if IN_OUTAGES in failures(case)}
    metrics, overview = life.pages["/metrics"].decode(), life.pages["/"].decode()
    assert set(re.findall(r'check_up\{check="\w+",job="(\w+)"\} 0', metrics)) == down
    assert len(re.findall(r"check_up\{.*\} 1", metrics)) == len(CASES) - len(down)
    slow = next(case.name for case in CASES if case.fault == "slow")
    assert slow in down
    assert not re.search(rf'check_latency_seconds{{check="http",job="{slow}"}}', metrics)
    assert set(re.findall(r'<li id="j-(\w+)" data-state="failing"', overview)) == down
    page_of_slow = life.pages[f"/jobs/{slow}"].decode()
    assert f"<bdi>{slow}</bdi>: down" in page_of_slow
    assert re.search(r'aria-label="Latencies from .*: 3 succeeded, 1 failed"', page_of_slow)
    certificate = next(case.name for case in CASES if case.kind == "tls" and case.name not in down)
    assert "The certificate is valid for another" in life.pages[f"/jobs/{certificate}"].decode()


def test_the_status_page_tells_anybody_how_each_is_and_nothing_else_and_its_export_is_the_same(life: Life) -> None:
    assert {f"/status/{name}": content for name, content in life.exported.items()}.items() <= life.pages.items()
    told = json.loads(life.exported["status.json"])
    jobs = {job["name"]: job for group in told["groups"] for job in group["jobs"]}
    assert jobs.keys() == {case.name for case in CASES}
    for case in CASES:
        job, failed = jobs[case.name], failures(case)
        known = {*range(IN_OUTAGES + 1)} - in_maintenance(case)
        assert (job["state"] == "down") is (IN_OUTAGES in failed)
        assert job["uptime"]["30d"] == pytest.approx(1 - len(known & {*failed}) / len(known), abs=2e-5)
    assert len(told["incidents"]) == sum(len(failures(case)) > 0 and failures(case)[0] <= IN_OUTAGES for case in CASES)
    everything = b"".join(life.exported.values()).decode()
    says = [case.says for case in CASES if case.says]
    assert [text for text in (SECRET, "127.0.0.1", str(life.root), *says) if text in everything] == []
