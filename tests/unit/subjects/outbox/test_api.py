"""/api/outbox, as the command line asks for it."""

from __future__ import annotations

from spyweb.web.app import socket_app
from tests.fakes.client import client_of, get_json, post_json
from tests.fakes.daemon_service import BACKUP, FakeDaemonService, unsent_message


async def test_messages_are_listed_of_one_job_or_of_all() -> None:
    service = FakeDaemonService(unsent=[unsent_message(2, BACKUP), unsent_message(1)])
    async with client_of(socket_app(service)) as client:
        for query, ids in (("", [2, 1]), ("?job=Backup", [2]), ("?job=gone", []), ("?limit=1", [2])):
            _, answer = await get_json(client, f"/api/outbox{query}")
            assert [each["id"] for each in answer] == ids
        assert (await get_json(client, "/api/outbox?limit=none"))[0] == 400


async def test_messages_come_a_page_at_a_time() -> None:
    service = FakeDaemonService(unsent=[unsent_message(2, BACKUP), unsent_message(1)])
    async with client_of(socket_app(service)) as client:
        async with client.get("/api/outbox?limit=1") as answer:
            assert answer.headers["Link"] == '<?limit=1&before=2>; rel="next"'
        _, older = await get_json(client, "/api/outbox?limit=1&before=2")
    assert [each["id"] for each in older] == [1]


async def test_one_or_all_are_sent_again() -> None:
    service = FakeDaemonService(unsent=[unsent_message(2), unsent_message(1)])
    async with client_of(socket_app(service)) as client:
        assert await post_json(client, "/api/outbox/retry?id=2") == (200, {"retried": [2]})
        assert await post_json(client, "/api/outbox/retry") == (200, {"retried": [2, 1]})
    assert service.story == ["retry 2", "retry None"]
