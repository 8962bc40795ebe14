"""tcp_probe against real servers: what they say, or do not, and what is wrong with their certificates."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
import trustme

from spyweb.clock import RealClock
from spyweb.ops.network import probing
from spyweb.ops.network.address_check import AddressCheck, OwnSockets
from spyweb.ops.network.client import open_client
from spyweb.ops.network.probing import Prober, reason_of
from spyweb.ops.network.request import Probe
from spyweb.ops.network.resolver import LOCALHOST, Address, Resolver
from spyweb.settings.sections import HttpSettings
from tests.fakes.ops import ask, make_call, make_world, table
from tests.fakes.probed import FullQueue

Speak = Callable[[StreamReader, StreamWriter], Awaitable[None]]
CLOSED = (
    "could not connect to 127.0.0.1: the server closed",
    "could not connect to 127.0.0.1: Connection reset by peer",
)
TWO = (Address(socket.AF_INET, "127.0.0.2"), Address(socket.AF_INET, "127.0.0.1"))


def lookup(host: str) -> tuple[Address, ...]:
    return TWO if host == "two.test" else LOCALHOST[:1]


async def probe(
    host: str, port: int, *, tls_of: trustme.CA | None = None, deny_private: bool = False, **options: object
) -> Sequence[object]:
    trust = ssl.create_default_context()
    if tls_of:
        tls_of.configure_trust(trust)
    settings = HttpSettings(deny_private=deny_private)
    async with open_client(settings, RealClock(), lookup=lookup, tls=trust) as client:
        return await ask(make_call(make_world(http=client)), "tcp_probe", host.encode(), port, table(**options))


@asynccontextmanager
async def served(speak: Speak, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the port of a server, which has seen the end of each connection when the test goes on."""
    tasks = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            await speak(reader, writer)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*filter(None, tasks))


async def banner(speak: Speak, **options: Any) -> object:
    """Return what a server is understood to say, or the message."""
    async with served(speak) as port:
        found, message = await probe("127.0.0.1", port, **options)
    return cast("dict[str, object]", found)["banner"] if found else str(message).replace(f":{port}", "")


def saying(*pieces: bytes, then: str = "wait") -> Speak:
    async def speak(_reader: StreamReader, writer: StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        if then == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        if then == "close":
            writer.close()

    return speak


async def test_a_port_that_is_open_is_all_that_is_asked_without_options() -> None:
    async with served(saying()) as port:
        found, message = await probe("127.0.0.1", port)
    assert message is None
    assert found == {"banner": b"", "latency": cast("dict[str, object]", found)["latency"]}


@pytest.mark.parametrize(
    ("speak", "line"),
    [
        (saying(b"220 mail.test ESMTP\r\n250 more"), b"220 mail.test ESMTP"),
        (saying(b"SSH-2.0", b"-x\n", then="close"), b"SSH-2.0-x"),
        (saying(b"login: "), b"login: "),  # a prompt has no end
        (saying(b"half", then="close"), b"half"),
        (saying(b"\r\n"), b""),
    ],
)
async def test_the_first_line_is_the_banner(speak: Speak, line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "QUIET_S", 0.1)
    assert await banner(speak, read=100) == line


async def test_what_is_sent_comes_first_and_is_answered() -> None:
    async def redis(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"+" + await reader.readline())

    assert await banner(redis, send=b"PONG\r\n") == b"+PONG"


async def test_an_address_that_does_not_answer_leaves_time_for_the_others() -> None:
    async with served(saying(b"hello\n")) as port:
        with contextlib.closing(FullQueue("127.0.0.2", port)) as full:
            full.fault = "full"
            found, message = await probe("two.test", port, timeout=1, read=10)
    assert message is None
    assert cast("dict[str, object]", found)["banner"] == b"hello"


async def test_with_tls_the_banner_is_behind_the_handshake() -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("mail.test", "127.0.0.1").configure_cert(context)
    async with served(saying(b"* OK IMAP\r\n"), context) as port:
        for host in ("mail.test", "127.0.0.1"):
            found, message = await probe(host, port, tls_of=authority, tls=True, read=100)
            assert message is None
            assert cast("dict[str, object]", found)["banner"] == b"* OK IMAP"


async def test_what_speaks_no_tls_is_a_message() -> None:
    assert await banner(saying(b"220 hello\r\n"), tls=True) == "TLS with 127.0.0.1 failed: WRONG_VERSION_NUMBER"
    assert await banner(saying(), tls=True, timeout=0.2) == "could not connect to 127.0.0.1: no answer in time"
    assert await banner(saying(then="close"), tls=True) in CLOSED


async def test_with_deny_private_nothing_inside_is_reached() -> None:
    reached: list[object] = []

    async def note(_reader: StreamReader, writer: StreamWriter) -> None:
        reached.append(writer)

    async with served(note) as port:
        for host in ("127.0.0.1", "::1", "rebound.test", "localhost", "127.1", "[::ffff:127.0.0.1]"):
            _, message = await probe(host, port, deny_private=True)
            assert "is a private address, and [http] deny_private is set" in str(message)
    assert reached == []


async def test_so_many_probes_are_at_once_and_the_time_of_the_others_has_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "MOST_AT_ONCE", 2)
    open_now, most = 0, 0

    async def slow(_reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.1)
        open_now -= 1
        writer.write(b"done\n")

    check = partial(AddressCheck, own=OwnSockets(), deny_private=False)
    prober = Prober(Resolver(RealClock()), RealClock(), check, None)
    async with served(slow) as port:
        wanted = Probe(function="tcp_probe", host="127.0.0.1", port=port, read=10, timeout=1)
        found = await asyncio.gather(*(prober.probe(wanted) for _ in range(24)))
    assert [each["banner"] for each in found] == [b"done"] * 24
    assert most == 2


def test_failures_are_in_the_words_of_the_system() -> None:
    assert reason_of(ConnectionResetError()) == "the server closed"
    assert reason_of(EOFError("too long")) == "too long"
    assert reason_of(OSError(113, "?")) == "No route to host"
