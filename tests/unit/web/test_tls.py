"""The server over TLS: real sockets on loopback, and certificates made here."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from spyweb.errors import Refused
from spyweb.web import tls
from spyweb.web.connections import ConnectionLimiter, ConnectionLimits
from spyweb.web.serve import Listening, serve_app
from spyweb.web.tls import ServerCertificate, load_context
from tests.fakes.certificates import self_signed
from tests.fakes.clock import FakeClock

ASK = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def put(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """Write a certificate and its key; return their paths."""
    now = datetime.now(tz=UTC)
    key, _, certificate = self_signed(name, now - timedelta(days=1), now + timedelta(days=1)).partition(b"-----BEGIN C")
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(b"-----BEGIN C" + certificate)
    key_file.write_bytes(key)
    return cert_file, key_file


async def answer(request: web.Request) -> web.Response:
    return web.Response(text=f"fine, {request.scheme}")


@asynccontextmanager
async def served(
    certificate: ServerCertificate, limits: ConnectionLimits | None = None
) -> AsyncIterator[tuple[Listening, ConnectionLimiter]]:
    app = web.Application()
    app.router.add_get("/", answer)
    limiter = ConnectionLimiter(limits or ConnectionLimits(100, 100), FakeClock())
    async with serve_app(app, host="127.0.0.1", port=0, connections=limiter, tls=certificate.context) as listening:
        yield listening, limiter


def trusting(certificate: Path, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    if version:
        context.minimum_version = context.maximum_version = version
    return context


async def ask(port: int, context: ssl.SSLContext, name: str = "localhost") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    writer.write(ASK)
    said = await reader.read()
    writer.close()
    return said


async def until_free(limiter: ConnectionLimiter) -> None:
    async with asyncio.timeout(5):
        while limiter.open:  # noqa: ASYNC110 - sockets tell nobody
            await asyncio.sleep(0.01)


def run_on(loop: str, story: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop) as runner:
        runner.run(story)


HELLO = bytes.fromhex("160301020001000001fc0303") + bytes(200)  # the beginning of a handshake


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("sent", [b"", b"\x16", HELLO, ASK, b"\xff" * 100_000, b"\x16\x03\x01\xff\xff" * 1_000])
def test_whatever_is_sent_others_are_answered(tmp_path: Path, loop: str, sent: bytes) -> None:
    cert, key = put(tmp_path)

    async def story() -> None:
        async with served(ServerCertificate(cert, key)) as (listening, limiter), asyncio.timeout(10):
            for is_reset in (True, False):
                _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
                writer.write(sent)
                if is_reset:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                else:
                    with suppress(ConnectionError):
                        await writer.drain()
                writer.transport.abort()
                assert (await ask(listening.port, trusting(cert))).endswith(b"fine, https")
            await until_free(limiter)

    with capture_logs() as told:
        run_on(loop, story())
    assert told == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_are_answered_over_tls(tmp_path: Path, loop: str) -> None:
    cert, key = put(tmp_path)

    async def story() -> None:
        async with served(ServerCertificate(cert, key)) as (listening, limiter):
            assert listening.url == f"https://127.0.0.1:{listening.port}"
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3, None):
                assert (await ask(listening.port, trusting(cert, version))).endswith(b"fine, https")
            await until_free(limiter)

    run_on(loop, story())


async def test_connections_count_before_they_have_shaken_hands(tmp_path: Path) -> None:
    cert, key = put(tmp_path)
    async with (
        served(ServerCertificate(cert, key), ConnectionLimits(3, 3)) as (listening, limiter),
        asyncio.timeout(10),
    ):
        silent = [await asyncio.open_connection("127.0.0.1", listening.port) for _ in range(3)]
        while limiter.open < 3:  # noqa: ASYNC110 - sockets tell nobody
            await asyncio.sleep(0)
        with capture_logs() as told, pytest.raises(OSError):  # noqa: PT011 - however the loop says it
            await ask(listening.port, trusting(cert))
        assert told[0]["event"] == "connections are refused: too many are open"
        for _, writer in silent:
            writer.transport.abort()
        await until_free(limiter)
        assert (await ask(listening.port, trusting(cert))).endswith(b"fine, https")


async def test_all_that_are_allowed_may_be_served_at_once(tmp_path: Path) -> None:
    """A connection that has shaken hands is counted once."""
    cert, key = put(tmp_path)
    async with served(ServerCertificate(cert, key), ConnectionLimits(3, 3)) as (listening, limiter):
        opened = [
            await asyncio.open_connection("127.0.0.1", listening.port, ssl=trusting(cert), server_hostname="localhost")
            for _ in range(3)
        ]
        for reader, writer in opened:
            writer.write(ASK)
            assert (await reader.read()).endswith(b"fine, https")
            writer.close()
        await until_free(limiter)


async def test_who_never_shakes_hands_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.05)
    async with served(ServerCertificate(*put(tmp_path))) as (listening, limiter), asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        assert await reader.read() == b""
        writer.close()
        await until_free(limiter)


async def test_who_shakes_hands_while_the_app_is_exchanged_is_not_answered_by_the_older_one(tmp_path: Path) -> None:
    cert, key = put(tmp_path)
    async with served(ServerCertificate(cert, key)) as (listening, limiter), asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        while not limiter.open:  # noqa: ASYNC110 - sockets tell nobody
            await asyncio.sleep(0)
        limiter.retire_all()
        with suppress(ConnectionError):
            await writer.start_tls(trusting(cert), server_hostname="localhost")
            writer.write(ASK)
            assert await reader.read() == b""
        writer.close()
        await until_free(limiter)


async def test_a_stop_waits_for_no_handshake(tmp_path: Path) -> None:
    async with asyncio.timeout(5):
        async with served(ServerCertificate(*put(tmp_path))) as (listening, limiter):
            _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            while not limiter.open:  # noqa: ASYNC110 - sockets tell nobody
                await asyncio.sleep(0)
    writer.close()


async def test_a_newer_certificate_is_shown_to_whoever_connects_next(tmp_path: Path) -> None:
    cert, key = put(tmp_path, "old.example")
    certificate = ServerCertificate(cert, key)
    async with served(certificate) as (listening, _):
        assert await ask(listening.port, trusting(cert), "old.example")
        put(tmp_path, "new.example")
        os.utime(cert, (1, 1))

        assert certificate.renew()
        assert not certificate.renew()

        assert await ask(listening.port, trusting(cert), "new.example")
        with pytest.raises(ssl.SSLError):
            await ask(listening.port, trusting(cert), "old.example")


def test_a_newer_certificate_that_can_not_be_used_leaves_the_older_one(tmp_path: Path) -> None:
    cert, key = put(tmp_path)
    certificate = ServerCertificate(cert, key)
    cert.write_text("half of it")
    with capture_logs() as told:
        assert not certificate.renew()
        assert not certificate.renew()
    assert [each["event"] for each in told] == ["the newer certificate is not used"]
    put(tmp_path)
    os.utime(cert, (1, 1))
    assert certificate.renew()


def test_what_is_wrong_with_the_files_is_one_line_each(tmp_path: Path) -> None:
    cert, key = put(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = put(tmp_path / "other")
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    absent = tmp_path / "absent.pem"

    def problem(cert: Path, key: Path) -> str:
        with pytest.raises(Refused) as caught:
            load_context(cert, key)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert problem(absent, key) == f"[server] tls_cert: {absent}: No such file or directory"
    assert problem(cert, absent) == f"[server] tls_key: {absent}: No such file or directory"
    assert problem(tmp_path, key) == f"[server] tls_cert: {tmp_path}: Is a directory"
    assert problem(pipe, key) == f"[server] tls_cert: {pipe}: not a regular file"
    assert problem(key, cert) == f"[server] tls_cert: {key}: holds no certificate in PEM"
    assert problem(cert, cert) == f"[server] tls_key: {cert}: holds no private key in PEM"
    assert problem(cert, other) == f"[server] tls_key: {other}: is not the key of the certificate in {cert}"
    assert "is encrypted" in problem(cert, encrypted)
    assert problem(broken, key).startswith(f"[server] tls_cert, tls_key: {broken}, {key}: ")

    key.write_bytes(key.read_bytes() + encrypted.read_bytes())
    load_context(cert, key)  # what is behind the first key is no matter
