"""Reading the body of a request: no more of it than may be, no longer than may be, and of all together only so much."""

from __future__ import annotations

import asyncio

from aiohttp import web

from spyweb.errors import PoolError
from spyweb.model import MIB

LARGEST = 10 * MIB  # bytes of one body
MOST = 128 * MIB  # bytes of all bodies that wait to be answered
PATIENCE_S = 30.0  # for a whole body


class Room:
    """What all bodies together may take."""

    def __init__(self, most: int = MOST) -> None:
        self._left = most

    def take(self, size: int) -> None:
        """Raises PoolError when there is no room."""
        if size > self._left:
            raise PoolError("too many large requests at once")
        self._left -= size

    def give_back(self, size: int) -> None:
        self._left += size


class Body:
    """One body; `close` it when it is not needed any more."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    async def read(self, request: web.Request) -> bytes:
        """Raises HTTPRequestEntityTooLarge, HTTPRequestTimeout, or PoolError when there is no room."""
        announced = request.content_length or 0
        if announced > LARGEST:
            raise too_large(announced)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._read(request)
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    async def _read(self, request: web.Request) -> bytes:
        content = bytearray()
        try:
            async for chunk in request.content.iter_any():
                self._room.take(len(chunk))
                self._size += len(chunk)
                content += chunk
                if self._size > LARGEST:
                    raise too_large(self._size)
            return bytes(content)
        finally:
            # Where whoever sends it hangs up, aiohttp's error and this frame hold each other until the collector comes
            # by: what is given back to the room must be free.
            content.clear()

    def close(self) -> None:
        self._room.give_back(self._size)
        self._size = 0


def too_large(size: int) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(
        max_size=LARGEST, actual_size=size, text=f"a request's body may be {LARGEST // MIB} MB"
    )
