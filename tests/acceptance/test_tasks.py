"""What a user sees of tasks: the tree of a run, its rows, and a run that goes on where it was cut short."""

from __future__ import annotations

import json

import pytest

from spyweb.model import Outcome
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RESUMING = 'every = "never"\nresume = true'

# Each task notes that it ran; the second waits, the first time, until it is killed.
PIPELINE = """
local function note(name) state.set("ran", state.get("ran", "") .. name .. " ") end
task("build"):command(function() note("build") return true, "built", {version = 3} end)
task("wait"):depends_on("build"):command(function(this, params, input)
  note("wait" .. input.build.version)
  if not store_get("again") then
    store_set("again", "1")
    log("waiting")
    sleep(60000)
  end
end)
task("push"):depends_on{"build", "wait"}:command(function(this, params, input) note("push" .. input.build.version) end)
workflow.define("release"):tasks{"build", "wait", "push"}:on_complete(function(ok, results)
  note(tostring(ok) .. results.build.status)
end)
"""


def tree(project: Project, job: str) -> list[list[str]]:
    """The tasks of each run, newest first: `build success 1`."""
    found = project.ask("runs", job, "--tasks")
    return [[f"{task['task']} {task['status']} {task['attempts']}" for task in run["tasks"]] for run in found]  # type: ignore[attr-defined]


def ran(project: Project) -> str:
    """What the tasks have noted."""
    return project.spyweb("state", "get", "ran").stdout.strip()


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.STOPPED])
def test_a_run_goes_on_after_the_daemon_was_killed_or_stopped(project: Project, outcome: Outcome) -> None:
    project.save("config.toml", '[daemon]\nshutdown_grace = "0s"\n')
    project.job("release", PIPELINE, RESUMING)
    with project.daemon() as daemon:
        project.spyweb("trigger", "release")
        eventually(lambda: daemon.has_said("waiting"))
        if outcome is Outcome.LOST:
            daemon.kill()
        else:
            assert daemon.stop() == 0
    with project.daemon():
        second, first = project.ended("release", 2)
        assert (first.outcome, second.outcome) == (outcome, Outcome.SUCCESS)
        assert tree(project, "release") == [
            ["build success 0", "wait success 1", "push success 1"],
            ["build success 1"],
        ]
        assert ran(project) == "build wait3 wait3 push3 truesuccess"


def test_a_run_in_the_foreground_shows_each_task_as_it_ends(project: Project) -> None:
    source = PIPELINE.replace("sleep(60000)", "return false, 'no luck'")
    project.job("release", source)
    shown = project.spyweb("run", "release", code=1).stdout
    assert [line for line in shown.splitlines() if line.startswith(("release", "  "))][:4] == [
        "release",
        f"  success   build in {took(shown, 'build')}: built",
        f"  failed    wait in {took(shown, 'wait')}: no luck",
        "  skipped   push: stopped after wait",
    ]
    assert "wait: no luck (1 of 3 tasks)" in shown
    events = [json.loads(line) for line in project.spyweb("run", "release", "-o", "json").stdout.splitlines()]
    told = [(event["task"], event["status"]) for event in events if event["event"] == "task"]
    assert told == [
        ("build", "running"), ("build", "success"), ("wait", "running"), ("wait", "success"), ("push", "running"),
        ("push", "success"),
    ]  # fmt: skip
    built = next(event for event in events if event.get("status") == "success")
    assert (built["workflow"], built["message"], built["output"]) == ("release", "built", {"version": 3})
    assert {"started_at", "took_ms", "attempts"} <= built.keys()


def took(shown: str, task: str) -> str:
    return shown.split(f"{task} in ")[1].split(":")[0].split("\n")[0]


def test_the_tree_is_the_same_with_a_daemon_and_without(project: Project) -> None:
    project.job("release", PIPELINE.replace("sleep(60000)", ""))
    with project.daemon():
        project.spyweb("run", "release")
        online = project.spyweb("runs", "release", "--tasks").stdout
    assert online == project.spyweb("runs", "release", "--tasks").stdout
    assert [line.split()[1] for line in online.splitlines()[2:]] == ["build", "wait", "push"]


