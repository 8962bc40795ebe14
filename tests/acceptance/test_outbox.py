"""Messages of the real daemon: one that is killed loses none."""

from __future__ import annotations

import asyncio
import json

import pytest

from spyweb.clock import RealClock
from spyweb.model import JobId
from spyweb.store.sqlite.store import open_store
from tests.fakes.hook import open_hook
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def left(project: Project) -> int:
    """How many targets still have messages."""

    async def count() -> int:
        store = await open_store(project.root / "data" / "spyweb.db", clock=RealClock(), read_only=True)
        targets = await store.outbox.targets()
        await store.close()
        return len(targets)

    return asyncio.run(count())


SHOP = """
name = "Shop"
url = "http://127.0.0.1:1/"
selector = "li"
fields = ["title"]
every = "never"
notification = { enabled = false }

[webhook]
url = "{hook}"
"""
HANGING = """
function override_fetch() return { status = 200, body = "<li>Lamp</li><li>Desk</li>" } end
function before_notify(items)
  if fs_read("again.txt") then return items end
  fs_overwrite("stored.txt", tostring(#items))
  sleep(3600 * 1000)
end
"""


def test_a_kill_between_the_records_and_their_messages_loses_no_announcement(project: Project) -> None:
    with open_hook() as hook:
        project.save("jobs/shop/config.toml", SHOP.replace("{hook}", hook.url))
        project.save("jobs/shop/hooks.lua", HANGING)
        with project.daemon() as daemon:
            project.daemon_client().trigger(JobId("shop"))
            eventually(lambda: (project.root / "jobs/shop/stored.txt").exists(), "new records")
            daemon.kill()
        assert hook.bodies == []

        project.save("jobs/shop/again.txt", "")
        with project.daemon():
            assert len(project.daemon_client().records(JobId("shop"), limit=9)) == 2
            project.result("shop")
            eventually(lambda: hook.bodies, "the announcement")
            project.result("shop")
            eventually(lambda: left(project) == 0)
        assert [item["title"] for item in json.loads(hook.bodies[0])["items"]] == ["Lamp", "Desk"]
        assert len(hook.bodies) == 1
