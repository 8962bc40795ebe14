"""A monitor's files are executed in real workers before a version of it lives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spyweb.model import JobId
from tests.fakes.database_reader import DatabaseReader
from tests.fakes.project import Project, eventually
from tests.fakes.repository import ROOT

pytestmark = pytest.mark.slow

MONITOR = 'name = "Watch"\nurl = "app:page"\nselector = "li"\nfields = ["t"]\nevery = "never"\n'
COUNTING = 'local tools = require("lib.tools")\nglobal_store_incr("loads", 0, 1)\nstore_set("version", tools.version)\n'


def tools(version: str) -> str:
    return f'return {{ version = "{version}" }}\n'


def test_files_are_executed_at_the_load_and_a_version_that_fails_does_not_live(tmp_path: Path) -> None:
    project, reader = Project(tmp_path), DatabaseReader(tmp_path)
    project.save("lib/tools.lua", tools("one"))
    project.save("jobs/w/config.toml", MONITOR)
    project.save("jobs/w/hooks.lua", COUNTING)
    project.save("jobs/off/config.toml", MONITOR.replace("Watch", "Off") + "enabled = false\n")
    project.save("jobs/off/hooks.lua", 'store_set("loaded", "yes")\n')
    project.save("jobs/bad/config.toml", MONITOR.replace("Watch", "Bad"))
    project.save("jobs/bad/defer.lua", '-- first line\nsleep(1)\nerror("boom")\n')
    project.save("jobs.toml", f"[[jobs]]\n{MONITOR.replace('Watch', 'Listed')}")

    def error(job: str) -> str:
        return next((view.error for view in project.daemon_client().jobs() if view.id == job), "")

    with project.daemon() as daemon:
        assert reader.value("job:watch", "version") == b"one"
        assert reader.value("job:off", "loaded") is None
        states = {view.id: view.state.value for view in project.daemon_client().jobs()}
        assert states == {"bad": "broken", "listed": "idle", "off": "disabled", "watch": "idle"}
        assert "jobs/bad/defer.lua:3: failed while it was loaded: boom" in error("bad")

        project.save("lib/tools.lua", "error('no tools')\n")
        eventually(lambda: "no tools" in error("watch"), "the error of a module")
        assert project.shown("watch").generation == 1

        project.save("lib/tools.lua", tools("two"))
        eventually(lambda: reader.value("job:watch", "version") == b"two", "the repaired module")
        eventually(lambda: not error("watch"), "no error")
        project.save("jobs/bad/defer.lua", "function on_finished() end\n")
        eventually(lambda: project.shown("bad").state.value == "idle", "the repaired file")
        assert daemon.stop() == 0


def test_check_finds_what_is_wrong_in_every_file_and_executes_none(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.save("jobs/w/config.toml", MONITOR.replace('"app:page"', '"page"'))
    project.save("jobs/w/hooks.lua", 'store_set("loaded", "yes")\n')
    project.save("jobs/x/config.toml", MONITOR.replace("Watch", "X"))
    project.save("jobs/x/hooks.lua", "function x( end\n")
    project.save("jobs/x/defer.lua", "count += 1\n")
    project.save("jobs/z/tests.lua", "function test_x(\n")
    project.save("jobs/z/defer.lua", "if then\n")
    project.save(
        "jobs/z/config.toml", 'workers = "many"\n' + MONITOR.replace("Watch", "Z").replace('"t"', '"t:a >> b"')
    )
    project.save("jobs.toml", f"[[jobs]]\n{MONITOR.replace('Watch', 'Y').replace('li', ' ')}worker = 1\n")
    found = json.loads(project.spyweb("check", "-o", "json", code=1).stdout)

    assert [(problem["file"], problem["line"], problem["key"], problem["is_warning"]) for problem in found] == [
        ("jobs.toml", 4, "jobs[1].selector", False),
        ("jobs.toml", 7, "jobs[1].worker", True),
        ("jobs/w/config.toml", 2, "url", False),
        ("jobs/x/defer.lua", 1, None, False),
        ("jobs/x/hooks.lua", 1, None, False),
        ("jobs/z/config.toml", 1, "workers", False),
        ("jobs/z/config.toml", 5, "fields", False),
        ("jobs/z/defer.lua", 1, None, False),
        ("jobs/z/tests.lua", 2, None, False),
    ]
    assert "Luau" in found[3]["reason"]
    assert not (tmp_path / "data").exists()


def test_the_sample_finds_what_is_new_on_its_page_and_only_once_and_what_has_changed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    shutil.copytree(ROOT / "jobs/front-page", tmp_path / "jobs/front-page")
    first = project.spyweb("run", "Front page").stdout
    page = tmp_path / "jobs/front-page/page.txt"
    page.write_text(page.read_text().replace("12 points", "99 points") + "<article><h2><a href='/4'>More Lua</a></h2>")
    second = project.spyweb("run", "front_page").stdout

    assert [line.partition("new: ")[2] for line in first.splitlines() if "new: " in line] == [
        "A scheduler that forgets nothing, points: 12",
        "Lua turns thirty-three, points: 1",
    ]
    assert [line.partition("new: ")[2] for line in second.splitlines() if "new: " in line] == ["More Lua, points: 0"]
    assert "changed: A scheduler that forgets nothing, points: 12 → 99" in second


THREE = MONITOR.replace('url = "app:page"', 'urls = ["app:1", "app:2", "app:3"]')
PATIENT = """
function override_fetch(request)
  count = (count or 0) + 1
  log("VERSION " .. count)
  while not fs_read("go.txt") do sleep(20) end
  return { status = 200, body = "" }
end
"""


def test_a_run_of_several_cycles_ends_on_the_vm_that_it_began_on(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.save("jobs/w/config.toml", THREE)
    project.save("jobs/w/hooks.lua", PATIENT.replace("VERSION", "old"))
    lines = tmp_path / "jobs/w/hooks.log"
    with project.daemon() as daemon:
        project.daemon_client().trigger(JobId("watch"))
        eventually(lambda: lines.exists() and "old 1" in lines.read_text(), "the first cycle")
        project.save("jobs/w/hooks.lua", PATIENT.replace("VERSION", "new"))
        eventually(lambda: project.shown("watch").generation == 2, "the new version")
        project.save("jobs/w/go.txt", "")
        assert project.ended("watch")[0].outcome == "success"
        project.result("watch")
        eventually(lambda: "new 3" in lines.read_text(), "the lines of the last cycle")
        told = [" ".join(line.split()[-2:]) for line in lines.read_text().splitlines()]
        assert told == ["old 1", "old 2", "old 3", "new 1", "new 2", "new 3"]
        eventually(
            lambda: sum(worker.vms for worker in project.daemon_client().health().workers) == 1, "the old VM gone"
        )
        assert daemon.stop() == 0
