"""`spyweb drift`, with a daemon and without one; and what the daemon does by itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.model import Outcome
from spyweb.store.model.entries import Put
from spyweb.store.sqlite.store import open_store
from tests.fakes.command import spyweb
from tests.fakes.project import Project, eventually

KEEPER = """
assert(file.mkdir{ path = "shared/web" })
assert(file.template{ text = "port {{.port}}", dest = "shared/web/a.conf", vars = { port = 80 }, mode = "0644" })
return { changed = 0 }
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path, is_quick=True)
    project.job("web", KEEPER)
    project.job("other", "return 1")
    return project


def run(root: Path, *jobs: str) -> None:
    for job in jobs:
        assert spyweb("run", job, root=root).code == 0


def rows(root: Path, *words: str, code: int = 1) -> list[list[str]]:
    """The first three columns."""
    answer = spyweb("drift", *words, root=root)
    assert answer.code == code
    assert not answer.lines or answer.lines[0].split() == ["resource", "expected", "actual", "since", "run"]
    return [cells[:3] for cells in answer.table]


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def see_it_all(root: Path) -> None:
    """The same commands, whoever answers."""
    assert rows(root, code=0) == []
    conf = root / "shared/web/a.conf"
    conf.write_text("port 81")
    assert (
        rows(root)
        == rows(root, "web")
        == [
            [
                "web:file.template:shared/web/a.conf",
                f"file {checksum('port 80')} 0644",
                f"file {checksum('port 81')} 0644",
            ]
        ]
    )
    assert rows(root, "other", code=0) == []
    conf.unlink()
    (found,) = json.loads(spyweb("drift", "-o", "json", root=root).out)
    assert (found["job"], found["target"], found["actual"]) == ("web", "shared/web/a.conf", "not there")
    assert found["since_ms"] > 1_700_000_000_000
    assert found["run"] == 1
    unknown = spyweb("drift", "wob", root=root)
    assert unknown.code == 2
    assert "no job is named 'wob'" in unknown.err
    assert not conf.exists(), "it only looks"


def test_without_a_daemon(project: Project, tmp_path: Path) -> None:
    assert "no resource is recorded" in spyweb("drift", root=tmp_path).err
    assert spyweb("drift", "-o", "json", root=tmp_path).out == "[]\n"
    run(tmp_path, "web")
    assert "2 resources compared, nothing differs" in spyweb("drift", root=tmp_path).err
    see_it_all(tmp_path)


@pytest.mark.timeout(60)
def test_with_a_daemon_and_over_a_restart(project: Project, tmp_path: Path) -> None:
    with project.daemon():
        run(tmp_path, "web")
        see_it_all(tmp_path)
    with project.daemon() as daemon:
        assert rows(tmp_path)[0][2] == "not there"
        daemon.kill()
    assert rows(tmp_path)[0][2] == "not there"
    run(tmp_path, "web")
    assert rows(tmp_path, code=0) == []


def test_a_job_that_is_gone_and_a_damaged_row_are_a_line_each(project: Project, tmp_path: Path) -> None:
    run(tmp_path, "web")

    async def damage() -> None:
        store = await open_store(tmp_path / "data/spyweb.db", clock=RealClock())
        await store.values.transform("scope:resources", b"other:file.copy:x", lambda _: Put(b"text"))
        await store.close()

    asyncio.run(damage())
    (tmp_path / "jobs/web.lua").unlink()
    answer = spyweb("drift", root=tmp_path)
    assert answer.code == 1
    assert "its row can't be read (it is no table); the next run of its job writes it anew" in answer.out
    assert answer.err.splitlines() == [
        "2 resources of web not checked: that job was removed; `spyweb state clear 'web:*' --scope resources` "
        "forgets them"
    ]
    assert spyweb("drift", "web", root=tmp_path).code == 0
    spyweb("state", "clear", "web:*", "--scope", "resources", "-y", root=tmp_path)
    assert spyweb("drift", "web", root=tmp_path).code == 2


@pytest.mark.timeout(120)
def test_a_daemon_finds_by_itself_what_differs_and_repairs_it_where_it_may(project: Project, tmp_path: Path) -> None:
    """The checks are spread by the names of the jobs: those of these two come soon after the start."""
    conf, other = tmp_path / "shared/web/a.conf", tmp_path / "shared/web/b.conf"
    project.job("web", KEEPER, 'every = "never"\ndrift = "10s"')
    project.job("www", KEEPER.replace("a.conf", "b.conf"), 'every = "never"\ndrift = "10s"\ndrift_repair = true')
    run(tmp_path, "web", "www")
    conf.write_text("port 81")
    other.unlink()
    with project.daemon():
        eventually(lambda: other.exists() or None, "a repair", patience=60)
        failed = eventually(
            lambda: [run for run in project.runs("web") if run.trigger.type == "drift" and run.outcome], patience=60
        )
        assert failed[0].reason.startswith("1 resource differs: file.template shared/web/a.conf: file ")
        assert conf.read_text() == "port 81", "it was only told"
        shown = project.shown("web").last
        assert shown is not None
        assert shown.outcome is Outcome.FAILED
        warnings = project.daemon_client().health().warnings
        assert warnings == ["1 job has files that others have changed: `spyweb drift` lists them"]
        repairs = [run.trigger for run in project.runs("www") if run.trigger.type == "drift"]
        assert repairs[0].repairs == "1 resource differs: file.template shared/web/b.conf: not there"
