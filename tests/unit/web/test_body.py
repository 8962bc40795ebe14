"""No more of a body than may be, no longer than may be, and of all together only so much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO
from typing import cast

import pytest
from aiohttp import web

from spyweb.errors import PoolError
from spyweb.web.body import BODY_MEMORY, LARGEST, TURN_CHUNKS, Body, BodyMemory
from tests.fakes.client import Client, client_of


async def measure(request: web.Request) -> web.Response:
    body = Body(request.app[BODY_MEMORY])
    try:
        return web.Response(text=str(len(await body.read(request))))
    except PoolError as error:
        return web.Response(status=503, text=str(error))
    finally:
        body.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    app = web.Application()
    app[BODY_MEMORY] = BodyMemory()
    app.router.add_post("/", measure)
    async with client_of(app) as client:
        yield client


async def in_pieces(size: int) -> AsyncIterator[bytes]:
    for start in range(0, size, 1 << 20):
        yield b"x" * min(1 << 20, size - start)


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_of_the_largest_size_is_read_and_a_byte_more_is_refused(
    client: Client, is_announced: bool
) -> None:
    for size, status in ((LARGEST, 200), (LARGEST + 1, 413)):
        data = BytesIO(b"x" * size) if is_announced else in_pieces(size)
        async with client.post("/", data=data) as answer:
            assert answer.status == status
            assert await answer.text() in (str(LARGEST), "a request's body may be 10 MB")


async def test_all_bodies_together_have_only_so_much_room(client: Client) -> None:
    room = client.app[BODY_MEMORY]
    for _ in range(3):
        async with client.post("/", data=b"x" * 1000) as answer:
            assert answer.status == 200
    room.take(128 * (1 << 20) - 999)
    async with client.post("/", data=b"x" * 1000) as answer:
        assert (answer.status, await answer.text()) == (503, "too many large requests at once")
    room.give_back(1)
    async with client.post("/", data=b"x" * 1000) as answer:
        assert answer.status == 200


class Cut(dict[object, object]):
    """A request whose sender hangs up."""

    content_length = None

    @property
    def content(self) -> Cut:
        return self

    def __init__(self) -> None:
        self.is_first = True

    async def readchunk(self) -> tuple[bytes, bool]:
        if not self.is_first:
            raise ConnectionResetError
        self.is_first = False
        return b"x" * 1000, False


async def test_what_has_come_of_a_body_that_is_cut_does_not_stay_with_its_error() -> None:
    """Errors and frames hold each other until the collector comes by, which in the daemon is seldom."""
    with pytest.raises(ConnectionResetError) as caught:
        await Body(BodyMemory()).read(cast(web.Request, Cut()))
    assert [entry.locals["content"] for entry in caught.traceback if entry.name == "read"] == [b""]


async def test_a_body_that_does_not_come_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.web.body.PATIENCE_S", 0)

    async with client.post("/", data=in_pieces(5 << 20)) as answer:
        assert answer.status == 408


@pytest.mark.parametrize(("size", "count", "status"), [(1, 9_000, 200), (1, 20_000, 400), (100, 20_000, 200)])
async def test_a_body_in_very_many_very_small_chunks_is_refused(
    client: Client, size: int, count: int, status: int
) -> None:
    sent = b"%x\r\n%s\r\n" % (size, b"x" * size)
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(sent * count + b"0\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"%d" % status
    writer.transport.abort()


async def test_others_have_their_turn_while_a_body_is_read(client: Client) -> None:
    """Where all of it has come already, nothing of the reading would wait by itself."""
    turns = 0

    class Full(dict[object, object]):
        content_length = None
        left = 5_000

        @property
        def content(self) -> Full:
            return self

        async def readchunk(self) -> tuple[bytes, bool]:
            self.left -= 1
            return (b"x", True) if self.left >= 0 else (b"", False)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await Body(BodyMemory()).read(cast(web.Request, Full()))
    counting.cancel()
    assert turns >= 5_000 // TURN_CHUNKS
