"""What scripts tell people, and what they are told of their own incidents: a real daemon, killed where it hurts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spyweb.model import JobId, Outcome, Run
from tests.fakes.command import spyweb
from tests.fakes.hook import open_hook
from tests.fakes.project import ProjectClient, daemon, eventually

pytestmark = pytest.mark.slow

BACKUP = JobId("backup")
CONFIG = """[server]
enabled = false
[channels.ops]
webhook = "{url}"
"""
DISK = """-- /// job
-- every = "100ms"
-- ///
runs = (tonumber(store_get("runs")) or 0) + 1
assert(notify { channel = "ops", title = "12 GB left", body = "run " .. runs, key = "disk" })
store_set("runs", runs)
"""


def set_up(root: Path, url: str, script: str) -> None:
    (root / "jobs").mkdir()
    (root / "jobs/backup.lua").write_text(script)
    (root / "config.toml").write_text(CONFIG.format(url=url))


def newest_run(client: ProjectClient) -> int:
    return client.runs(BACKUP, limit=1)[0].id


def test_a_key_that_was_told_is_told_no_more_after_a_kill_and_what_was_not_sent_is_sent(tmp_path: Path) -> None:
    with open_hook(hangs=True) as hook:
        set_up(tmp_path, hook.url, DISK)
        with daemon(tmp_path) as (process, client):
            eventually(lambda: bool(hook.bodies))
            process.kill()
            process.wait()
        hook.hangs = False
        with daemon(tmp_path) as (_, client):
            eventually(lambda: len(hook.bodies) == 2)
            before = newest_run(client)
            eventually(lambda: newest_run(client) >= before + 5)
        (item,) = {body: json.loads(body)["items"][0] for body in hook.bodies}.values()
        assert (item["kind"], item["title"], item["text"]) == ("message", "12 GB left", "run 1")
        assert len(hook.deliveries) == 2
        assert len(set(hook.deliveries)) == 1, "it is sent again, with the same id"


def test_a_run_by_hand_sends_and_a_test_and_a_dry_run_do_not(tmp_path: Path) -> None:
    with open_hook() as hook:
        set_up(tmp_path, hook.url, 'function run() return notify { channel = "ops", title = "x" } end')
        (tmp_path / "jobs/backup").mkdir()
        (tmp_path / "jobs/backup/tests.lua").write_text("""
            function test_told()
              local ok, what = notify { channel = "ops", title = "x" }
              spyweb.assert_eq(ok, true)
              spyweb.assert_eq(what, "queued")
            end
        """)
        assert spyweb("test", "backup", root=tmp_path).code == 0
        assert spyweb("run", "backup", "--dry-run", root=tmp_path).code == 1
        assert hook.bodies == []
        assert spyweb("run", "backup", root=tmp_path).code == 0
        assert len(hook.bodies) == 1


INCIDENTS = (
    CONFIG
    + """[alerts]
after_failures = 2
"""
)
HOOKED = """-- /// job
-- every = "100ms"
-- ///
function run()
  if not fs_read("mended.txt") then error("no space") end
end
function on_down(incident)
  fs_append("calls.txt", "down " .. incident.id .. "\\n")
  if fs_read("slow.txt") then sleep(60000) end
  error("on_down itself")
end
function on_up(incident)
  fs_append("calls.txt", "up " .. incident.id .. "\\n")
end
"""
SHOP = """name = "backup"
url = "http://127.0.0.1:1/"
interval = 0.1
selector = "p"
fields = ["t:p"]
"""
SHOP_HOOKS = """
function override_fetch(request)
  if not fs_read("mended.txt") then return { error = "no space" } end
  return { status = 200, body = "<p>x</p>", headers = {}, url = request.url }
