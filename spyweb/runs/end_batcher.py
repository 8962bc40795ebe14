"""The ends of runs on their way to the store.

A commit costs 0.2 ms of processor, half of what a small run does, so ends that nobody waits for share one: each waits
until no other run is under way or something new is claimed, and at most PATIENCE.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from functools import partial

from spyweb.clock import Clock, Handle
from spyweb.model import RunId
from spyweb.store.protocol import Change, End, Runs

PATIENCE = 0.005  # seconds; the job is busy so much longer, and a crash then leaves the run as lost

Waiter = Future[bool]


class EndBatcher:
    def __init__(self, runs: Runs, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._ends: list[End] = []
        self._waiters: list[Waiter] = []
        self._timer: Handle | None = None
        self.under_way = 0  # runs that will end

    def add(self, end: End) -> Waiter:
        """True once it is committed; False when it was refused with the others, and may be tried by itself."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        self._waiters.append(waiter)
        if not self.under_way:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_later(PATIENCE, self.flush)
        return waiter

    def flush(self) -> None:
        """Wait no longer."""
        if not self._ends:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends, self._ends = self._ends, []
        waiters, self._waiters = self._waiters, []
        self._runs.record(Change(end=ends)).add_done_callback(partial(_tell, waiters))


def _tell(waiters: Sequence[Waiter], committed: Future[list[RunId | None]]) -> None:
    is_committed = not committed.cancelled() and committed.exception() is None
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(is_committed)
