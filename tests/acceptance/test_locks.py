"""A lock and the deaths of whoever holds it, in the real daemon."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from benchmarks.processes import family
from spyweb.model import JobId, Outcome
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

# What was lost with its worker starts again: the second time it leaves the door alone.
HOLD = (
    'if store_get("held") then return end store_set("held", "yes") assert(state.lock("door", 1)) log("mine") sleep(%d)'
)
TAKE = 'return state.lock("door", 15)'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "jobs").mkdir()
    project = Project(tmp_path)
    project.job("holder", HOLD % 60_000)
    project.job("taker", TAKE)
    return project


def hold(project: Project) -> None:
    project.spyweb("trigger", "holder")
    log = project.root / "jobs" / "holder" / "hooks.log"
    eventually(lambda: log.exists() and "mine" in log.read_text(), "the lock to be held")


@pytest.mark.parametrize("killed", ["worker", "daemon"])
def test_a_lock_of_a_function_of_parallel_is_free_again_after_a_kill(project: Project, killed: str) -> None:
    project.job("holder", f"parallel(function() {HOLD % 60_000} end, function() sleep(60000) end)")
    with project.daemon("--workers", "1") as daemon:
        hold(project)
        if killed == "daemon":
            daemon.kill()
        else:
            os.kill(family(daemon.pid)[-1], signal.SIGKILL)
            eventually(lambda: project.runs("holder")[-1].outcome, "the run that held it to be recorded as lost")
            assert project.result("taker") is True
    if killed == "daemon":
        with project.daemon():
            assert project.result("taker") is True


def test_an_edit_lets_the_run_that_holds_a_lock_go_on_and_a_deletion_does_too(project: Project) -> None:
    project.job("holder", HOLD % 1_500)
    with project.daemon() as daemon:
        hold(project)
        project.job("holder", 'log("another version")')
        eventually(lambda: project.shown("holder").generation == 2, "the edit to be seen")
        (project.root / "jobs" / "holder.lua").unlink()
        eventually(lambda: "job gone" in daemon.said(), "the deletion to be seen")
        assert project.result("taker") is True
        ended = {run.job: run.outcome for run in project.daemon_client().runs(None, limit=10)}
        assert ended[JobId("holder")] is Outcome.SUCCESS
