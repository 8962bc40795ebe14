"""Look up host names through the system's resolver, without letting slow hosts starve the others.

getaddrinfo can't be interrupted: each lookup has its own daemon thread, which may stay stuck long after the lookup was
given up, and the number of threads is limited.  A host has at most one lookup under way, shared by all callers.
Some threads are reserved for hosts that were found before, and some for all hosts that are not known to be slow.
Addresses are kept for a while, failures for a shorter time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from asyncio import AbstractEventLoop, Future
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.limits import ADDRESSES, HOST
from spyweb.ops.network.address_check import is_literal

T = TypeVar("T")

KEEP_S = 30.0
KEEP_FAILURE_S = 5.0
MOST_KEPT = 4096  # hosts
SLOW_AFTER_S = 2.0
GIVE_UP_S = 10.0


class Priority(IntEnum):
    """The priority of a host, by its past lookups; the value is how many threads may then be busy."""

    SLOW = 32
    NEW = 192
    PROVEN = 256


class Address(Struct, frozen=True):
    family: int
    host: str


Lookup = Callable[[str], tuple[Address, ...]]  # in a thread; raises OSError


class Resolution(Struct, frozen=True):
    addresses: tuple[Address, ...] = ()
    error: str | None = None


NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
LOCALHOST = (Address(socket.AF_INET, "127.0.0.1"), Address(socket.AF_INET6, "::1"))


def ask_system(host: str) -> tuple[Address, ...]:
    # As bytes: text would go through Python's idna codec, which refuses names that resolve (`a_b`, long labels).
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return tuple(dict.fromkeys(Address(family, str(address[0])) for family, _, _, _, address in found))


class HostLookup(Struct, eq=False):
    """A lookup of one host: waiting for a thread, or in one."""

    host: str
    asked: Future[Resolution]
    began_at: float | None = None

    def finish(self, resolution: Resolution) -> None:
        if not self.asked.done():
            self.asked.set_result(resolution)


class Resolver(AbstractResolver):
    """The resolver of the HTTP session."""

    def __init__(self, clock: Clock, lookup: Lookup = ask_system) -> None:
        self._clock = clock
        self._lookup = lookup
        self._kept: OrderedDict[str, tuple[Resolution, float]] = OrderedDict()  # with the time until which it is kept
        self._priorities: OrderedDict[str, Priority] = OrderedDict()
        self._lookups: dict[str, HostLookup] = {}
        self._waiting: dict[Priority, deque[HostLookup]] = {each: deque() for each in reversed(Priority)}
        self.busy = 0  # threads that are in a lookup, stuck ones included

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host.  Raises OSError."""
        resolution = await self._look_up(host.lower())
        if resolution.error is not None:
            raise OSError(resolution.error)
        found = [
            ResolveResult(hostname=host, host=each.host, port=port, family=each.family, proto=0, flags=NUMERIC)
            for each in resolution.addresses
            if not family or family == each.family
        ]
        if not found:
            raise OSError("it has no address")  # aiohttp assumes that there is one
        return found

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses of a host, which may be one itself.  Raises OSError."""
        return [host] if is_literal(host) else [each["host"] for each in await self.resolve(host)]

    async def close(self) -> None:
        """End the waiting of all callers; threads that are stuck end with the process."""
        for lookup in self._lookups.values():
            lookup.finish(Resolution(error="the daemon is stopping"))
        for queue in self._waiting.values():
            queue.clear()

    async def _look_up(self, host: str) -> Resolution:
        """Return what is known of a host, or wait for its lookup, which outlives a caller that stops waiting."""
        if host.rstrip(".").rpartition(".")[2] == "localhost":
            return Resolution(LOCALHOST)
        if len(host) > HOST or not host.isascii():
            return Resolution(error="not a host name")
        kept, until = self._kept.get(host, (None, 0.0))
        if kept is not None and until > self._clock.monotonic():
            return kept
        lookup, asked = self._lookups.get(host), asyncio.get_running_loop().create_future()
        if lookup is None:
            lookup = self._lookups[host] = HostLookup(host, asked)
            self._waiting[self._priorities.get(host, Priority.NEW)].append(lookup)
            self._begin_waiting()
        elif lookup.asked.done():  # it was given up, and its thread is still stuck
            lookup.asked = asked
        deadline = self._clock.call_later(GIVE_UP_S, lambda: self._give_up(lookup))
        try:
            return await asyncio.shield(lookup.asked)
        finally:
            deadline.cancel()

    def _begin_waiting(self) -> None:
        """Begin the waiting lookups for which there are threads, the highest priority first."""
        loop = asyncio.get_running_loop()
        for priority, queue in self._waiting.items():
            while queue and self.busy < priority:
                lookup = queue.popleft()
                lookup.began_at = self._clock.monotonic()
                self.busy += 1
                name = f"lookup {lookup.host}"
                thread = threading.Thread(target=self._work, args=(loop, lookup), name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system has no thread left
                    loop.call_soon(self._finish, lookup, Resolution(error=str(error)))

    def _work(self, loop: AbstractEventLoop, lookup: HostLookup) -> None:
        """Look the host up, in a thread."""
        try:
            resolution = Resolution(self._lookup(lookup.host)[:ADDRESSES])
        except OSError as error:
            resolution = Resolution(error=error.strerror or str(error))
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(self._finish, lookup, resolution)

    def _finish(self, lookup: HostLookup, resolution: Resolution) -> None:
        self.busy -= 1
        self._lookups.pop(lookup.host, None)
        took = self._clock.monotonic() - (lookup.began_at or 0)
        _remember(self._priorities, lookup.host, Priority.SLOW if took > SLOW_AFTER_S else Priority.PROVEN)
        self._keep(lookup.host, resolution)
        lookup.finish(resolution)
        self._begin_waiting()

    def _give_up(self, lookup: HostLookup) -> None:
        """End the waiting of all callers; a lookup that has not begun is cancelled, one that has keeps its thread."""
        resolution = Resolution(error=f"no answer within {GIVE_UP_S:.0f} s")
        if lookup.began_at is None:
            self._lookups.pop(lookup.host, None)
            for queue in self._waiting.values():
                with contextlib.suppress(ValueError):
                    queue.remove(lookup)
        else:
            _remember(self._priorities, lookup.host, Priority.SLOW)
            self._keep(lookup.host, resolution)
        lookup.finish(resolution)

    def _keep(self, host: str, resolution: Resolution) -> None:
        lasts = KEEP_S if resolution.error is None else KEEP_FAILURE_S
        _remember(self._kept, host, (resolution, self._clock.monotonic() + lasts))


def _remember(kept: OrderedDict[str, T], host: str, value: T) -> None:
    kept[host] = value
    kept.move_to_end(host)
    if len(kept) > MOST_KEPT:
        kept.popitem(last=False)
