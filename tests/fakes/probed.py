"""Servers that are checked: each has one port, and a fault that a test may change while it serves.

    async with open_http_target() as site:
        site.faults["/health"] = "silent"       # "": all is well

HTTP has a fault for each path, TLS and TCP one for the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import trustme

from tests.fakes.certificates import self_signed
from tests.fakes.web_server import listening

NAME = "site.example"  # in the certificates that are of the right name
LINE, PIECE = b"220 ready\r\n", b"." * 65_536
SLOW_S = 1.5
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what is closed is reset


@dataclass(slots=True)
class Target:
    port: int = 0
    fault: str = ""


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _listening(serve: Serve) -> AbstractAsyncContextManager[int]:
    """Give the port; clients may hang up as they like."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    return listening(served)


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def _pour(writer: asyncio.StreamWriter, piece: bytes = PIECE) -> None:
    """Send the same until the client has enough."""
    while True:
        writer.write(piece)
        await writer.drain()


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.05)


# HTTP


@dataclass(slots=True)
class HttpTarget(Target):
    pages: dict[str, bytes] = field(default_factory=dict)  # what is served besides the usual answer
    faults: dict[str, str] = field(default_factory=dict)  # by path
    asked: list[str] = field(default_factory=list)  # paths

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def http_answer(body: bytes, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    lines = {"Content-Type": kind, "Content-Length": len(body), "Connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


_STILL: Mapping[str, Callable[[str], bytes]] = {  # what a fault sends, and no more; then it hangs up
    "error": lambda _: http_answer(b'{"state": "down"}', "500 Internal Server Error"),
    "busy": lambda _: http_answer(b"", "503 Service Unavailable", **{"Retry-After": "120"}),
    "missing": lambda _: http_answer(b"not here", "404 Not Found", "text/plain"),
    "wrong": lambda _: http_answer(b'{"state": "broken"}'),
    "no json": lambda _: http_answer(b"<h1>Welcome to nginx!</h1>", kind="text/html"),
    "deep json": lambda _: http_answer(b"[" * 100_000),
    "empty": lambda _: http_answer(b""),
    "loop": lambda path: http_answer(b"", "302 Found", Location=path),
    "garbage": lambda _: b"SSH-2.0-OpenSSH_9.7\r\n",
    "cut": lambda _: http_answer(b'{"sta', **{"Content-Length": "500"}),
    "hangs up": lambda _: b"",
}
_MOVING: Mapping[str, bytes] = {  # what a fault sends at first
    "silent": b"",
    "dripping": b"HTTP/1.1 200 OK\r\n\r\n",
    "endless body": b"HTTP/1.1 200 OK\r\n\r\n",
    "endless head": b"HTTP/1.1 200 OK\r\n",
}


@asynccontextmanager
async def open_http_target() -> AsyncIterator[HttpTarget]:
    """Serve JSON, or `pages`, at any path.

    Faults are those of _STILL and _MOVING; "reset", "slow", and "flaky": each first try fails.
    """
    target = HttpTarget()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path = head.split(" ")[1]
        target.asked.append(path)
        fault = target.faults.get(path, "")
        if fault == "flaky":
            fault = "error" if target.asked.count(path) % 2 else ""
        if fault == "reset":
            _reset(writer)
        elif fault in _MOVING:
            writer.write(_MOVING[fault])
            await _move(fault, reader, writer)
        else:
            await asyncio.sleep(SLOW_S if fault == "slow" else 0)
            well = http_answer(target.pages.get(path, b'{"state": "ok"}'))
            writer.write(_STILL[fault](path) if fault in _STILL else well)
            await writer.drain()

    async with _listening(serve) as target.port:
        yield target


async def _move(fault: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if fault == "silent":
        await reader.read()
    elif fault == "dripping":
        await _drip(writer)
    else:
        await _pour(writer, PIECE if fault == "endless body" else b"X-More: " + PIECE[:1000] + b"\r\n")


# TCP


@asynccontextmanager
async def open_tcp_target() -> AsyncIterator[Target]:
    """Greet each connection with a line; or be "silent", "endless" or "wrong", hang up, or "reset" it."""
    target = Target()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if target.fault == "reset":
            _reset(writer)
        elif target.fault == "endless":
            await _pour(writer)
        elif target.fault != "hangs up":
            writer.write({"silent": b"", "wrong": b"421 try later\r\n"}.get(target.fault, LINE))
            await reader.read()

    async with _listening(serve) as target.port:
        yield target


# TLS

_LONG, _DAY = timedelta(days=80), timedelta(days=1)


class FullQueue:
    """A port of which nobody takes a connection: once its queue is full, the next one waits for ever."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._listener = socket.create_server((host, port), backlog=0)
        self._listener.setblocking(False)
        self._waiting: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]

    @property
    def fault(self) -> str:
        return "full" if self._waiting else ""

    @fault.setter
    def fault(self, fault: str) -> None:
        while fault and len(self._waiting) < 4:
            self._waiting.append(waiting := socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(self._listener.getsockname())
        while self._waiting and not fault:
            self._waiting.pop().close()
        with contextlib.suppress(BlockingIOError):
            while not fault:
                self._listener.accept()[0].close()

    def close(self) -> None:
        self.fault = ""
        self._listener.close()


def make_contexts(authority: trustme.CA) -> dict[str, ssl.SSLContext]:
    """Make a server's context for each thing that may be wrong with its certificate; "" is right for 80 days.

    "no chain" leaves out the certificate between its own and the authority's.
    """
    now = datetime.now(UTC)

    def signed(ends: datetime, by: trustme.CA = authority) -> trustme.LeafCert:
        return by.issue_cert(NAME, "127.0.0.1", not_before=now - _LONG, not_after=ends)

    certificates = {
        "": signed(now + _LONG + _DAY / 2),
        "expired": signed(now - 2 * _DAY),
        "soon": signed(now + 5 * _DAY + _DAY / 2),
        "wrong name": authority.issue_cert("other.example", not_after=now + _LONG),
    }
    contexts = {fault: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for fault in (*certificates, "no chain", "self-signed")}
    for fault, certificate in certificates.items():
        certificate.configure_cert(contexts[fault])
    below = signed(now + _LONG, by=authority.create_child_ca())
    with trustme.Blob(below.private_key_pem.bytes() + below.cert_chain_pems[0].bytes()).tempfile() as pem:
        contexts["no chain"].load_cert_chain(pem)
    with trustme.Blob(self_signed(NAME, now - _LONG, now + _LONG)).tempfile() as pem:
        contexts["self-signed"].load_cert_chain(pem)
    return contexts


@asynccontextmanager
async def open_tls_target(authority: trustme.CA) -> AsyncIterator[Target]:
    """Serve TLS handshakes with whatever certificate the fault says; or be "plain", or hang up."""
    target, contexts = Target(), make_contexts(authority)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if target.fault == "plain":
            writer.write(LINE)
        elif target.fault != "hangs up":
            await writer.start_tls(contexts[target.fault])
        if target.fault != "hangs up":
            await reader.read()

    async with _listening(serve) as target.port:
        yield target
