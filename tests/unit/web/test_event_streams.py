"""Streams: how many there may be, of whom, that they end with their server; answers of one JSON object a line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from spyweb.web.access.principal import PRINCIPAL, Principal
from spyweb.web.app import socket_app
from spyweb.web.event_streams import FLUSH, OPEN_STREAMS, StreamCounter, counted, stream
from tests.fakes.client import Client, client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService, refused


def request_of(peer: object, key: str | None = None, transport: object = "open") -> web.Request:
    shown = {PRINCIPAL: Principal(name=key, rights=frozenset(), source="key")} if key else {}
    request = SimpleNamespace(transport=transport, get_extra_info=lambda _name: peer, get=shown.get)
    return cast(web.Request, request)


def from_address(address: str, key: str | None = None) -> web.Request:
    return request_of((address, 1234), key)


@pytest.mark.parametrize(
    ("one", "other"),
    [("192.0.2.1", "192.0.2.2"), ("::ffff:192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8:0:1::1")],
)
def test_one_address_has_only_some_of_them(one: str, other: str) -> None:
    streams = StreamCounter(10, 2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(streams.one(from_address(one)))
        with pytest.raises(web.HTTPServiceUnavailable), streams.one(from_address(one)):
            pass
        stack.enter_context(streams.one(from_address(other)))


@pytest.mark.parametrize(
    "peer", [("127.0.0.1", 1), ("127.9.9.9", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1), "", None]
)
def test_this_machine_may_have_them_all_since_a_proxy_speaks_for_many(peer: object) -> None:
    streams = StreamCounter(5, 1)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(streams.one(request_of(peer)))


def test_one_key_has_only_a_quarter_from_wherever_it_asks() -> None:
    streams = StreamCounter(8, 8)
    with ExitStack() as stack:
        for number in range(2):
            stack.enter_context(streams.one(from_address(f"192.0.2.{number}", "reader")))
        with pytest.raises(web.HTTPServiceUnavailable), streams.one(from_address("127.0.0.1", "reader")):
            pass
        for _ in range(2):
            stack.enter_context(streams.one(from_address("127.0.0.1", "other")))


def test_those_whose_client_is_gone_do_not_count() -> None:
    streams = StreamCounter(1, 1)
    with streams.one(request_of(None, transport=None)), streams.one(from_address("127.0.0.1")):
        pass


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    app = socket_app(FakeDaemonService())
    app[OPEN_STREAMS] = StreamCounter(1)
    async with client_of(app) as client:
        yield client


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
        _, writer = await asyncio.open_connection("127.0.0.1", client.port, limit=1)  # which reads a little, no more
        writer.write(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(closed.wait(), 10)
        writer.close()
