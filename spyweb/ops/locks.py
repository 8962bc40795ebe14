"""Who waits for which lock, in memory and holding nothing else up; and the leases of those who have one.

The store says who has a lock, and frees the locks of a run in the transaction that ends it.  Here is what it can't know:
which runs live, so that their locks don't expire, and who is next in line.  A newcomer never gets past a line.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence

import structlog

from spyweb.clock import Clock, Handle
from spyweb.model import RunId
from spyweb.ops.lines import Line, Wish
from spyweb.store.protocol import Held, Locks

log = structlog.get_logger()

LONGEST_RECHECK = 10.0  # seconds: leases are told by the clock on the wall, which may jump
SHORTEST_RECHECK = 0.01
SHORTEST_RENEWAL = 1.0  # seconds between two renewals, however short a lease is
RENEWALS_PER_LEASE = 3


class LockKeeper:
    """One for a daemon.  `run_ended` must be told of every run whose end is committed."""

    def __init__(self, locks: Locks, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock
        self._lines: dict[bytes, Line] = {}
        self._living: set[RunId] = set()  # runs that have asked for a lock
        self._leases: dict[RunId, int] = {}  # the shortest lease of each run that has had a lock
        self._renewal: Handle | None = None
        locks.believe(self._living.__contains__)
        locks.on_released(self._released)

    async def take(self, wish: Wish) -> Held | None:
        """None: it is yours.  Otherwise who has it, or is about to."""
        if wish.name in self._lines:
            return await self._holder_or_next(wish.name)
        return await self.acquire(wish)

    async def wait(self, wish: Wish, patience: float) -> Held | None:
        """As `take`, once it is free; gives up after so many seconds, and at once where a run would wait for itself."""
        if wish.name in self._lines:
            held = await self._locks.holder(wish.name)
            if held and held.run == wish.run:
                return held
        line = self._lines.setdefault(wish.name, Line(self))
        waiter = line.join(wish)
        timer = self._clock.call_later(patience, lambda: line.lose_patience(waiter))
        try:
            is_served = await waiter.served
            return None if is_served else line.held or await self._holder_or_next(wish.name)
        finally:
            timer.cancel()
            self._leave(line, wish.name)