end
function on_down(incident, ctx) fs_append("calls.txt", "down " .. incident.id .. "\\n") error("on_down itself") end
function on_up(incident, ctx) fs_append("calls.txt", "up " .. incident.id .. " " .. ctx.trigger.type .. "\\n") end
"""


def calls(root: Path) -> list[str]:
    path = root / "jobs/backup/calls.txt"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def set_up_hooked(root: Path) -> None:
    (root / "jobs/backup").mkdir(parents=True)
    (root / "jobs/backup.lua").write_text(HOOKED)
    (root / "config.toml").write_text(INCIDENTS.format(url="http://127.0.0.1:1/"))


def alert_runs(client: ProjectClient) -> list[Run]:
    found = client.runs(BACKUP, limit=1_000)
    return [run for run in reversed(found) if run.trigger.incident]


def test_a_job_s_own_functions_are_called_once_each_and_their_failure_opens_nothing(tmp_path: Path) -> None:
    set_up_hooked(tmp_path)
    with daemon(tmp_path) as (_, client):
        eventually(lambda: calls(tmp_path) == ["down 1"])
        before = newest_run(client)
        eventually(lambda: newest_run(client) > before + 5)
        (tmp_path / "jobs/backup/mended.txt").write_text("yes")
        eventually(lambda: calls(tmp_path) == ["down 1", "up 1"])
        eventually(lambda: all(run.outcome is not None for run in alert_runs(client)))
        assert [(run.trigger.type, run.outcome) for run in alert_runs(client)] == [
            ("alert", Outcome.FAILED),
            ("alert", Outcome.SUCCESS),
        ]
        (incident,) = client.incidents(is_open=None, limit=10)
        assert incident.told["lua"] == "closed"


def test_a_monitor_s_functions_are_called_too(tmp_path: Path) -> None:
    (tmp_path / "jobs/backup").mkdir(parents=True)
    (tmp_path / "jobs/backup/config.toml").write_text(SHOP)
    (tmp_path / "jobs/backup/hooks.lua").write_text(SHOP_HOOKS)
    (tmp_path / "config.toml").write_text(INCIDENTS.format(url="http://127.0.0.1:1/"))
    with daemon(tmp_path) as (_, client):
        eventually(lambda: calls(tmp_path) == ["down 1"])
        (tmp_path / "jobs/backup/mended.txt").write_text("yes")
        eventually(lambda: calls(tmp_path) == ["down 1", "up 1 alert"])
        eventually(lambda: all(run.outcome is not None for run in alert_runs(client)))
        down, up = alert_runs(client)
        assert (down.outcome, up.outcome) == (Outcome.FAILED, Outcome.SUCCESS)
        assert "on_down itself" in down.reason


def test_what_a_kill_leaves_untold_or_half_told_is_told_by_the_next_daemon(tmp_path: Path) -> None:
    set_up_hooked(tmp_path)
    (tmp_path / "jobs/backup/slow.txt").write_text("yes")
    with daemon(tmp_path) as (process, client):
        eventually(lambda: len(client.incidents(is_open=True, limit=10)) == 1)
        process.kill()  # the incident is on record; its function is about to be called, or has just been
        process.wait()
    told = calls(tmp_path)
    assert told in ([], ["down 1"])
    with daemon(tmp_path) as (process, client):
        eventually(lambda: calls(tmp_path) == [*told, "down 1"])
        process.kill()  # in the middle of the function
        process.wait()
    (tmp_path / "jobs/backup/slow.txt").unlink()
    (tmp_path / "jobs/backup/mended.txt").write_text("yes")
    with daemon(tmp_path) as (process, client):
        eventually(lambda: calls(tmp_path) == [*told, "down 1", "down 1", "up 1"])
        before = newest_run(client)
        eventually(lambda: newest_run(client) > before + 5)
        assert calls(tmp_path) == [*told, "down 1", "down 1", "up 1"]
        assert len(client.incidents(is_open=None, limit=10)) == 1


def test_tasks_branches_and_hooks_tell_as_runs_do_and_the_test_of_an_endpoint_does_not(tmp_path: Path) -> None:
    tell = 'assert(notify { channel = "ops", title = "%s" })'
    with open_hook() as hook:
        tasks = f"""
            task("a"):command(function() {tell % "task"} end):build()
            task("b"):command(function()
              parallel(function() {tell % "branch 1"} end, function() {tell % "branch 2"} end)
            end):build()
        """
        set_up(tmp_path, hook.url, tasks)
        (tmp_path / "config.toml").write_text(CONFIG.format(url=hook.url).replace("enabled = false", "port = 0"))
        (tmp_path / "jobs/shop").mkdir()
        (tmp_path / "jobs/shop/config.toml").write_text(SHOP.replace("backup", "shop"))
        (tmp_path / "jobs/shop/hooks.lua").write_text(f"function before_fetch() {tell % 'hook'} end")
        (tmp_path / "server").mkdir()
        (tmp_path / "server/init.lua").write_text(f"function public.get:told() {tell % 'endpoint'} end")
        (tmp_path / "server/tests.lua").write_text("""
            function test_told() spyweb.assert_eq(public.get.told({}), nil) end
        """)
        assert spyweb("run", "backup", root=tmp_path).code == 0
        assert spyweb("run", "shop", root=tmp_path).code == 0
        assert spyweb("test", "server", root=tmp_path).code == 0
        titles = [json.loads(body)["items"][0]["title"] for body in hook.bodies]
        assert sorted(titles) == ["branch 1", "branch 2", "hook", "task"], "a test tells nobody"
