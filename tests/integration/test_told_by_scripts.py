"""What scripts tell people, and what they are told of their own incidents: a real daemon, killed where it hurts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spyweb.cli.client import DaemonClient
from spyweb.model import JobId
from tests.fakes.command import spyweb
from tests.fakes.hook import open_hook
from tests.integration.test_alerts import daemon, until

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


def newest_run(client: DaemonClient) -> int:
    return client.runs(BACKUP, limit=1, before=None)[0].id


def test_a_key_that_was_told_is_told_no_more_after_a_kill_and_what_was_not_sent_is_sent(tmp_path: Path) -> None:
    with open_hook(hangs=True) as hook:
        set_up(tmp_path, hook.url, DISK)
        with daemon(tmp_path) as (process, client):
            until(lambda: bool(hook.bodies))
            process.kill()
            process.wait()
        hook.hangs = False
        with daemon(tmp_path) as (_, client):
            until(lambda: len(hook.bodies) == 2)
            before = newest_run(client)
            until(lambda: newest_run(client) >= before + 5)
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
