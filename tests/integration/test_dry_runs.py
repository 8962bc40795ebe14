"""`spyweb run JOB --dry-run`: what would be done is said, and nothing is done, with a daemon and without one."""

from __future__ import annotations

import json
from asyncio import get_running_loop
from pathlib import Path

import pytest

from spyweb.model import Outcome
from spyweb.runs.runner import by_hand
from tests.fakes.command import Answer, spyweb
from tests.fakes.monitor_project import Observer, open_project
from tests.fakes.project import Project
from tests.fakes.repository import files_of

PAGE = "docs/how-to/configuration-files.md"

CAREFUL = """
times = (times or 0) + 1
local outcome = exec.run("touch made")
log("exit code " .. outcome.exit_code, outcome.message, "run " .. times)
log(tostring(store_get("k")), tostring(ctx == nil and ctx))
"""


def messages(answer: Answer) -> list[str]:
    """What was logged, without the times."""
    return [line.split(" ", 1)[1].strip() for line in answer.lines if line[10:11] == "T"]


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "data" not in path.parts and path.name != "hooks.log"
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in files_of(PAGE):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_page_s_job_says_what_it_would_do_on_a_machine_that_has_nothing_yet(root: Path) -> None:
    before = everything(root)
    answer = spyweb("run", "web-config", "--dry-run", root=root)
    assert answer.code == 0, answer
    assert messages(answer) == [
        "INFO dry run: file.mkdir: 'shared/web/sites': it would be made",
        "INFO dry run: file.template: 'shared/web/sites/all.conf': it would be written",
        "INFO dry run: file.copy: 'shared/web/banner.txt': it would be written",
        "INFO dry run: file.line: 'shared/web/limits.conf': it would be written",
        "INFO changed:\tfolder it would be made, sites it would be written, banner it would be written, "
        "limit it would be written",
    ]
    assert answer.lines[-1].endswith(": dry run: nothing was changed")
    assert everything(root) == before
    assert spyweb("state", "list", "--scope", "resources", root=root).out == ""
    assert spyweb("run", "web-config", root=root).code == 0
    again = spyweb("run", "web-config", "--dry-run", root=root)
    assert messages(again) == [], "nothing would be changed any more"


def test_it_is_recorded_as_a_manual_run_that_changed_nothing(root: Path) -> None:
    spyweb("run", "web-config", "--dry-run", root=root)
    (row,) = json.loads(spyweb("runs", "-o", "json", root=root).out)
    assert (row["outcome"], row["trigger"]) == ("success", {"type": "manual", "dry_run": True, "watched": True})
    assert row["note"] == "dry run: nothing was changed"


def test_what_it_stores_is_there_for_it_alone(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/x.lua").write_text("""
        state.set("a", {1, 2})
        state.list_push("a", 3)
        state.set{scope = "s", key = "k", value = "v"}
        store_set("runs", (store_get("runs") or 0) + 1)
        global_store_incr("all", 0, 2)
        log(state.list_length("a"), state.get{scope = "s", key = "k"}, store_get("runs"), #state.keys())
        return state.clear() and #state.keys()
    """)
    for _ in range(2):
        answer = spyweb("run", "x", "--dry-run", root=tmp_path)
        assert (answer.code, messages(answer)) == (0, ["INFO 3\tv\t1\t1"]), answer
        assert "returned 0" in answer.out
    assert json.loads(spyweb("state", "list", "-o", "json", root=tmp_path).out) == []


def test_a_workflow_goes_through_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "config.toml").write_text('[permissions]\nexec = ["*"]\n')
    (tmp_path / "jobs/x.lua").write_text("""
        local build = task("build"):command("make all"):artifacts{"*.bin"}:build()
        local place = task("place"):depends_on(build):command(function()
          return assert(file.line{path = "shared/a", line = "x"})
        end):build()
        workflow.define("w", {tasks = {build, place}})
    """)
    (tmp_path / "shared").mkdir()
    answer = spyweb("run", "x", "--dry-run", root=tmp_path)
    assert answer.code == 0, answer
    assert "dry run: exec.run: would run `make all`" in answer.out
    assert "dry run: artifacts: would copy what matches *.bin" in answer.out
    assert "dry run: file.line: 'shared/a': it would be written" in answer.out
    assert not (tmp_path / "shared/a").exists()


@pytest.mark.timeout(60)
def test_with_a_daemon_it_has_a_vm_of_its_own(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.save("config.toml", '[permissions]\nexec = ["*"]\n')
    project.job("x", CAREFUL)
    with project.daemon():
        for _ in range(2):
            answer = project.spyweb("run", "x", "--dry-run").stdout
            assert "dry run: exec.run: would run `touch made`" in answer
            assert "run 1" in answer, "what a dry run leaves in globals is not there for the next"
        assert not (tmp_path / "jobs/x/made").exists()
        assert "run 1" in project.spyweb("run", "x").stdout
        assert (tmp_path / "jobs/x/made").exists()


async def test_of_a_monitor_it_shows_what_is_found_and_keeps_nothing(tmp_path: Path) -> None:
    hooks = """
        function filter_item(item, ctx)
          local ok, problem = pcall(store_set, "seen", "1")
          log(tostring(ok) .. " " .. tostring(problem))
          return item
        end
    """
    async with open_project(tmp_path) as project:
        project.shop(hooks, webhook='{ enabled = true, url = "http://hook.test/" }')
        job = project.load()
        observer = Observer(get_running_loop().create_future())
        await project.runtime.runner.start_by_hand(job, by_hand(observer, dry_run=True))
        ending = await observer.over
        assert (ending.outcome, ending.preview is None) == (Outcome.SUCCESS, False), ending
        assert observer.lines
        assert set(observer.lines) == {"info true nil"}
        assert await project.records() == []
        assert await project.messages() == []
        assert await project.runtime.store.values.keys(f"job:{job.id}") == []
