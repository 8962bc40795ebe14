"""Listening on real addresses and sockets, as the daemon does."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import stat
import weakref
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from spyweb.cli.client import find_daemon
from spyweb.endpoints import EndpointAnswer
from spyweb.errors import Refused
from spyweb.settings.socket_path import LIMIT
from spyweb.web.answer import answer_errors
from spyweb.web.body import Body, BodyMemory
from spyweb.web.endpoints import make_response
from spyweb.web.serve import serve_app, serve_socket
from tests.fakes.client import failure
from tests.fakes.daemon_service import FakeDaemonService, a_watched_run
from tests.fakes.daemon_socket import serve_tcp


async def get(url: str, socket_path: Path | None = None, *, key: str | None = None) -> int:
    headers = {"X-SpyWeb-Key": key} if key else {}
    connector = aiohttp.UnixConnector(str(socket_path)) if socket_path else None
    async with aiohttp.ClientSession(connector=connector) as client, client.get(url, headers=headers) as answer:
        await answer.read()
        return answer.status


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- TCP ------------------------------------------------------------------------------------------------------


async def test_port_0_gives_a_free_port_and_its_url() -> None:
    async with serve_tcp(FakeDaemonService(), host="127.0.0.1", port=0) as listening:
        assert listening.url == f"http://127.0.0.1:{listening.port}"
        assert await get(f"{listening.url}/healthz") == 200


async def test_a_port_in_use_is_named_with_the_way_out() -> None:
    async with serve_tcp(FakeDaemonService(), host="127.0.0.1", port=0) as first:
        expected = f"127.0.0.1:{first.port} is in use by another program: choose another with --port"
        with pytest.raises(Refused) as caught:
            async with serve_tcp(FakeDaemonService(), host="127.0.0.1", port=first.port):
                pass
    assert str(caught.value) == expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "*"])
async def test_without_a_key_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(Refused, match="SPYWEB_API_KEY"):
        async with serve_tcp(FakeDaemonService(), host=host, port=0):
            pass


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("no such host", "can't be resolved"),
        ("no..such.host", "can't be resolved"),
        (64 * "x", "can't be resolved"),
        ("192.0.2.1", "is not an address of this machine"),
    ],
)
async def test_an_address_that_can_not_be_is_told_with_the_way_out(host: str, words: str) -> None:
    with pytest.raises(Refused, match=rf"{words}.*--host"):
        async with serve_tcp(FakeDaemonService(api_key="k"), host=host, port=0):
            pass


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
)
async def test_what_is_no_http_is_refused_without_a_line_in_the_log(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_tcp(FakeDaemonService(), host="127.0.0.1", port=0) as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(sent)
        assert await reader.readline() == b"HTTP/1.0 400 Bad Request\r\n"
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        told = json.loads(body)
        assert b"Content-Type: application/json" in head
        assert (set(told), told["code"]) == ({"error", "code", "message", "field"}, "bad_request")
        writer.close()
    assert caplog.text == ""


async def test_a_body_that_is_not_what_its_headers_say_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    async def take(request: web.Request) -> web.Response:
        return web.Response(body=await Body(BodyMemory()).read(request))

    app = web.Application(middlewares=[answer_errors])
    app.router.add_post("/", take)
    async with serve_app(app, host="127.0.0.1", port=0) as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello")
        assert await reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"
        writer.close()
    assert caplog.text == ""


async def test_an_answer_that_nobody_takes_goes_with_whoever_hung_up() -> None:
    """And not when the collector comes by, which in the daemon may be a thousand large answers later."""
    watching: list[weakref.ref[web.Response]] = []
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        large = make_response(EndpointAnswer(200, bytes(20_000_000)))  # more than socket buffers hold
        watching.append(weakref.ref(large, lambda _: gone.set()))
        return large

    app = web.Application()
    app.router.add_get("/", answer)
    gc.disable()
    try:
        async with serve_app(app, host="127.0.0.1", port=0) as listening, asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readline()
            writer.transport.abort()
            await gone.wait()
    finally:
        gc.enable()


async def test_open_connections_do_not_hold_up_the_stop() -> None:
    async with serve_tcp(FakeDaemonService(), host="127.0.0.1", port=0) as listening:
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
    writer.close()
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", listening.port)


# -- the socket -----------------------------------------------------------------------------------------------


async def test_the_socket_lets_in_its_user_alone_and_serves_every_command(tmp_path: Path) -> None:
    async with serve_socket(FakeDaemonService(), tmp_path) as private:
        assert mode_of(private.path) == 0o600
        assert await get("http://spyweb/api/runs", private.path) == 200
    assert not left_in(tmp_path)


async def test_the_longest_key_of_a_command_fits_into_an_address_on_the_socket(tmp_path: Path) -> None:
    key = "%FF" * (128 << 10)
    async with serve_socket(FakeDaemonService(), tmp_path) as private:
        reader, writer = await asyncio.open_unix_connection(str(private.path))
        writer.write(f"GET /api/state/entry?key={key} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()


@pytest.mark.parametrize(
    ("address", "told", "code"),
    [
        ("/" * 100_000, "the address has 100000 characters, at most 8190 are allowed", "too_long"),
        ("/api/runs?" + "a=1&" * 100_000, "the address has 100000 parameters, at most 1000 are allowed", "bad_request"),
    ],
)
async def test_an_address_that_would_hold_up_the_daemon_is_refused(
    tmp_path: Path, address: str, told: str, code: str
) -> None:
    async with serve_socket(FakeDaemonService(), tmp_path) as private:
        reader, writer = await asyncio.open_unix_connection(str(private.path))
        writer.write(f"GET {address} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).partition(b"\r\n\r\n")[2]
        assert json.loads(answer) == failure(told, code)
        writer.close()


async def test_a_long_path_is_no_matter(tmp_path: Path) -> None:
    data_dir = tmp_path / ("d" * LIMIT)
    data_dir.mkdir()
    async with serve_socket(FakeDaemonService(), data_dir) as private:
        assert mode_of(private.path) == 0o600
        daemon = find_daemon(data_dir)
        assert daemon
        assert await asyncio.to_thread(daemon.jobs)
        private.path.unlink()
        assert await private.restore()
    assert not left_in(data_dir)


async def test_the_socket_of_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "spyweb.sock"))
    async with serve_socket(FakeDaemonService(), tmp_path) as private:
        assert await get("http://spyweb/healthz", private.path) == 200


async def test_a_socket_that_was_removed_is_made_again(tmp_path: Path) -> None:
    async with serve_socket(FakeDaemonService(), tmp_path) as private:
        assert not await private.restore()
        (tmp_path / "spyweb.sock").unlink()
        assert await private.restore()
        assert mode_of(private.path) == 0o600
        assert await get("http://spyweb/healthz", private.path) == 200
        assert not await private.restore()
    assert not left_in(tmp_path)


async def test_whoever_stops_watching_closes_the_stream_without_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = FakeDaemonService(events=a_watched_run() * 20_000)  # more than socket buffers hold
    async with serve_socket(service, tmp_path) as private:
        reader, writer = await asyncio.open_unix_connection(str(private.path))
        writer.write(b"POST /api/jobs/prices/run HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readline()
        writer.transport.abort()
        async with asyncio.timeout(5):
            await service.closed.wait()
    assert caplog.text == ""


def test_the_server_and_the_socket_work_on_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def story() -> None:
        async with (
            serve_socket(FakeDaemonService(), tmp_path) as private,
            serve_tcp(FakeDaemonService(), host="localhost", port=0) as listening,
        ):
            assert mode_of(private.path) == 0o600
            assert await get("http://spyweb/api/health", private.path) == 200
            assert await get(f"{listening.url}/healthz") == 200

    uvloop.run(story())
    assert not left_in(tmp_path)
