"""A thousand jobs at once; and, at length, twenty thousand runs that leave neither memory nor descriptors behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.processes import descriptors, family, private_bytes
from tests.fakes.database_reader import DatabaseReader
from tests.fakes.project import Daemon, Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = 'local n = tonumber(store_get("n") or "0") + 1 store_set("n", tostring(n))\n'
MB = 1 << 20


def test_many_jobs_all_run_and_no_due_time_is_without_record(tmp_path: Path, torture: bool) -> None:
    project, reader = Project(tmp_path), DatabaseReader(tmp_path)
    names = [f"job{number}" for number in range(1000 if torture else 100)]
    period_ms = 1000
    for name in names:
        project.job(name, SCRIPT, f'every = "{period_ms}ms"')
    with project.daemon() as daemon:
        client = project.daemon_client()
        eventually(lambda: all(view.last for view in client.jobs()), "a run of each", patience=60)
        time.sleep(60 if torture else 0)
        assert daemon.stop() == 0
    assert {outcome for name in names for outcome in reader.outcomes(name)} <= {"success", "skipped", "missed"}
    assert [gap for name in names for gap in reader.gaps(name, period_ms)] == []


def test_twenty_thousand_runs_leave_neither_memory_nor_descriptors_behind(tmp_path: Path, torture: bool) -> None:
    if not torture:
        pytest.skip("takes a minute: --torture")
    project = Project(tmp_path)
    (tmp_path / "config.toml").write_text("[runs]\nkeep = 10\n")
    for number in range(50):
        project.job(f"job{number}", SCRIPT, 'every = "100ms"')
    with project.daemon() as daemon:
        client = project.daemon_client()
        run_until(project, 3000)
        before = footprint(daemon)
        run_until(project, 3000 + 20_000)
        after = footprint(daemon)
        assert client.health().worker_deaths == 0
    assert after[1] <= before[1] + 4, f"descriptors: {before[1]} → {after[1]}"
    assert after[0] <= before[0] + 8 * MB, f"bytes: {before[0]} → {after[0]}"


def run_until(project: Project, run: int) -> None:
    def reached() -> bool:
        newest = project.daemon_client().runs(None, limit=1)
        return bool(newest) and newest[0].id >= run

    eventually(reached, f"run {run}", patience=200)


def footprint(daemon: Daemon) -> tuple[int, int]:
    """Bytes and descriptors of the daemon and all it started."""
    pids = family(daemon.pid)
    return sum(map(private_bytes, pids)), sum(map(descriptors, pids))
