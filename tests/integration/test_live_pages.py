"""Live pages over real sockets: kept up to date, resumed, not read, and ended with the server."""

from __future__ import annotations

import asyncio
import re
import time
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from spyweb.clock import RealClock
from spyweb.model import JobId
from spyweb.service import page_hub
from spyweb.service.events import EventHub
from spyweb.service.page_hub import PageHub
from spyweb.views.events import EventType, LogHappened
from spyweb.web.app import tcp_app
from spyweb.web.pages.page import VIEWS, Asked
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.event_stream import RawClient, Received, ServedApp, publish_run, real_hub, serving, until
from tests.fakes.live_page import LinesView, Rows, RowsView

PRICES = JobId("prices")


@dataclass(slots=True)
class LiveApp:
    served: ServedApp
    hub: EventHub
    pages: PageHub
    rows: Rows = field(default_factory=Rows)

    def mark(self) -> str:
        return self.pages.mark(RowsView(self.rows))

    async def connect(
        self, *headers: str, since: str | None = None, view: str = "rows", idle: bool = False
    ) -> RawClient:
        mark = self.mark() if since is None else since
        return await self.served.connect(f"/live?view={view}&since={mark}", *headers, idle=idle)

    def change(self, job: str = "prices", number: int = 1) -> None:
        self.rows.counts[job] = self.rows.counts.get(job, 0) + 1
        publish_run(self.hub, number, job)

    def make_view(self, _asked: Asked, argument: str) -> RowsView:
        return RowsView(self.rows, log=LinesView(JobId(argument)) if argument else None)


@asynccontextmanager
async def live_app(lines: list[str] | None = None) -> AsyncIterator[LiveApp]:
    async def last_lines(job: JobId, count: int, note_place: Callable[[], None]) -> list[str]:
        note_place()
        return lines or []

    hub = real_hub()
    async with TaskGroup() as tasks:
        pages = PageHub(events=hub, clock=RealClock(), tasks=tasks, last_lines=last_lines)
        app = tcp_app(FakeDaemonService(hub=hub, pages=pages, clock=RealClock()))
        async with serving(app) as served:
            opened = LiveApp(served, hub, pages)
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(VIEWS, "rows", opened.make_view)
                yield opened


def shown(received: Received) -> dict[str, str]:
    return dict(re.findall(r'id="([^"]*)">([^<]*)', received.data))


async def test_a_page_is_kept_up_to_date_and_resumed_after_a_cut() -> None:
    async with live_app() as app:
        client = await app.connect()
        assert ("text/event-stream" in client.head, "no-store" in client.head) == (True, True)
        app.change()
        received = await client.next()
        assert (received.event, shown(received)) == ("html", {"row-prices": "1", "verdict": "1"})
        client.close()
        app.change("backup")
        for headers, since in (((f"Last-Event-ID: {received.id}",), "x"), ((), received.id)):
            again = await app.connect(*headers, since=since)
            assert shown(await again.next()) == {"row-backup": "1", "verdict": "2"}


@pytest.mark.parametrize("since", ["", "b00t-99999", "other-1"])
async def test_from_another_mark_there_is_a_reset_and_the_end(since: str) -> None:
    async with live_app() as app:
        client = await app.connect(since=since)
        assert (await client.next()).event == "reset"
        assert await client.ended()
        assert app.pages.open == 0


async def test_there_is_no_view_of_that_name() -> None:
    async with live_app() as app:
        assert (await app.connect(view="nothing")).status == 404


async def test_a_log_is_followed() -> None:
    async with live_app(["2026-01-01T00:00:00.000Z INFO a\rb"]) as app:
        client = await app.connect(view="rows:prices")
        assert (await client.next()).data == '<ol id="log"><li>a\nb</ol>'
        app.hub.publish(EventType.LOG, PRICES, LogHappened(job=PRICES, level="info", text="more", at_ms=1))
        assert (await client.next()).data == '<li data-into="log">more'


async def test_those_that_do_not_read_hold_one_event_and_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_hub, "TICK_S", 0.02)
    monkeypatch.setattr(page_hub, "STALLED_S", 0.5)
    async with live_app() as app:
        app.rows.counts["x" * 30_000] = 1  # a large part, so that buffers fill soon
        for _ in range(20):
            await app.connect(idle=True)
        reading = await app.connect()
        await until(lambda: app.pages.open == 21)
        most = 0
        async with asyncio.timeout(20):
            while app.pages.open > 1:
                app.change("x" * 30_000)
                most = max(most, *(stream.sink.unsent for stream in app.pages._streams))
                reading._rest = ""
                await reading.next()
        assert 0 < most < 100_000


async def test_a_stop_is_not_delayed_by_open_pages() -> None:
    async with live_app() as app:
        for _ in range(5):
            await app.connect()
        await until(lambda: app.pages.open == 5)
        began = time.monotonic()
    assert time.monotonic() - began < 1.0


async def test_the_one_too_many_is_refused() -> None:
    async with live_app() as app:
        clients = [await app.connect() for _ in range(256)]
        assert {client.status for client in clients} == {200}
        assert (await app.connect()).status == 503


async def test_a_browser_that_has_left_is_noticed() -> None:
    async with live_app() as app:
        client = await app.connect()
        await until(lambda: app.pages.open == 1)
        client.close()
        await until(lambda: app.pages.open == 0)


async def test_an_older_proxy_gets_it_without_chunks() -> None:
    async with live_app() as app:
        reader, writer = await asyncio.open_connection("127.0.0.1", app.served.port)
        writer.write(f"GET /live?view=rows&since={app.mark()} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        app.change()
        assert b"event: html\n" in await reader.readuntil(b'id="row-prices">1<')
        app.pages.close()
        assert b"\r\n0\r\n" not in await reader.read()
        writer.close()
        await writer.wait_closed()
