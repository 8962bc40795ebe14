"""Read the body of a request, within limits on its size, its time, and the memory of all bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from functools import partial
from hashlib import sha256
from urllib.parse import parse_qsl

from aiohttp import web

from spyweb.clock import RealClock
from spyweb.errors import PoolError
from spyweb.limits import too_many_chunks
from spyweb.model import MIB

LARGEST = 10 * MIB  # bytes of one body
MOST = 128 * MIB  # bytes of all bodies that wait to be answered
PATIENCE_S = 30.0  # for a whole body; for the next piece of a body without an end
TURN = 1 << 16  # bytes read before a pause for other tasks ...
TURN_CHUNKS = 256  # ... or chunks: one costs as much as many bytes
FORM = "application/x-www-form-urlencoded"
LARGEST_FORM, LARGEST_PUBLIC_FORM = MIB, 64 * 1024  # bytes; the second from clients without a key
FORM_FIELDS = 100

CLOCK = RealClock()


class BodyMemory:
    """Counts the memory of all bodies against a limit."""

    def __init__(self, most: int = MOST) -> None:
        self._left = most

    def take(self, size: int) -> None:
        """Take this many bytes.  Raises PoolError when less is left."""
        if size > self._left:
            raise PoolError("too many large requests at once")
        self._left -= size

    def give_back(self, size: int) -> None:
        self._left += size


BODY_MEMORY = web.AppKey("body_memory", BodyMemory)
DIGEST = web.RequestKey("SHA-256 of the body, where a node has signed it", str)


class Body:
    """Reads one body, and counts its memory until `close`."""

    def __init__(self, memory: BodyMemory, largest: int = LARGEST, what: str = "a request's body") -> None:
        self._memory = memory
        self._largest = largest
        self._what = what
        self._size = 0

    async def read(self, request: web.Request) -> bytes:
        """Read all of the body.  Raises HTTPRequestTimeout, and as `take` does."""
        announced = request.content_length or 0
        if announced > self._largest:
            raise self._too_large(announced)
        content = bytearray()
        try:
            async with in_time(), aclosing(pieces(request)) as found:
                async for piece in found:
                    self.take(len(piece))
                    content += piece
            return bytes(content)
        finally:
            # Where the client disconnects, aiohttp's error and this frame hold each other until the garbage collector
            # runs: memory that is given back must be free before.
            content.clear()

    def take(self, size: int) -> None:
        """Count received bytes.  Raises HTTPRequestEntityTooLarge, or PoolError when there is no room."""
        self._memory.take(size)
        self._size += size
        if self._size > self._largest:
            raise self._too_large(self._size)

    def _too_large(self, size: int) -> web.HTTPRequestEntityTooLarge:
        most = f"{self._largest // MIB} MB" if self._largest >= MIB else f"{self._largest // 1024} KB"
        return web.HTTPRequestEntityTooLarge(self._largest, size, text=f"{self._what} may be {most}")

    def close(self) -> None:
        self._memory.give_back(self._size)
        self._size = 0


def media_type_of(request: web.Request) -> str:
    """Return the media type of a request, without parameters, which aiohttp would decode by any codec they name."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_form(request: web.Request, largest: int) -> Mapping[str, str]:
    """Return the fields of a form in UTF-8, the last of each name.  Raises HTTPClientError, and PoolError."""
    if not request.can_read_body:
        return {}
    header = request.headers.get("Content-Type", "").lower().replace(" ", "").replace('"', "")
    if header not in (FORM, f"{FORM};charset=utf-8"):
        raise web.HTTPUnsupportedMediaType(text=f"expected a form: {FORM}, in UTF-8")
    with closing(Body(request.app[BODY_MEMORY], largest, "a form")) as body:
        text = (await body.read(request)).decode("utf-8", "replace")
        parse = partial(parse_qsl, text, keep_blank_values=True, errors="replace", max_num_fields=FORM_FIELDS)
        try:  # in a thread: percent signs alone cost a large form several milliseconds
            return dict(await asyncio.to_thread(parse))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"a form may have {FORM_FIELDS} fields") from error


async def pieces(request: web.Request) -> AsyncGenerator[bytes, None]:
    """Yield a body as it arrives.  Raises HTTPBadRequest where its chunks are too small to be worth their cost.

    It pauses regularly: a client that sends faster than the daemon reads would otherwise hold up all others.
    """
    size = chunks = turn = turn_chunks = 0
    digest = sha256() if DIGEST in request else None
    while True:
        async with in_time():
            piece, is_end_of_chunk = await request.content.readchunk()
        if not piece and not is_end_of_chunk:
            if digest and digest.hexdigest() != request[DIGEST]:
                raise web.HTTPBadRequest(text="the body is not the one that was signed")
            return
        if digest:
            digest.update(piece)
        size += len(piece)
        chunks += is_end_of_chunk
        if too_many_chunks(chunks, size):
            raise web.HTTPBadRequest(text=f"the body has {chunks} chunks for {size} bytes: send larger ones")
        if size - turn >= TURN or chunks - turn_chunks >= TURN_CHUNKS:
            turn, turn_chunks = size, chunks
            await CLOCK.sleep(0)
        if piece:
            yield piece


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
