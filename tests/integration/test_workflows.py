"""`spyweb state workflow list | show | drift`, with a daemon and without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.project import Project

DEPLOY = """
local build = task("build"):command(function() return true, "done", { size = 3 } end):build()
local place = task("place"):depends_on(build):command(function()
  assert(file.template{ text = "x", dest = "shared/a" })
  return assert(file.remove{ path = "shared/b" })
end):build()
workflow.define("deploy", { tasks = { build, place } })
"""


def see(project: Project, root: Path) -> None:
    listed = project.spyweb("state", "workflow", "list").stdout.splitlines()
    assert listed[0].split() == ["ID", "NAME", "VERSION", "STATUS", "STARTED", "DURATION", "RESOURCES"]
    (row,) = listed[1:]
    assert row.split()[:4] == ["1", "deploy", "1", "success"]
    assert row.split()[-1] == "2"
    for which in ("1", "deploy", "x"):
        shown = project.spyweb("state", "workflow", "show", which).stdout
        assert "success   build in" in shown
        lines = [line.split() for line in shown.splitlines()[-3:]]
        assert lines == [
            ["TYPE", "NAME", "ACTION", "STATUS"],
            ["file.remove", "shared/b", "noop", "success"],
            ["file.template", "shared/a", "update", "success"],
        ]
    whole = json.loads(project.spyweb("state", "workflow", "show", "1", "-o", "json").stdout)
    assert whole["tasks"][0]["output"] == {"size": 3}
    assert project.spyweb("state", "workflow", "drift", "1").stderr == "nothing has drifted\n"
    (root / "shared/a").write_text("y")
    drifted = project.spyweb("state", "workflow", "drift", "deploy", code=1).stdout.splitlines()
    assert drifted[0].split("  ")[0] == "RESOURCE TYPE"
    assert drifted[1].split()[:3] == ["file.template", "shared/a", "yes"]
    assert json.loads(project.spyweb("state", "workflow", "drift", "1", "-o", "json", code=1).stdout)[0]["job"] == "x"
    assert "there is no run of a workflow 'no'" in project.spyweb("state", "workflow", "show", "no", code=2).stderr
    assert "needs the ID" in project.spyweb("state", "workflow", "drift", code=2).stderr
    (root / "shared/a").write_text("x")


@pytest.mark.timeout(60)
def test_the_runs_of_workflows_are_shown_in_sloth_runner_s_columns(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "shared").mkdir()
    project.job("x", DEPLOY)
    project.job("plain", "return 1")
    assert "no run with tasks is on record" in project.spyweb("state", "workflow", "list").stderr
    assert project.spyweb("state", "workflow", "-o", "json").stdout == "[]\n"
    assert "nothing has run yet" in project.spyweb("state", "workflow", "show", "x", code=2).stderr
    project.spyweb("run", "x")
    project.spyweb("run", "plain")
    see(project, tmp_path)
    with project.daemon():
        see(project, tmp_path)
