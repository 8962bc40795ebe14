"""Limits the requests of all monitors to one host at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from spyweb.errors import FetchError

MOST_WAITING = 1_000  # requests to one host


class HostSlot(Struct, eq=False):
    room: asyncio.Semaphore
    users: int = 0  # under way, and waiting


class HostSlots:
    """Lets so many requests to one host go on at a time; the others wait, in their order."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._hosts: dict[str, HostSlot] = {}

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncIterator[None]:
        """Wait for the host's turn, and hold it until the block is left.  Raises FetchError if too many wait."""
        slot = self._hosts.setdefault(host, HostSlot(asyncio.Semaphore(self._per_host)))
        if slot.users >= self._per_host + MOST_WAITING:
            limit = f"[http] per_host = {self._per_host}"
            raise FetchError("connect", f"{MOST_WAITING:,} requests of monitors wait for {host} already: {limit}")
        slot.users += 1
        try:
            async with slot.room:
                yield
        finally:
            slot.users -= 1
            if not slot.users:
                del self._hosts[host]
