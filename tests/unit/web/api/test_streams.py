from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from spyweb.web.api.streams import OPEN_STREAMS, OpenStreams
from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    app = socket_app(FakeDaemonService())
    app[OPEN_STREAMS] = OpenStreams(most=1)
    async with client_of(app) as client:
        yield client


async def test_one_whose_client_is_gone_makes_room(client: Client) -> None:
    first = await client.get("/api/state/watch")
    assert await first.content.readline() == b"\n"
    first.close()
    async with asyncio.timeout(5):
        while (second := await client.get("/api/state/watch")).status != 200:
            second.close()
    second.close()


async def test_there_are_only_so_many_at_a_time(client: Client) -> None:
    watch = await client.get("/api/state/watch")
    assert await watch.content.readline() == b"\n"
    for path in ("/api/state/watch", "/api/state/entries", "/api/state/export"):
        assert (await get_json(client, path))[0] == 503
    assert (await post_json(client, "/api/jobs/prices/run"))[0] == 503
    watch.close()


async def test_one_that_has_been_read_makes_room(client: Client) -> None:
    for _ in range(3):
        async with client.get("/api/state/entries") as answer:
            assert answer.status == 200
            await answer.read()
