"""A raw client of a stream of events, over a real socket, which may also not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web

from spyweb.clock import RealClock
from spyweb.events.happenings import EventType, RunHappened
from spyweb.events.hub import EventHub, Topic
from spyweb.model import JobId, RunId
from spyweb.web.serve import serve_app

PATIENCE = 10.0
FEW_BYTES = 4096


@dataclass(slots=True)
class Received:
    event: str
    id: str
    data: str

    @property
    def fields(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.data)
        return found


@dataclass(slots=True)
class RawClient:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    head: str = ""
    mark: str = ""
    _rest: str = ""
    comments: list[str] = field(default_factory=list)

    async def begin(self) -> RawClient:
        async with asyncio.timeout(PATIENCE):
            self.head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        self.status = int(self.head.split()[1])
        return self

    async def next(self) -> Received:
        """Return the next event; what has no name only says where the client is."""
        async with asyncio.timeout(PATIENCE):
            while True:
                while "\n\n" not in self._rest:
                    self._rest += await self._chunk()
                block, _, self._rest = self._rest.partition("\n\n")
                found = self._read(block)
                if found:
                    return found

    async def marked(self) -> str:
        """Wait until it is known where the client is; return the mark."""
        async with asyncio.timeout(PATIENCE):
            while not self.mark:
                self._rest += await self._chunk()
                while "\n\n" in self._rest:
                    block, _, self._rest = self._rest.partition("\n\n")
                    assert self._read(block) is None
        return self.mark

    async def ended(self) -> bool:
        """Wait until the server has ended the stream, or the connection."""
        with suppress(ConnectionError, EOFError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await self._chunk()
        return True

    async def _chunk(self) -> str:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        if not size:
            raise EOFError
        chunk = await self.reader.readexactly(size + 2)
        return chunk[:-2].decode().replace("\r\n", "\n")

    def _read(self, block: str) -> Received | None:
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        self.comments += fields.get("", [])
        self.mark = fields.get("id", [self.mark])[0]
        if "event" not in fields:
            return None
        return Received(fields["event"][0], self.mark, "\n".join(fields["data"]))

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class ServedApp:
    port: int
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self, path: str, *headers: str, idle: bool = False, method: str = "GET") -> RawClient:
        """Ask for a stream; an idle client has small buffers and does not read."""
        connection = socket.socket()
        connection.setblocking(False)
        if idle:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW_BYTES)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=FEW_BYTES if idle else 1 << 20)
        lines = "".join(f"{header}\r\n" for header in headers)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        client = RawClient(reader, writer)
        self.clients.append(client)
        return client if idle else await client.begin()

    async def close(self) -> None:
        for client in self.clients:
            client.writer.transport.abort()
        for client in self.clients:
            with suppress(ConnectionError):
                await client.writer.wait_closed()


def real_hub() -> EventHub:
    return EventHub(RealClock(), "b00t", lambda _hub, _topic: lambda: None)


def publish_run(hub: EventHub, number: int, job: str = "prices", reason: str = "") -> None:
    happened = RunHappened(what="began", job=JobId(job), run=RunId(number), reason=reason)
    hub.publish(EventType.RUN, JobId(job), happened)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - nobody tells a test
            await asyncio.sleep(0.01)


async def listened_to(hub: EventHub, kind: EventType = EventType.RUN, job: JobId | None = None) -> None:
    await until(lambda: hub.wants(Topic(kind, job)))


def followers(hub: EventHub) -> int:
    """Return how many follow."""
    return len({id(getattr(ear, "__self__", ear)) for kept in hub._kept.values() for ear in kept.ears})


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[ServedApp]:
    async with serve_app(app, host="127.0.0.1", port=0) as listening:
        served = ServedApp(listening.port)
        try:
            yield served
        except BaseException:
            await served.close()
            raise
    await served.close()
