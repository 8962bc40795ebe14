"""Messages that the real daemon sends: one that is killed loses none."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from spyweb.clock import RealClock
from spyweb.model import JobId, Webhook
from spyweb.outbox.send import webhook_message
from spyweb.store.sqlite.store import open_store
from tests.fakes.hook import open_hook
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def leave(project: Project, url: str, *bodies: str) -> None:
    """Put messages into the outbox, as cycles do; no daemon runs meanwhile."""

    async def add() -> None:
        (project.root / "data").mkdir(mode=0o700, exist_ok=True)
        store = await open_store(project.root / "data" / "spyweb.db", clock=RealClock())
        await store.outbox.add([webhook_message(JobId("prices"), Webhook(url=url), body.encode()) for body in bodies])
        await store.close()

    asyncio.run(add())


def left(project: Project) -> int:
    """How many targets still have messages."""

    async def count() -> int:
        store = await open_store(project.root / "data" / "spyweb.db", clock=RealClock(), read_only=True)
        targets = await store.outbox.targets()
        await store.close()
        return len(targets)

    return asyncio.run(count())


def test_a_daemon_that_is_killed_while_it_sends_sends_again_under_the_same_name(project: Project) -> None:
    with open_hook(hangs=True) as hook, open_hook() as other:
        port = urlsplit(hook.url).port
        leave(project, hook.url, "1", "2")
        leave(project, other.url, "3")
        with project.daemon() as daemon:
            eventually(lambda: hook.bodies and other.bodies)
            daemon.kill()
        assert hook.bodies == ["1"]
        assert other.bodies == ["3"]  # one that hangs holds up no other
    with open_hook(port or 0) as again, project.daemon():
        eventually(lambda: len(again.bodies) == 2)

    assert again.bodies == ["1", "2"]
    assert again.deliveries[0] == hook.deliveries[0]


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
