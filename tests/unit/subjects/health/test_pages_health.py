"""The page of health."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.lua.session import PoolStats, WorkerInfo
from spyweb.model import JobId
from tests.fakes.daemon_service import make_stats, make_vitals
from tests.fakes.dashboard import MARKUP, make_dashboard_service, page_of


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
    assert "all is well</h1>" in page or "Jobs run on time" in page
    assert "1,000 of each job" in page
    assert "127.0.0.1:7979" in page
    assert "is being started" in page  # the pid of the first is 0


async def test_each_problem_says_what_to_do() -> None:
    service = make_dashboard_service()
    service.measured = make_vitals(store=make_stats(failed=f"data/spyweb.db: {MARKUP}"), dead_messages=2)
    page = await page_of("/health", service)
    assert "Free the disk or repair the database" in page
    assert 'href="/outbox">The outbox</a>' in page
    assert 'class="mark bad"' in page
    assert "<title" in page
    assert "2 problems · spyweb" in page
