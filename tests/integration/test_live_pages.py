"""Live pages over real sockets: told of what changes, resumed, and ended with the server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from spyweb.clock import RealClock
from spyweb.events.changes import ChangeHub
from spyweb.events.hub import EventHub
from spyweb.web.app import tcp_app
from spyweb.web.event_streams import PAGE_STREAMS, StreamCounter
from tests.fakes.dashboard import make_dashboard_service
from tests.fakes.event_stream import RawClient, ServedApp, publish_run, real_hub, serving


@dataclass(slots=True)
class LiveApp:
    served: ServedApp
    hub: EventHub
    changes: ChangeHub

    async def mark(self, path: str = "/") -> str:
        """Fetch a page; return its mark."""
        client = await self.served.connect(path, "Connection: close")
        return str(re.findall(r'data-mark="([^"]+)"', (await client.reader.read()).decode())[0])

    async def connect(self, mark: str, *headers: str) -> RawClient:
        return await self.served.connect(f"/?live={mark}", *headers)


@asynccontextmanager
async def live_app() -> AsyncIterator[LiveApp]:
    service = make_dashboard_service(hub=real_hub(), clock=RealClock())
    async with serving(tcp_app(service)) as served:
        yield LiveApp(served, service.events, service.changes)


async def test_a_page_is_told_of_a_change_and_resumed_after_a_cut() -> None:
    async with live_app() as app:
        client = await app.connect(await app.mark())
        assert ("text/event-stream" in client.head, "no-store" in client.head) == (True, True)
        publish_run(app.hub, 1)
        told = await client.marked()
        assert told == app.hub.mark()
        client.close()
        publish_run(app.hub, 2)
        for mark, header in (("x", f"Last-Event-ID: {told}"), (told, "X-Nothing: 1")):
            assert await (await app.connect(mark, header)).marked() == app.hub.mark()


async def test_the_one_too_many_is_refused() -> None:
    app = tcp_app(make_dashboard_service(hub=real_hub(), clock=RealClock()))
    app[PAGE_STREAMS] = StreamCounter(1)
    async with serving(app) as served:
        assert [(await served.connect("/?live=x")).status for _ in range(2)] == [200, 503]


async def test_an_older_proxy_gets_it_without_chunks() -> None:
    async with live_app() as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.served.port)
        writer.write(f"GET /?live={await app.mark()} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"\n\n") == b"retry: 3000\n\n"
        writer.close()
        await writer.wait_closed()
