"""Workers are killed at random while runs go on: the daemon lives, and every due time has its record."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.database_reader import DatabaseReader
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PERIOD_MS = 100
JOBS = [f"small{number}" for number in range(12)]
SETTINGS = f'every = "{PERIOD_MS}ms"\nmisfire = "all"\noverlap = "queue"'
SCRIPT = 'local n = tonumber(store_get("n") or "0") + 1 store_set("n", tostring(n)) sleep(30)\n'


def has_succeeded_after(project: Project, name: str, moment: int) -> bool:
    return any(run.id > moment and run.outcome is Outcome.SUCCESS for run in project.runs(name))


def test_killed_workers_cost_runs_and_no_due_times(tmp_path: Path, torture: bool) -> None:
    project, reader = Project(tmp_path), DatabaseReader(tmp_path)
    dice = random.Random(11)
    kills = 100 if torture else 5
    for name in JOBS:
        project.job(name, SCRIPT, SETTINGS)
    with project.daemon() as daemon:
        client = project.daemon_client()
        for _ in range(kills):
            workers = eventually(lambda: [worker.pid for worker in client.health().workers if worker.pid])
            try:
                os.kill(dice.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it went by itself between the question and the kill
            time.sleep(dice.uniform(0.05, 0.4))
        assert daemon.process.poll() is None
        eventually(lambda: client.health().worker_deaths >= kills * 0.8, "that the deaths are noticed")
        moment = max(run.id for run in client.runs(None, limit=1))
        for name in JOBS:
            eventually(partial(has_succeeded_after, project, name, moment), f"a run of {name} after the last kill")
        assert daemon.stop() == 0
    for name in JOBS:
        assert reader.gaps(name, PERIOD_MS) == [], name
        assert reader.outcomes(name).keys() <= {"success", "lost", "stopped", "missed", "skipped"}, reader.outcomes(
            name
        )
    assert sum(reader.outcomes(name)["lost"] for name in JOBS) > 0