def test_a_task_may_delete_the_file_of_its_own_job(project: Project) -> None:
    project.job("gone", "task{name = 'a', run = function() end} task{name = 'b', run = function() sleep(300) end}")
    with project.daemon():
        project.spyweb("trigger", "gone")
        eventually(lambda: project.daemon_client().runs(None, limit=1))
        (project.root / "jobs/gone.lua").unlink()
        ended = eventually(lambda: [run for run in project.runs("gone") if run.outcome])
        assert ended[0].outcome is Outcome.SUCCESS


BY_HAND = '-- /// job\n-- every = "never"\n-- ///\n'


def test_a_sloth_file_is_a_job_like_any_other(project: Project) -> None:
    project.save("jobs/Release.sloth", BY_HAND + PIPELINE.replace("sleep(60000)", ""))
    assert "no problems" in project.spyweb("check").stderr
    with project.daemon():
        project.spyweb("trigger", "release")
        (run,) = project.ended("release")
        assert run.outcome is Outcome.SUCCESS
        project.save("jobs/Release.sloth", BY_HAND + "task{name = 'a', run = function() return false, 'edited' end}")
        eventually(lambda: project.shown("release").generation == 2)
        assert "edited" in project.spyweb("run", "release", code=1).stdout
    project.job("release", "return 1")
    told = project.spyweb("check", code=1)
    assert all(file in told.stdout + told.stderr for file in ("jobs/Release.sloth", "jobs/release.lua"))


def test_values_come_from_the_settings_and_the_command_line(project: Project) -> None:
    project.save(
        "config.toml", '[values]\nhost = "all"\ndb = { port = 1, name = "x" }\n[jobs.shows.values]\ndb.port = 2\n'
    )
    project.save("prod.toml", 'host = "prod"\n')
    project.job(
        "shows",
        """
        task{name = "a", run = function()
          log(json_encode({values.host, values.db.port, values.db.name, tostring(values.none)}))
          log(tostring(pcall(function() values.host = 1 end)), json_encode(values.db))
        end}
        """,
    )
    plain = ['["all",2,"x","nil"]', 'false\t{"name":"x","port":2}']
    given = ['["prod",3,"x","nil"]', 'false\t{"name":"x","port":3}']
    options = ("--values", str(project.root / "prod.toml"), "--var", "db.port=3")

    def logged(*more: str) -> list[str]:
        shown = project.spyweb("run", "shows", *more).stdout
        return [line.split(" INFO ")[1] for line in shown.splitlines() if " INFO " in line]

    def all_logged() -> list[list[str]]:
        return [sorted_keys(logged()), sorted_keys(logged(*options)), sorted_keys(logged())]

    assert all_logged() == [plain, given, plain]
    with project.daemon():
        assert all_logged() == [plain, given, plain]
    assert "--var x: expected NAME=VALUE" in project.spyweb("run", "shows", "--var", "x", code=2).stderr


def sorted_keys(lines: list[str]) -> list[str]:
    """With the members of JSON objects in their order."""
    head, (flag, _, packed) = lines[0], lines[1].partition("\t")
    return [head, f"{flag}\t{json.dumps(json.loads(packed), sort_keys=True, separators=(',', ':'))}"]


