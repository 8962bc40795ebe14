"""Names to addresses, through the system's resolver, so that hosts whose name servers hang can't starve the others.

getaddrinfo can't be interrupted: each lookup has a daemon thread of its own, which may stay stuck long after the
lookup was given up, and their number is limited.  One host has at most one lookup in flight, shared by all who ask.
A host that has answered before may use threads that a new one may not, and a new one threads that hosts known to be
slow may not.  Answers are kept for a while, failures for a short one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from asyncio import AbstractEventLoop, Future
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from aiohttp.abc import AbstractResolver, ResolveResult

from spyweb.clock import Clock
from spyweb.limits import ADDRESSES, HOST

KEEP_S = 30.0
KEEP_FAILURE_S = 5.0
MOST_KEPT = 4096  # hosts
PATIENCE_S = 2.0  # a host that takes longer is slow
GIVE_UP_S = 10.0


class Standing(IntEnum):
    """What is known of a host; the value is how many threads may be busy for a lookup of it to begin."""

    SLOW = 32
    NEW = 192
    PROVEN = 256


@dataclass(frozen=True, slots=True)
class Address:
    family: int
    host: str


Lookup = Callable[[str], tuple[Address, ...]]  # in a thread; raises OSError


@dataclass(frozen=True, slots=True)
class Answer:
    addresses: tuple[Address, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    answer: Answer
    until: float


NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
LOCALHOST = (Address(socket.AF_INET, "127.0.0.1"), Address(socket.AF_INET6, "::1"))


def ask_system(host: str) -> tuple[Address, ...]:
    # bytes, since a text would go through Python's idna codec, which refuses names that resolve (`a_b`, long labels)
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return tuple(dict.fromkeys(Address(family, str(address[0])) for family, _, _, _, address in found))


class Flight:
    """A lookup of one host: waiting for a thread, or in one."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.asked: Future[Answer] = asyncio.get_running_loop().create_future()
        self.began_at: float | None = None

    def finish(self, answer: Answer) -> None:
        if not self.asked.done():
            self.asked.set_result(answer)


class Resolver(AbstractResolver):
    """The resolver of the one HTTP session."""

    def __init__(self, clock: Clock, lookup: Lookup = ask_system) -> None:
        self._clock = clock
        self._lookup = lookup
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._standing: OrderedDict[str, Standing] = OrderedDict()
        self._flights: dict[str, Flight] = {}
        self._waiting: dict[Standing, deque[Flight]] = {each: deque() for each in reversed(Standing)}
        self._busy = 0

    @property
    def busy(self) -> int:
        """How many threads are in a lookup, stuck ones included."""
        return self._busy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host.  Raises OSError."""
        answer = await self._answer(host.lower())
        if answer.error is not None:
            raise OSError(answer.error)
        found = [
            ResolveResult(hostname=host, host=each.host, port=port, family=each.family, proto=0, flags=NUMERIC)
            for each in answer.addresses
            if not family or family == each.family
        ]
        if not found:
            raise OSError("it has no address")  # aiohttp takes for granted that there is one
        return found

    async def close(self) -> None:
        """Whoever waits is told; threads that are stuck end with the process."""
        for flight in self._flights.values():
            flight.finish(Answer(error="the daemon is stopping"))
        for queue in self._waiting.values():
            queue.clear()

    async def _answer(self, host: str) -> Answer:
        if host.rstrip(".").rpartition(".")[2] == "localhost":
            return Answer(LOCALHOST)
        if len(host) > HOST or not host.isascii():
            return Answer(error="not a host name")
        kept = self._kept.get(host)
        if kept is not None and kept.until > self._clock.monotonic():
            return kept.answer
        return await self._fly(host)

    async def _fly(self, host: str) -> Answer:
        """Wait for the flight of this host, which may be under way; it outlives whoever stops waiting."""
        flight = self._flights.get(host)
        if flight is None:
            flight = self._flights[host] = Flight(host)
            self._waiting[self._standing.get(host, Standing.NEW)].append(flight)
            self._begin_waiting()
        elif flight.asked.done():  # given up, its thread still stuck
            flight.asked = asyncio.get_running_loop().create_future()
        deadline = self._clock.call_later(GIVE_UP_S, lambda: self._give_up(flight))
        try:
            return await asyncio.shield(flight.asked)
        finally:
            deadline.cancel()

    def _begin_waiting(self) -> None:
        """Begin what may begin, the best standing first."""
        for standing, queue in self._waiting.items():
            while queue and self._busy < standing:
                self._begin(queue.popleft())

    def _begin(self, flight: Flight) -> None:
        flight.began_at = self._clock.monotonic()
        self._busy += 1
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._work, args=(loop, flight), name=f"lookup {flight.host}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            loop.call_soon(self._land, flight, Answer(error=str(error)))

    def _work(self, loop: AbstractEventLoop, flight: Flight) -> None:
        """In the thread."""
        try:
            answer = Answer(self._lookup(flight.host)[:ADDRESSES])
        except OSError as error:
            answer = Answer(error=error.strerror or str(error))
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(self._land, flight, answer)

    def _land(self, flight: Flight, answer: Answer) -> None:
        self._busy -= 1
        self._flights.pop(flight.host, None)
        took = self._clock.monotonic() - (flight.began_at or 0)
        self._note(flight.host, Standing.SLOW if took > PATIENCE_S else Standing.PROVEN)
        self._keep(flight.host, answer)
        flight.finish(answer)
        self._begin_waiting()

    def _give_up(self, flight: Flight) -> None:
        """Tell all who wait; a flight that has not begun is called off, one that has keeps its thread."""
        answer = Answer(error=f"no answer within {GIVE_UP_S:.0f} s")
        if flight.began_at is None:
            self._flights.pop(flight.host, None)
            for queue in self._waiting.values():
                with contextlib.suppress(ValueError):
                    queue.remove(flight)
        else:
            self._note(flight.host, Standing.SLOW)
            self._keep(flight.host, answer)
        flight.finish(answer)

    def _note(self, host: str, standing: Standing) -> None:
        self._standing[host] = standing
        self._standing.move_to_end(host)
        if len(self._standing) > MOST_KEPT:
            self._standing.popitem(last=False)

    def _keep(self, host: str, answer: Answer) -> None:
        lasts = KEEP_S if answer.error is None else KEEP_FAILURE_S
        self._kept[host] = Kept(answer, self._clock.monotonic() + lasts)
        self._kept.move_to_end(host)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
