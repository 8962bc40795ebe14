"""Real sockets on loopback, and a clock that the test turns."""

from __future__ import annotations

import asyncio
import resource
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from spyweb.limits import FRAMING, HEADER_BLOCK
from spyweb.web import connections
from spyweb.web.connections import ConnectionLimiter, ConnectionLimits, LimitedHandler, address_of, tcp_limits
from spyweb.web.serve import serve_app
from tests.fakes.clock import FakeClock

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = bytes(20_000_000)  # more than socket buffers hold


class Harness:
    """A server, and the clients that come to it."""

    def __init__(self, limiter: ConnectionLimiter, clock: FakeClock, port: int) -> None:
        self.limiter = limiter
        self.clock = clock
        self.port = port
        self.writers: list[StreamWriter] = []

    async def connect(self, sent: bytes = b"") -> tuple[StreamReader, StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        self.writers.append(writer)
        writer.write(sent)
        return reader, writer

    def handlers(self) -> list[LimitedHandler]:
        return list(self.limiter._addresses)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not is_so():  # noqa: ASYNC110 - sockets tell nobody
                await asyncio.sleep(0)


async def answer(request: web.Request) -> web.StreamResponse:
    return web.Response(text="fine")


async def answer_at_length(request: web.Request) -> web.StreamResponse:
    return web.Response(body=LARGE)


async def take(request: web.Request) -> web.StreamResponse:
    return web.Response(text=str(len(await request.read())))


@asynccontextmanager
async def harness(total: int = 10, of_one: int = 10) -> AsyncIterator[Harness]:
    app, clock = web.Application(), FakeClock()
    app.router.add_get("/", answer)
    app.router.add_get("/large", answer_at_length)
    app.router.add_post("/take", take)
    limiter = ConnectionLimiter(ConnectionLimits(total, of_one), clock)
    async with serve_app(app, host="127.0.0.1", port=0, connections=limiter) as listening:
        here = Harness(limiter, clock, listening.port)
        try:
            yield here
        finally:
            for writer in here.writers:
                writer.transport.abort()


async def test_a_connection_too_many_is_refused_and_one_that_ends_makes_room() -> None:
    async with harness(total=2) as here:
        _, first = await here.connect()
        await here.connect()
        await here.until(lambda: here.limiter.open == 2)

        reader, _ = await here.connect(ASK)
        assert await reader.read() == connections.REFUSAL

        first.close()
        await here.until(lambda: here.limiter.open == 1)
        reader, _ = await here.connect(ASK)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_one_address_has_fewer_connections_than_all_together() -> None:
    async with harness(total=10, of_one=1) as here:
        await here.connect()
        await here.until(lambda: here.limiter.open == 1)
        reader, _ = await here.connect(ASK)
        assert await reader.read() == connections.REFUSAL


async def test_refusals_are_told_in_the_log_once_a_minute_and_in_health_for_a_minute() -> None:
    async with harness(total=0) as here:

        async def be_refused() -> None:
            reader, _ = await here.connect()
            assert await reader.read() == connections.REFUSAL

        assert not here.limiter.warning
        with capture_logs() as told:
            for _ in range(3):
                await be_refused()
            assert "at most 0 may be open, 10 from one address" in here.limiter.warning

            here.clock.advance(connections.TELL_S + 1)
            assert not here.limiter.warning
            await be_refused()
        assert {line["event"] for line in told} == {"connections are refused: too many are open"}
        assert [(line["address"], line["open"], line["times"]) for line in told] == [
            ("127.0.0.1", 0, 1),
            ("127.0.0.1", 0, 3),
        ]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX: "])
async def test_whoever_sends_no_whole_request_is_let_go(sent: bytes) -> None:
    async with harness() as here:
        reader, _ = await here.connect(sent)
        await here.until(lambda: here.limiter.open == 1)
        with capture_logs() as told:
            here.clock.advance(connections.HEADER_S)
            assert here.limiter.open == 1
            here.clock.advance(connections.LOOK_S)
            with suppress(ConnectionError):
                assert not await reader.read()
        assert told[0]["event"] == "connections are closed: no request came within 10 s"


@pytest.mark.parametrize("more", [b"X: " + b"y" * 1_000 + b"\r\n", b"\r\n" * 500])
@pytest.mark.parametrize("first", [b"", ASK])
async def test_headers_without_end_are_refused(first: bytes, more: bytes) -> None:
    if more.startswith(b"X"):
        more = more * 50  # fewer than are too many
        first += b"GET / HTTP/1.1\r\n"
    async with harness() as here:
        reader, writer = await here.connect(first)
        with suppress(ConnectionError):
            for _ in range(1_000):
                writer.write(more)
                await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            answer = await reader.read()
        assert not answer or answer.count(b"HTTP/1.1 431") + answer.count(b"400 Bad Request") == 1
        await here.until(lambda: here.limiter.open == 0)


async def test_a_body_is_not_taken_for_headers() -> None:
    async with harness() as here:
        size = 10 * HEADER_BLOCK
        reader, writer = await here.connect(b"POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(10):
            writer.write(bytes(size // 10))
            await writer.drain()
        assert (await reader.readuntil(b"655360")).startswith(b"HTTP/1.1 200")
        writer.write(ASK)
        assert (await reader.readuntil(b"fine")).startswith(b"HTTP/1.1 200")


async def test_what_comes_after_what_is_no_request_is_not_looked_at_and_not_kept() -> None:
    async with harness() as here:
        await here.connect()
        await here.until(lambda: here.limiter.open == 1)
        (handler,) = here.handlers()
        handler.data_received(b"G" * 500_000)
        assert len(handler._messages) == 1
        assert len(repr(handler._messages)) < 100_000
        await here.until(lambda: here.limiter.open == 0)


@pytest.mark.parametrize("framing", [b"1;" + b"x" * 50_000, b"0" * 50_000])
async def test_a_body_that_is_all_framing_is_refused(framing: bytes) -> None:
    async with harness() as here:
        reader, writer = await here.connect(b"POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            for _ in range(2 * FRAMING // len(framing)):
                writer.write(framing)
                await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            answer = await reader.read()
        assert not answer or answer.startswith(b"HTTP/1.1 400")
        await here.until(lambda: here.limiter.open == 0)


async def test_all_answers_together_that_nobody_reads_take_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNSENT", 2 * len(LARGE) + 1)
    async with harness() as here:
        for _ in range(2):
            reader, _ = await here.connect(ASK.replace(b"/", b"/large", 1))
            await reader.readexactly(1)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
        with capture_logs() as told:
            third, _ = await here.connect(ASK.replace(b"/", b"/large", 1))
            with suppress(ConnectionError):
                assert len(await third.read()) < len(LARGE)
        assert told[0]["event"] == "connections are closed: too many answers wait to be read"


async def test_whoever_has_asked_may_wait_for_his_next_request() -> None:
    async with harness() as here:
        reader, writer = await here.connect(ASK)
        await reader.readuntil(b"fine")
        here.clock.advance(10 * connections.HEADER_S)
        writer.write(ASK)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.25)  # counted from the connection too: time to send the request
    async with harness() as here, asyncio.timeout(5):
        reader, _ = await here.connect(ASK)
        assert (await reader.read()).endswith(b"fine")


async def test_whoever_does_not_read_his_answer_is_let_go() -> None:
    async with harness() as here:
        reader, _ = await here.connect(ASK.replace(b"/", b"/large", 1))
        await reader.readexactly(1)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await here.until(lambda: any(handler.writing_paused for handler in here.handlers()))
        with capture_logs() as told:
            here.clock.advance(connections.UNREAD_S + 2 * connections.LOOK_S)
            await here.until(lambda: here.limiter.open == 0)
        assert told[0]["event"] == "connections are closed: the client has read nothing for 60 s"


async def test_whoever_reads_slowly_gets_the_whole_answer() -> None:
    async with harness() as here:
        reader, _ = await here.connect(ASK.replace(b"/", b"/large", 1).replace(b"Host", b"Connection: close\r\nHost"))
        size = 0
        while data := await reader.read(1 << 20):
            size += len(data)
            here.clock.advance(connections.LOOK_S)
        assert size > len(LARGE)


async def test_whoever_is_answered_before_he_has_sent_everything_may_send_only_so_much_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "LINGER_BYTES", 1 << 20)
    async with harness() as here:
        reader, writer = await here.connect(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405")
        assert b"Connection: close" in head
        with pytest.raises(ConnectionError):  # noqa: PT012
            sent = 0
            async with asyncio.timeout(5):
                while sent <= 100_000_000:
                    writer.write(b"1\r\na\r\n" * 10_000)
                    sent += 60_000
                    await writer.drain()


async def test_an_answer_does_not_say_which_library_made_it() -> None:
    async with harness() as here:
        for request in (ASK, b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n"):
            reader, _ = await here.connect(request)
            assert b"Server:" not in await reader.readuntil(b"\r\n\r\n")


async def test_whoever_asks_to_go_on_and_hangs_up_is_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with harness() as here:
        _, writer = await here.connect(ASK.replace(b"Host", b"Expect: 100-continue\r\nContent-Length: 5\r\nHost"))
        writer.transport.abort()
        await here.until(lambda: here.limiter.open == 0)
    assert not caplog.text


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", "local"),
        (None, "local"),
    ],
)
def test_an_address_is_what_one_customer_has(peer: tuple[object, ...] | str | None, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize(
    ("soft", "tcp", "private"),
    [(256, 64, 32), (1_024, 256, 128), (16_384, 1_024, 256), (resource.RLIM_INFINITY, 1_024, 256)],
)
def test_connections_leave_descriptors_for_jobs(
    monkeypatch: pytest.MonkeyPatch, soft: int, tcp: int, private: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert tcp_limits().total == tcp
    assert tcp_limits().of_one_address == tcp // 2
    assert connections.private_limits().total == private
    assert tcp_limits().unread_s == 60
    assert connections.private_limits().unread_s == 3_600, "whoever pages through an answer there has an hour"