def test_debug_shows_what_a_run_would_do_and_does_nothing(project: Project) -> None:
    project.job(
        "release",
        """
        for _, name in ipairs{"a", "b", "c"} do task(name):command(function() state.set("ran", name) end) end
        task("d"):depends_on{"a", "b"}:run_if(function() state.set("ran", "d") end):timeout("5s"):command(error)
        local function note() state.set("ran", "w") end
        workflow("w"):tasks{"d", "a", "b", "c"}:config{max_parallel_tasks = 2}:on_start(note)
        """,
    )
    shown = project.spyweb("debug", "release").stdout
    assert shown.splitlines()[:5] == [
        "w (2 at a time)",
        "  1.  a",
        "      b",
        "  2.  d (after a, b; run_if; at most 5s)",
        "      c",
    ]
    assert "nothing was run" in shown
    events = [json.loads(line) for line in project.spyweb("debug", "release", "-o", "json").stdout.splitlines()]
    assert [task["task"] for task in events[-1]["result"]["plan"][0]["tasks"]] == ["a", "b", "d", "c"]
    with project.daemon():
        assert project.spyweb("debug", "release").stdout.splitlines()[:5] == shown.splitlines()[:5]
    assert project.spyweb("state", "get", "ran", code=1).stdout == ""
    assert all(run["tasks"] == [] for run in project.ask("runs", "release", "--tasks"))


def test_what_tasks_keep_is_listed_and_printed_also_after_a_run_went_on(project: Project) -> None:
    project.job(
        "release",
        """
        task("build"):artifacts{"*.csv"}:command(function() fs_overwrite("built.csv", "1,2") end)
        task("wait"):depends_on("build"):command(function()
          if not store_get("again") then store_set("again", "1") log("waiting") sleep(60000) end
        end)
        task("ship"):depends_on("wait"):consumes{"built.csv"}:command(function() log(fs_read("built.csv")) end)
        """,
        RESUMING,
    )
    assert "no task has kept a file" in project.spyweb("artifacts", "release").stderr
    with project.daemon() as daemon:
        project.spyweb("trigger", "release")
        eventually(lambda: daemon.has_said("waiting"))
        daemon.kill()
    (project.root / "jobs/release/built.csv").unlink()
    with project.daemon():
        second, first = project.ended("release", 2)
        assert second.outcome is Outcome.SUCCESS
    assert project.spyweb("artifacts", "release").stdout.split()[-3:] == [str(second.id), "built.csv", "3B"]
    assert project.spyweb("artifacts", "release", str(first.id), "--get", "built.csv").stdout == "1,2"
    assert project.ask("artifacts", "release") == [{"run": second.id, "name": "built.csv", "size": 3}]
    assert "there are built.csv" in project.spyweb("artifacts", "release", "--get", "x", code=2).stderr
    assert project.spyweb("artifacts", "nobody", code=2).stderr


UPLOAD = """
local function note(name) state.set("ran", state.get("ran", "") .. name .. " ") end
task("build"):command(function() note("build") return true, "built", {file = "site.tar"} end)
task("upload"):depends_on("build"):command(function(this, params, input)
  note("upload")
  if not fs_read("bucket.txt") then return false, "bucket answers 503" end
  return true, "", {address = "https://cdn/" .. input.build.file}
end)
task("announce"):depends_on("upload"):command(function(this, params, input)
  if not fs_read("quick.txt") then log("waiting") sleep(60000) end
  note(input.upload.address)
end)
workflow.define("site"):tasks{"build", "upload", "announce"}
"""


def test_a_retry_runs_what_failed_and_what_follows_it_also_over_a_kill(project: Project) -> None:
    """The bucket is fixed outside; a retry takes over the build, is killed in the last task, and is resumed."""
    project.job("site", UPLOAD, RESUMING)
    with project.daemon() as daemon:
        project.spyweb("trigger", "site")
        (failed,) = project.ended("site")
        assert failed.reason == "upload: bucket answers 503 (1 of 3 tasks)"
        project.save("jobs/site/bucket.txt", "")
        told = project.spyweb("retry", str(failed.id)).stdout
        assert told == "run 2 retries run 1 of site from upload: 1 task taken over\n"
        eventually(lambda: daemon.has_said("waiting"))
        assert "run 2 can't be retried: it has not ended yet" in project.spyweb("retry", "2", code=2).stderr
        daemon.kill()
    project.save("jobs/site/quick.txt", "")
    with project.daemon():
        resumed, retry, _ = project.ended("site", 3)
        assert (retry.outcome, resumed.outcome) == (Outcome.LOST, Outcome.SUCCESS)
        assert ran(project) == "build upload upload https://cdn/site.tar"
        shown = project.spyweb("runs", "site", "-n", "1", "--tasks").stdout
        assert "build (taken over from run 1): built" in shown
        assert "upload (taken over from run 2)" in shown
        refused = project.spyweb("retry", str(resumed.id), code=2).stderr
        assert "run 3 can't be retried: it succeeded; `spyweb trigger site` starts the job again" in refused


