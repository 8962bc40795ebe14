"""Commands of jobs under the real daemon; that none outlives it is proven in tests/integration/test_commands.py."""

from __future__ import annotations

import json
import re
import shutil
import tarfile

import pytest

from tests.fakes.project import Project, eventually
from tests.fakes.repository import file_of, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PERMITTED = '[permissions]\nexec = ["*"]\n'


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


def permitted_by(page: str, old: str = "", new: str = "") -> str:
    """Return the block for config.toml that a page shows."""
    found = re.search(r"```toml\n# config\.toml\n(.*?)```", read(page), re.DOTALL)
    assert found
    return found[1].replace(old, new)


def test_the_page_about_commands_works_as_it_stands(project: Project) -> None:
    page = "docs/how-to/run-commands.md"
    project.save("config.toml", permitted_by(page))
    project.save("jobs/pack.lua", file_of(page, "pack.lua"))
    project.save("shared/notes.txt", "hello")
    assert "no problems" in project.spyweb("check").stderr
    with project.daemon():
        assert "done in " in str(project.ended("pack")[0].result)
    with tarfile.open(project.root / "jobs/pack/shared.tar.gz") as archive:
        assert archive.getnames() == ["shared", "shared/notes.txt"]


def test_the_page_about_backups_brings_a_folder_back_and_compares_it(project: Project) -> None:
    page = "docs/how-to/verified-backup.md"
    site, backups = project.root / "site", project.root / "backups"
    (site / "deep").mkdir(parents=True)
    (site / "deep/index.html").write_text("<p>hello</p>")
    backups.mkdir()
    script = file_of(page, "backup-files.lua")
    for old, new in (("/srv/site", site), ("/srv/backups", backups)):
        assert old in script
        script = script.replace(old, str(new))
    project.save("config.toml", permitted_by(page, "/srv/backups", str(backups)))
    project.save("jobs/backup-files.lua", script)
    assert "no problems" in project.spyweb("check").stderr
    with project.daemon():
        said = project.spyweb("run", "backup-files").stdout
        assert "the same" in said
        (archive,) = backups.iterdir()
        assert archive.stat().st_mode & 0o777 == 0o600
        assert json.loads(project.spyweb("state", "get", "backup:site").stdout)["path"] == str(archive)

        shutil.rmtree(site)
        assert "the same" not in project.spyweb("run", "backup-files", code=1).stdout
        assert list(backups.iterdir()) == [archive]
