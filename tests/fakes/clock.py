"""A clock that stands still until the test turns it.

`turn` and `advance` fire what is due in the order of its time, each at its own moment: a callback that asks
the time sees when it was due.  `turn` also lets the event loop settle at every moment, so whatever a callback
set going (as far as it needs neither thread nor network) has come to rest before time moves on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from spyweb.clock import Handle

NANOSECONDS = 1_000_000_000
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
ROUNDS_TO_SETTLE = 20  # where the loop cannot say whether anything is ready (uvloop)
ROUNDS_AT_MOST = 100_000  # something that never waits would keep a test for ever


@dataclass(order=True, slots=True)
class Timer:
    """A pending call; nanoseconds as integers, so that sums of delays meet exactly."""

    at_ns: int
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    def __init__(self, now_ms: int = START_MS) -> None:
        self._epoch_ns = now_ms * 1_000_000
        self._ns = 0
        self._timers: list[Timer] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return (self._epoch_ns + self._ns) // 1_000_000

    def monotonic(self) -> float:
        return self._ns / NANOSECONDS

    boottime = monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, partial(wake, woken))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        """Call after so many seconds; without delay in the loop's next round, as on the real clock."""
        if seconds <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        timer = Timer(self._ns + round(seconds * NANOSECONDS), next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def pending(self) -> int:
        """Count the calls and sleepers that wait."""
        return sum(not timer.cancelled for timer in self._timers)

    @property
    def next_in(self) -> float | None:
        """Return the seconds until the next of them."""
        self._drop_cancelled()
        return (self._timers[0].at_ns - self._ns) / NANOSECONDS if self._timers else None

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; monotonic time does not change, and nothing fires."""
        self._epoch_ns += round(seconds * NANOSECONDS)

    def advance(self, seconds: float) -> None:
        """Let time pass without letting the loop run: for code that only has callbacks."""
        until = self._ns + round(seconds * NANOSECONDS)
        while self._fire_next_moment(until):
            pass
        self._ns = until

    async def turn(self, seconds: float = 0) -> None:
        """Let time pass, and the loop settle before, at every moment where something is due, and after."""
        until = self._ns + round(seconds * NANOSECONDS)
        await settle()
        while self._fire_next_moment(until):
            await settle()
        self._ns = until
        await settle()

    def _fire_next_moment(self, until: int) -> bool:
        """Fire everything due at the first moment not after `until`; return False when there is none."""
        self._drop_cancelled()
        if not self._timers or self._timers[0].at_ns > until:
            return False
        self._ns = self._timers[0].at_ns
        while self._timers and self._timers[0].at_ns <= self._ns:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.callback()
        return True

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)


def wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


async def settle() -> None:
    """Give way until nothing but the caller is ready to run."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:
        for _ in range(ROUNDS_TO_SETTLE):
            await asyncio.sleep(0)
        return
    for _ in range(ROUNDS_AT_MOST):
        await asyncio.sleep(0)
        if not ready:
            return
    raise RuntimeError(f"the loop has not settled in {ROUNDS_AT_MOST} rounds")
