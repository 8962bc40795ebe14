"""A SOCKS proxy, versions 4, 4a and 5, that records what it was asked, and connects everybody to 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.fakes.web_server import listening, pump

GRANTED, NO_SUCH_HOST = 0, 4
IPV4, NAME, IPV6 = 1, 3, 4


@dataclass(slots=True)
class SocksServer:
    port: int = 0
    asked: list[str] = field(default_factory=list)  # "5 example.com:80", "4 127.0.0.1:80 me"
    password: tuple[bytes, bytes] | None = None  # wanted in version 5
    reply: int = GRANTED
    garbage: bytes = b""  # said in place of any answer

    def url(self, scheme: str, user: str = "") -> str:
        return f"{scheme}://{user}127.0.0.1:{self.port}"

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            version = (await reader.readexactly(1))[0]
            if self.garbage:
                writer.write(self.garbage)
            elif version == 4:
                await self._version_4(reader, writer)
            else:
                await self._version_5(reader, writer)
        writer.close()

    async def _version_4(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readexactly(7)
        port, address = int.from_bytes(head[1:3], "big"), socket.inet_ntoa(head[3:7])
        user = (await reader.readuntil(b"\0"))[:-1].decode()
        if address.startswith("0.0.0."):
            address = (await reader.readuntil(b"\0"))[:-1].decode()
        self.asked.append(f"4 {address}:{port} {user}".strip())
        writer.write(bytes([0, 90 if self.reply == GRANTED else 91]) + bytes(6))
        await self._go_on(port, reader, writer)

    async def _version_5(self, reader: StreamReader, writer: StreamWriter) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if not await self._let_in(methods, reader, writer):
            return
        _, _, _, kind = await reader.readexactly(4)
        if kind == NAME:
            address = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            packed = await reader.readexactly(4 if kind == IPV4 else 16)
            address = socket.inet_ntop(socket.AF_INET if kind == IPV4 else socket.AF_INET6, packed)
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"5 {address}:{port}")
        writer.write(bytes([5, self.reply, 0, IPV4]) + bytes(6))
        await self._go_on(port, reader, writer)

    async def _let_in(self, methods: bytes, reader: StreamReader, writer: StreamWriter) -> bool:
        if self.password is None:
            writer.write(b"\x05\x00")
            return True
        if 2 not in methods:
            writer.write(b"\x05\xff")
            return False
        writer.write(b"\x05\x02")
        await reader.readexactly(1)
        user = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        is_right = (user, password) == self.password
        writer.write(b"\x01\x00" if is_right else b"\x01\x01")
        return is_right

    async def _go_on(self, port: int, reader: StreamReader, writer: StreamWriter) -> None:
        if self.reply != GRANTED:
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, far_writer))
            group.create_task(pump(far_reader, writer))


@asynccontextmanager
async def open_socks_server(**settings: object) -> AsyncIterator[SocksServer]:
    proxy = SocksServer(**settings)  # type: ignore[arg-type]  # a test names real fields
    async with listening(proxy.serve) as proxy.port:
        yield proxy
