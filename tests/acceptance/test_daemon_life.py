"""What a user sees of the daemon: files dropped, edited, broken, repaired; crashes; stops."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.processes import family
from spyweb.model import JobId, Outcome
from spyweb.reload.watch import BEGUN_MS
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

COUNT = """
local n = tonumber(store_get("n") or "0") + 1
store_set("n", tostring(n))
visits = (visits or 0) + 1
return { n = n, visits = visits, version = "one" }
"""


def test_a_flood_of_idle_connections_takes_no_descriptor_from_jobs_and_commands(project: Project) -> None:
    allow_256 = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    project.launcher = (sys.executable, "-c", allow_256 + "os.execv(sys.argv[1], sys.argv[1:])")
    project.job("hello", "store_set('k', 'v') print('hello')")
    with project.daemon() as daemon, ExitStack() as flood:
        address = ("127.0.0.1", urlsplit(daemon.url).port or 0)
        for _ in range(400):
            flood.enter_context(closing(socket.create_connection(address)))

        assert project.spyweb("run", "hello").stdout.count("hello")
        health = project.daemon_client().health()
        assert any("the server refuses connections" in warning for warning in health.warnings)
        assert daemon.has_said("connections are refused: too many are open")


def test_a_dropped_file_runs_on_schedule_within_seconds(project: Project) -> None:
    with project.daemon():
        project.job("hello", 'log("hello")', 'every = "1s"')
        runs = project.ended("hello", 2)
        assert {run.outcome for run in runs} == {"success"}
        eventually(lambda: "INFO hello" in project.spyweb("logs", "hello").stdout)


def test_state_survives_kill_9_and_globals_do_not(project: Project) -> None:
    project.job("count", COUNT)
    with project.daemon() as daemon:
        assert project.result("count") == {"n": 1, "visits": 1, "version": "one"}
        assert project.result("count") == {"n": 2, "visits": 2, "version": "one"}
        daemon.kill()
    with project.daemon():
        assert project.result("count") == {"n": 3, "visits": 1, "version": "one"}


def test_settings_take_effect_at_once_and_keep_globals(project: Project) -> None:
    path = project.job("count", COUNT)
    with project.daemon():
        assert project.result("count") == {"n": 1, "visits": 1, "version": "one"}
        path.write_text(path.read_text().replace('every = "never"', 'every = "1h"'))
        eventually(lambda: project.shown("count").schedule == "every 1h")
        project.save("config.toml", '[jobs.count]\nevery = "1s"\n')
        project.ended("count", 3)
        assert project.shown("count").generation == 1
        visits = project.result("count")["visits"]  # type: ignore[index]  # the table that it returns
        assert visits > 3


def test_an_edit_is_picked_up_without_a_restart_and_a_broken_one_is_not(project: Project) -> None:
    path = project.job("count", COUNT)
    with project.daemon():
        assert project.result("count") == {"n": 1, "visits": 1, "version": "one"}
        new = project.save("jobs/.count.lua.tmp", path.read_text().replace('"one"', '"two"'))
        os.replace(new, path)  # as editors do
        eventually(lambda: project.shown("count").generation == 2)
        assert project.result("count") == {"n": 2, "visits": 1, "version": "two"}
        assert project.shown("count").vms == 2
        path.write_text(path.read_text().replace("return {", "return return {"))
        eventually(lambda: "jobs/count.lua:" in project.shown("count").error)
        assert project.result("count") == {"n": 3, "visits": 2, "version": "two"}
        path.write_text(path.read_text().replace("return return {", "return {").replace('"two"', '"three"'))
        eventually(lambda: project.shown("count").generation == 3)
        eventually(lambda: project.shown("count").error == "", "the problem is gone: it is told after the swap")
        assert project.result("count") == {"n": 4, "visits": 1, "version": "three"}


def test_an_edited_module_reloads_its_job(project: Project) -> None:
    project.save("lib/words.lua", 'return "one"')
    project.job("speak", 'return require("lib.words")')
    with project.daemon():
        assert project.result("speak") == "one"
        project.save("lib/words.lua", 'return "two"')
        eventually(lambda: project.shown("speak").generation == 2)
        assert project.result("speak") == "two"


def test_after_kill_9_a_run_in_flight_is_lost_and_starts_again_where_it_may_be_retried(project: Project) -> None:
    body = 'if store_get("seen") then return "again" end store_set("seen", "1") log(ctx.job .. " marked") sleep(60000)'
    project.job("once", f"local ctx = ... {body}")
    project.job("twice", f"local ctx = ... {body}", 'every = "never"\nretries = 1\nretry_delay = "100ms"')
    with project.daemon() as daemon:
        for job in ("once", "twice"):
            project.daemon_client().trigger(JobId(job))
        eventually(lambda: daemon.has_said("once marked") and daemon.has_said("twice marked"))
        daemon.kill()
    with project.daemon():
        runs = project.ended("twice", 2)
        assert [(run.outcome, run.attempt) for run in runs] == [("success", 2), ("lost", 1)]
        assert [(run.outcome, run.attempt) for run in project.runs("once")] == [("lost", 1)]


def test_no_worker_outlives_a_killed_daemon(project: Project) -> None:
    project.job("idle", "return 1")
    with project.daemon() as daemon:
        project.result("idle")
        _, *children = family(daemon.pid)
        assert children
        daemon.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def test_sigterm_lets_runs_end_within_the_grace_and_stops_and_records_the_others(project: Project) -> None:
    project.save("config.toml", '[daemon]\nshutdown_grace = "2s"\n')
    project.job("short", "sleep(500)")
    project.job("slow", "sleep(60000)")
    with project.daemon() as daemon:
        for job in ("slow", "short"):
            project.daemon_client().trigger(JobId(job))
        eventually(lambda: all(run.state == "running" for job in ("slow", "short") for run in project.runs(job)))
        assert daemon.stop() == 0
    assert {run["job"]: run["outcome"] for run in project.ask("runs")} == {"slow": "stopped", "short": "success"}


def test_a_second_interrupt_ends_at_once(project: Project) -> None:
    project.job("slow", "sleep(60000)")
    with project.daemon() as daemon:
        project.daemon_client().trigger(JobId("slow"))
        eventually(lambda: project.runs("slow")[0].state == "running")
        daemon.process.send_signal(signal.SIGINT)
        eventually(lambda: daemon.has_said('"stopping"'))
        assert daemon.stop(signal.SIGINT) == 130


def test_sighup_looks_at_files_whose_changes_nobody_watches(project: Project) -> None:
    text = project.job("late", "return 1").read_text()
    hidden = project.save(".hidden/late.lua", text)
    (project.root / "jobs/late.lua").unlink()
    (project.root / "jobs/late.lua").symlink_to("../.hidden/late.lua")
    with project.daemon() as daemon:
        project.job("seen", "return 1")
        eventually(lambda: len(project.daemon_client().jobs()) == 2)  # the watch has begun ...
        time.sleep(2 * BEGUN_MS / 1000)  # ... and the look at its beginning, of which nobody tells, is over
        hidden.write_text(text.replace("return 1", "return 2"))
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: project.shown("late").generation == 2)


def test_a_damaged_database_is_refused_and_moved_aside_only_on_repair(project: Project) -> None:
    project.job("one", "return 1")
    with project.daemon() as daemon:
        daemon.stop()
    (project.root / "data/spyweb.db").write_bytes(b"not a database at all, far from it" * 500)
    refused = project.spyweb("start", "--port", "0", code=2)
    assert "--repair" in refused.stderr
    with project.daemon("--repair"):
        assert list(project.root.glob("data/spyweb.db.corrupt-*"))


def test_a_database_that_is_moved_away_is_noticed_and_no_stop_waits_for_it(project: Project) -> None:
    project.save("config.toml", '[daemon]\nshutdown_grace = "300ms"\n')
    project.job("slow", "sleep(60000)")
    database = project.root / "data/spyweb.db"
    with project.daemon() as daemon:
        project.daemon_client().trigger(JobId("slow"))
        eventually(lambda: project.runs("slow")[0].state == "running")
        database.rename(database.with_name("moved.db"))
        assert "nothing is stored: spyweb.db: was removed or replaced" in project.spyweb("health", code=1).stdout
        assert daemon.stop() == 0
        assert daemon.has_said("left open for the next start")
    database.with_name("moved.db").rename(database)
    with project.daemon():
        assert project.ended("slow")[0].outcome == Outcome.LOST


def test_without_the_database_that_its_log_belongs_to_nothing_starts_and_nothing_is_touched(project: Project) -> None:
    project.job("one", 'store_set("k", "1"); db_exec("CREATE TABLE t (x)")')
    with project.daemon() as daemon:
        assert daemon.has_said('"a new database begins"')
        project.spyweb("run", "one")
        daemon.stop(signal.SIGBUS)  # as where a mapped file can't be written any more
        assert daemon.has_said("Fatal Python error: Bus error")
    data = project.root / "data"
    (data / "spyweb.db").rename(data / "kept.db")
    log = (data / "spyweb.db-wal").read_bytes()
    for words in (["start", "--port", "0"], ["run", "one"], ["runs"], ["state", "set", "k", "1"], ["state", "list"]):
        refused = project.spyweb(*words, code=2)
        assert "spyweb.db: is missing, and spyweb.db-wal beside it holds what was written" in refused.stderr
    assert (data / "spyweb.db-wal").read_bytes() == log
    (data / "kept.db").rename(data / "spyweb.db")
    (data / "user.db").rename(data / "kept.db")
    assert "user.db: is missing" in project.spyweb("start", "--port", "0", code=2).stderr
    (data / "kept.db").rename(data / "user.db")
    with project.daemon() as daemon:
        assert daemon.has_said('"the last spyweb ended without closing the database"')
        assert project.spyweb("state", "get", "--job", "one", "k").stdout == "1\n"
        assert daemon.stop() == 0
    for file in data.glob("user.db*"):
        file.unlink()
    assert f"user.db: is missing, and {data} has had one" in project.spyweb("start", "--port", "0", code=2).stderr


def test_two_projects_with_one_database_have_one_daemon(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Project(tmp_path_factory.mktemp("other"), is_quick=True)
    for each in (project, other):
        each.job("one", "return 1")
        each.save("config.toml", f'[store]\nurl = "sqlite:///{project.root}/shared.db"\n')
    with project.daemon() as daemon:
        for words in (["start", "--port", "0"], ["run", "one"], ["state", "set", "k", "1"]):
            refused = other.spyweb(*words, code=2)
            assert f"shared.db is in use by pid {daemon.pid}" in refused.stderr
        second = project.spyweb("start", "--port", "0", code=2).stderr
        assert f"pid {daemon.pid}" in second
        assert len(second.strip().splitlines()) == 1
        (project.root / "data/spyweb.lock").unlink()
        assert f"pid {daemon.pid}" in project.spyweb("start", "--port", "0", code=2).stderr


def test_a_repair_goes_on_with_what_is_left(project: Project) -> None:
    data = project.root / "data"
    with project.daemon() as daemon:
        daemon.kill()
    for companion in ("spyweb.db-wal", "spyweb.db-shm"):
        (data / companion).unlink()
    for words in (["start", "--port", "0"], ["state", "list"], ["state", "set", "k", "1"]):
        assert "its log spyweb.db-wal was removed" in project.spyweb(*words, code=2).stderr
    with project.daemon("--repair") as daemon:
        assert daemon.has_said("the database goes on without what is missing")
        assert daemon.stop() == 0
    (data / "spyweb.db").unlink()
    assert f"and {data} has had one" in project.spyweb("start", "--port", "0", code=2).stderr
    with project.daemon("--repair") as daemon:
        assert daemon.has_said('"a new database begins"')
