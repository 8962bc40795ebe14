"""Answer with one JSON object a line, some of them for as long as somebody listens.

Each has a buffer of its own, so there are only so many at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
import structlog
from aiohttp import web

from spyweb.errors import SpywebError
from spyweb.store.interchange.lines import END
from spyweb.views.jobs import to_json
from spyweb.web.answer import describe
from spyweb.web.event_streams import OPEN_STREAMS

log = structlog.get_logger()

NDJSON = {"Content-Type": "application/x-ndjson"}
FLUSH = 1 << 16  # bytes of lines sent at a time
UNREAD_S = 300.0  # in which whoever watches takes nothing, as with a terminal that is stopped


async def stream(
    request: web.Request,
    pieces: AsyncGenerator[bytes, None],
    about_errors: Mapping[str, str] | None = None,
    unread_s: float | None = None,
    headers: Mapping[str, str] = NDJSON,
) -> web.StreamResponse:
    """Send each piece, of whole lines, as it comes; a first piece is sent even when it is empty.

    A client that takes nothing for `unread_s` seconds is hung up on: what is sent as it happens waits in memory.

    An error before the first is a plain answer; after it the status line has left, so it is a line of its own; of
    another type than lines of JSON, the answer breaks off: without its end nobody takes it for whole.
    """
    with request.app[OPEN_STREAMS].one(request):
        async with aclosing(pieces):
            first = await anext(pieces)
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            try:
                await response.write(first)
                async for piece in pieces:
                    async with asyncio.timeout(unread_s):
                        await response.write(piece)
            except TimeoutError:
                response.force_close()
                if request.transport:
                    request.transport.abort()
                return response
            except SpywebError as error:
                if headers is not NDJSON:
                    log.warning("an answer breaks off", path=request.path, reason=str(error))
                    if request.transport:
                        request.transport.abort()
                    return response
                await response.write(
                    to_json({**(about_errors or {}), **msgspec.structs.asdict(describe(error))}) + b"\n"
                )
        await response.write_eof()
        return response


async def counted(lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield many lines at a time, and at the end one that says how many there were.

    Without it, a stream that was cut off would be taken for a whole one.
    """
    count, size, gathered = 0, 0, list[bytes]()
    async with aclosing(lines):
        async for line in lines:
            count += 1
            size += len(line)
            gathered.append(line)
            if size >= FLUSH:
                yield b"".join(gathered)
                gathered.clear()
                size = 0
    gathered.append(b"%s%d}\n" % (END, count))
    yield b"".join(gathered)
