"""/api/outbox, as the command line asks for it."""

from __future__ import annotations

from typing import cast

from spyweb.model import JobId
from spyweb.views.outbox import MessageView
from spyweb.web.app import socket_app
from tests.fakes.client import client_of, get_json, post_json
from tests.fakes.daemon_service import BACKUP, NOW_MS, PRICES, FakeDaemonService


def unsent(number: int, job: JobId = PRICES) -> MessageView:
    return MessageView(
        id=number,
        job_id=job,
        channel="webhook",
        to="hooks.example",
        state="dead",
        created_ms=NOW_MS,
        next_ms=None,
        attempts=3,
        error="answered 500",
    )


async def test_messages_are_listed_of_one_job_or_of_all() -> None:
    service = FakeDaemonService(unsent=[unsent(2, BACKUP), unsent(1)])
    async with client_of(socket_app(service)) as client:
        for query, ids in (("", [2, 1]), ("?job=Backup", [2]), ("?job=gone", []), ("?limit=1", [2])):
            _, answer = await get_json(client, f"/api/outbox{query}")
            assert [each["id"] for each in cast(list[dict[str, object]], answer)] == ids
        assert (await get_json(client, "/api/outbox?limit=none"))[0] == 400


async def test_one_or_all_are_sent_again() -> None:
    service = FakeDaemonService(unsent=[unsent(2), unsent(1)])
    async with client_of(socket_app(service)) as client:
        assert await post_json(client, "/api/outbox/retry?id=2") == (200, {"retried": [2]})
        assert await post_json(client, "/api/outbox/retry") == (200, {"retried": [2, 1]})
    assert service.story == ["retry 2", "retry None"]
