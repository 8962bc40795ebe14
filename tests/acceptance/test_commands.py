"""Commands of jobs under the real daemon: permitted by name, out of reach of its secrets, gone when it is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.fakes.commands import Stubborn
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PERMITTED = '[permissions]\nexec = ["*"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "jobs").mkdir()
    return Project(tmp_path)


def test_nothing_of_a_command_is_left_a_second_after_kill_9(project: Project) -> None:
    stubborn = Stubborn()
    (project.root / "config.toml").write_text(PERMITTED)
    project.job("long", f"exec.run([==[{stubborn.text}]==])", 'every = "1s"')
    with project.daemon() as daemon:
        eventually(lambda: len(stubborn.left) == stubborn.processes)
        daemon.kill()
        deadline = time.monotonic() + 1
        while stubborn.left and time.monotonic() < deadline:
            time.sleep(0.02)
        left = stubborn.left
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left


def test_a_command_is_refused_unless_it_is_permitted_and_a_test_runs_none(project: Project) -> None:
    path = project.job("say", 'function run() return exec.run({"/bin/echo", "hello"}).stdout end')
    with project.daemon():
        said = project.spyweb("run", "say", code=1)
        assert 'add "/bin/echo" to [jobs.say.permissions] exec in config.toml' in said.stdout + said.stderr
        (project.root / "config.toml").write_text('[jobs.say.permissions]\nexec = ["/bin/echo"]\n')
        eventually(lambda: project.spyweb("run", "say", code=None).returncode == 0)
        eventually(lambda: "exec.run: hello" in project.spyweb("logs", "say").stdout)
    path.write_text(path.read_text() + '\nfunction test_say() exec.run({"/bin/echo"}) end\n')
    tested = project.spyweb("test", "say", code=1)
    assert "--allow-exec" in tested.stdout + tested.stderr
    project.spyweb("test", "say", "--allow-exec")


def test_a_job_that_may_run_commands_has_a_worker_of_its_own(project: Project) -> None:
    (project.root / "config.toml").write_text('[jobs.a.permissions]\nexec = ["/bin/echo"]\n')
    for name in ("a", "b"):
        project.job(name, 'return "done"')
    with project.daemon():
        for name in ("a", "b"):
            assert project.result(name) == "done"
        workers = json.loads(project.spyweb("health", "-o", "json").stdout)["workers"]
        assert [worker["job"] for worker in workers if worker["job"]] == ["a"]
