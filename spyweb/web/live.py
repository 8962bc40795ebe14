"""Keep a page in a browser up to date: one stream of events, served by the hub of pages.

What is sent, and how a page takes part: `service/page_hub.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import HttpVersion11, web

from spyweb.service.events import RETRY_MS
from spyweb.service.page_hub import RESET, PageView
from spyweb.web.api.route import SERVICE
from spyweb.web.event_streams import EventStreams, hold_little

HIGH = 1 << 20  # bytes; below, a write returns at once: the hub leaves out who has not taken its last event
HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # has nginx pass on each event at once
}


PAGE_STREAMS = web.AppKey("streams of pages", EventStreams)


class Chunks:
    """Frames what is sent to many as one chunk for all of them: a copy for each would be most of what they hold."""

    def __init__(self) -> None:
        self._data = self._chunk = b""

    def of(self, data: bytes) -> bytes:
        if data is not self._data:
            self._data, self._chunk = data, b"%x\r\n%b\r\n" % (len(data), data)
        return self._chunk


CHUNKS = web.AppKey("what was framed the last", Chunks)


async def follow_page(request: web.Request, view: PageView) -> web.StreamResponse:
    """Keep a page up to date until it is closed."""
    pages = request.app[SERVICE].pages
    over = asyncio.Event()
    with request.app[PAGE_STREAMS].one(request, over.set):
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        hold_little(request).set_write_buffer_limits(high=HIGH)
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        mark = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        stream = pages.join(view, mark, ResponseSink(request, response, over))
        if stream is None:
            await response.write(RESET)
            return response
        try:
            await over.wait()
        finally:
            pages.leave(stream)
    return response


class ResponseSink:
    """The answer to a page that goes on."""

    def __init__(self, request: web.Request, response: web.StreamResponse, over: asyncio.Event) -> None:
        self._request = request
        self._response = response
        self._over = over

    @property
    def is_gone(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    @property
    def unsent(self) -> int:
        transport = self._request.transport
        return transport.get_write_buffer_size() if transport else 0

    async def send(self, data: bytes) -> None:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        if self._request.version >= HttpVersion11:
            transport.write(self._request.app[CHUNKS].of(data))
        else:
            with suppress(ConnectionError):
                await self._response.write(data)

    def abort(self) -> None:
        if self._request.transport:
            self._request.transport.abort()
        self.end()

    def end(self) -> None:
        self._over.set()
