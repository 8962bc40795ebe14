"""Jobs that each have a process of their own: more than there may be at once, due together, under a low limit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spyweb.model import JobId
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIMIT = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
RUN = "os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "config.toml").write_text('[permissions]\nexec = ["/bin/true"]\nfiles = ["job"]\n[runs]\nkeep = 10\n')
    return Project(tmp_path)


@pytest.mark.parametrize("is_many", [False, True])
def test_all_run_in_line_and_the_daemon_goes_on_beside_them(project: Project, torture: bool, is_many: bool) -> None:
    if is_many and not torture:
        pytest.skip("takes minutes: --torture")
    count, limit = (3000, 1024) if is_many else (60, 256)
    project.launcher = (sys.executable, "-c", LIMIT.format(limit) + RUN)
    project.job(
        "pulse",
        'assert(file.line{path = "pulse.txt", line = "well"})',
        'every = "1s"\npermissions = { files = ["job"] }',
    )
    project.job("go", "return 1", 'every = "never"\npermissions = {}')
    names = [f"own{number}" for number in range(count)]
    for name in names:
        project.job(name, 'return cmd{command = {"/bin/true"}}.exit_code', 'after = "go"')
    with project.daemon():
        client = project.daemon_client()
        for _ in range(2):
            first = client.trigger(JobId("go"))
            assert first

            def outcomes(first: int = first) -> list[str]:
                lasts = [view.last for view in client.jobs() if view.id in names]
                return [last.outcome for last in lasts if last and last.run > first]

            eventually(lambda: len(outcomes()) == count, "the end of all", patience=20 + count * 0.2)
            assert set(outcomes()) == {"success"}
        assert {run.reason for run in project.ended("pulse", 2)} == {""}
        health = client.health()
        assert 0 < sum(worker.job is not None for worker in health.workers) <= limit // 3 // 4
        assert health.worker_deaths == 0