def test_a_retry_is_refused_once_the_code_has_changed_unless_it_is_wanted_anyway(project: Project) -> None:
    project.save("shared/where.lua", "return 'cdn'")
    project.job("site", "local where = require('shared.where')\n" + UPLOAD)
    with project.daemon():
        project.spyweb("trigger", "site")
        project.ended("site")
        project.save("jobs/site/bucket.txt", "")
        project.save("jobs/site/quick.txt", "")
        for run, code in (1, "error('before any task')"), (2, "return 'other'"):
            project.save("shared/where.lua", code)
            eventually(lambda: project.shown("site").generation > project.runs("site")[0].generation, "the new version")
            refused = project.spyweb("retry", str(run), code=2).stderr
            again = f"`spyweb retry {run} --anyway` takes over 1 task all the same"
            assert f"shared/where.lua changed since run {run}: {again}" in refused
            found = json.loads(project.spyweb("retry", str(run), "--anyway", "-o", "json").stdout)
            assert found == {
                "run": run + 1, "job": "site", "retry_of": run, "taken_over": 1, "first_task": "upload",
            }  # fmt: skip
            project.ended("site", run + 1)
        assert project.runs("site")[0].outcome is Outcome.SUCCESS
        assert "run 2 is a later attempt; `spyweb retry 2`" in project.spyweb("retry", "1", code=2).stderr
        assert "run 3 is a later attempt, which succeeded" in project.spyweb("retry", "2", code=2).stderr


def test_a_run_whose_next_attempt_was_cancelled_can_be_retried(project: Project) -> None:
    project.job("site", "error('no')", 'every = "never"\nretries = 1\nretry_delay = "1h"')
    with project.daemon() as daemon:
        project.spyweb("trigger", "site")
        project.ended("site")
        assert daemon.ask("/api/runs/2/cancel", "POST").status == 200
        eventually(lambda: project.runs("site")[0].outcome, "its end")
        for _ in range(2):
            answer = daemon.ask("/api/runs/1/retry", "POST", "null", **{"Idempotency-Key": "x"})
            assert (answer.status, answer.json["run"]) == (200, 3)


def test_a_retry_of_a_job_without_tasks_has_the_same_payload_and_values(project: Project) -> None:
    fails = "function run(ctx) if not fs_read('well.txt') then error('no') end "
    project.job("sent", fails + "return ctx.trigger.payload.n .. ctx.trigger.type .. ctx.trigger.retry_of end")
    project.job("given", fails + "return values.place end")
    with project.daemon() as daemon:
        assert daemon.ask("/api/jobs/sent/trigger", "POST", '{"n": 4}').status == 200
        project.ended("sent")
        project.spyweb("run", "given", "--var", "place=here", code=1)
        for job in ("sent", "given"):
            project.save(f"jobs/{job}/well.txt", "")
            run = project.runs(job)[0].id
            assert project.spyweb("retry", str(run)).stdout == f"run {run + 2} retries run {run} of {job}\n"
        assert [project.ended(job, 2)[0].result for job in ("sent", "given")] == ["4retry1", "here"]
        assert "there is no run 99: `spyweb runs` lists the runs" in project.spyweb("retry", "99", code=2).stderr
        (project.root / "jobs/sent.lua").unlink()
        gone = "run 1 can't be retried: its job sent no longer exists: put its file back first"
        eventually(lambda: gone in project.spyweb("retry", "1", code=None).stderr)
