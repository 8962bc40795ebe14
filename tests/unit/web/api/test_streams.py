"""Answers of one JSON object a line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from aiohttp import web

from spyweb.web.api.streams import FLUSH, counted, stream
from spyweb.web.app import socket_app
from spyweb.web.event_streams import OPEN_STREAMS, StreamCounter
from tests.fakes.client import Client, client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService, refused


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    app = socket_app(FakeDaemonService())
    app[OPEN_STREAMS] = StreamCounter(1)
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


BROKEN = b'{"error":"broken","code":"refused","message":"broken","field":null}'
LINE = b"x" * (FLUSH // 2) + b"\n"


async def lines(count: int, closed: list[str], *, is_broken: bool = False) -> AsyncGenerator[bytes, None]:
    try:
        for _ in range(count):
            yield LINE
        if is_broken:
            raise refused("broken")
    finally:
        closed.append("closed")


async def test_many_lines_leave_together_and_the_last_one_counts_them() -> None:
    closed: list[str] = []
    pieces = [piece async for piece in counted(lines(3, closed))]
    assert pieces == [LINE * 2, LINE + b'{"end":3}\n']
    assert closed == ["closed"]


async def test_of_no_lines_there_is_the_count() -> None:
    assert [piece async for piece in counted(lines(0, []))] == [b'{"end":0}\n']


@pytest.mark.parametrize(
    ("count", "status", "told"),
    [
        (1, 409, BROKEN),  # nothing has left yet
        (3, 200, BROKEN + b"\n"),
    ],
)
async def test_an_error_is_an_answer_or_once_lines_have_left_the_last_of_them(
    count: int, status: int, told: bytes
) -> None:
    closed: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, counted(lines(count, closed, is_broken=True)))

    app = socket_app(FakeDaemonService())
    app.router.add_get("/broken", answer)
    async with client_of(app) as client, client.get("/broken") as response:
        assert response.status == status
        assert (await response.read()).removeprefix(LINE * 2) == told
    assert closed == ["closed"]


async def test_who_watches_and_reads_nothing_is_hung_up_on() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield LINE
        finally:
            closed.set()

    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream(request, endless(), unread_s=0.05)

    app = socket_app(FakeDaemonService())
    app.router.add_get("/watch", answer)
    async with client_of(app) as client:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", client.port, limit=1
        )  # which reads a little, and no more
        writer.write(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(closed.wait(), 10)
        writer.close()
