"""tls_probe against real TLS servers: a real handshake with whatever certificate there is."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from spyweb.clock import RealClock
from spyweb.ops.network.certificate import trusting_context
from spyweb.ops.network.client import open_client
from spyweb.ops.network.resolver import LOCALHOST, Address
from spyweb.settings.sections import HttpSettings
from tests.fakes.certificates import dhe_only, self_signed
from tests.fakes.ops import ask, make_call, make_world
from tests.fakes.web_server import listening, open_web_server


def lookup(host: str) -> tuple[Address, ...]:
    return LOCALHOST[:1]


async def probe(host: str, port: int, **settings: object) -> Sequence[object]:
    chosen = HttpSettings(**{"timeout_ms": 3_000, **settings})  # type: ignore[arg-type]  # a test names real settings
    async with open_client(chosen, RealClock(), lookup=lookup) as client:
        return await ask(make_call(make_world(http=client, clock=RealClock())), "tls_probe", host.encode(), port)


@asynccontextmanager
async def served(tls: ssl.SSLContext) -> AsyncIterator[int]:
    async with open_web_server(tls) as server:
        yield server.port


@asynccontextmanager
async def speaking(answer: bytes) -> AsyncIterator[int]:
    """A server that says this to whatever it hears, or nothing at all; gone when the test goes on."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(10)
            writer.write(answer)
            if not answer:
                await reader.read()
        writer.close()
        gone.set()

    async with listening(serve) as port:
        yield port
        await asyncio.wait_for(gone.wait(), 5)


def context(tmp_path: Path, begins: datetime, ends: datetime) -> ssl.SSLContext:
    pem = tmp_path / "server.pem"
    pem.write_bytes(self_signed("self.example", begins, ends))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    return tls


@pytest.mark.parametrize("days", [30, -30], ids=["self-signed", "expired"])
async def test_a_certificate_that_nobody_would_trust_is_told_of(tmp_path: Path, days: int) -> None:
    now = datetime.now(UTC)
    tls = context(tmp_path, now - timedelta(days=60), now + timedelta(days=days, hours=1))
    async with served(tls) as port:
        found, error = await probe("127.0.0.1", port)
    assert error is None
    assert isinstance(found, dict)
    assert found["subject"] == found["issuer"] == "CN=self.example"
    assert found["names"] == []
    assert found["days_left"] == days


async def test_the_name_is_told_so_that_each_host_shows_its_own() -> None:
    authority = trustme.CA()
    seen: list[str | None] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("one.example").configure_cert(tls)
    tls.sni_callback = lambda _, name, __: seen.append(name)
    async with served(tls) as port:
        found, _ = await probe("one.example", port)
    assert seen == ["one.example"]
    assert isinstance(found, dict)
    assert found["names"] == ["one.example"]


async def test_a_handshake_of_any_length_is_another_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    class Watched(ssl.SSLObject):
        def do_handshake(self) -> None:
            threads.append(threading.get_ident())
            super().do_handshake()

    monkeypatch.setattr(trusting_context(), "sslobject_class", Watched)
    async with served(dhe_only(trustme.CA(), "dhe.example", 2_048, tmp_path)) as port:
        found, error = await probe("dhe.example", port)
    assert error is None
    assert isinstance(found, dict)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x03\x00\x10\x02\x00", b"SSH-2.0-OpenSSH\r\n"])
async def test_a_server_that_speaks_no_tls_or_closes_in_the_handshake_is_a_message(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        writer.write(said)
        writer.close()

    async with listening(serve) as port:
        found, message = await probe("closing.example", port)
    assert found is None
    assert str(message).startswith(f"TLS with closing.example:{port} failed: ")


async def test_a_handshake_without_end_is_given_up() -> None:
    """Requests to begin again are ignored in a handshake, however many they are."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"\x16\x03\x03\x40\x00" + b"\0\0\0\0" * 4_096)
                await writer.drain()
        writer.close()

    async with listening(serve) as port:
        found, message = await probe("endless.example", port)
    assert found is None
    assert message == f"TLS with endless.example:{port} failed: the handshake has no end: more than 1048576 bytes"


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with speaking(b"") as port:
        found, message = await probe("silent.example", port, timeout_ms=200)
    assert found is None
    assert message == f"TLS with silent.example:{port} failed: no answer in time"
