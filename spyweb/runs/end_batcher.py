"""Commit the ends of runs together.

A commit is a large part of the cost of a small run.  Ends that no caller waits for therefore share one: each is held
until no other run is under way or a new run is claimed, for PATIENCE at most.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from functools import partial

from spyweb.clock import Clock, Handle
from spyweb.model import RunId
from spyweb.store.model.runs import Change, End
from spyweb.store.sqlite.runs import Runs

PATIENCE = 0.005  # seconds by which the job stays busy longer; a crash during them leaves the run as lost

Waiter = Future[bool]


class EndBatcher:
    """Commits ends that come at about the same time in one transaction."""

    def __init__(self, runs: Runs, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._waiting: list[tuple[End, Waiter]] = []
        self._timer: Handle | None = None
        self.under_way = 0  # runs whose end the held ends wait for

    def add(self, end: End) -> Waiter:
        """Return a future: true once the end is committed; false when the store refused, and the caller must retry."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((end, waiter))
        if not self.under_way:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_later(PATIENCE, self.flush)
        return waiter

    def flush(self) -> None:
        """Commit the held ends now."""
        if not self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        committed = self._runs.record(Change(end=[end for end, _ in waiting]))
        committed.add_done_callback(partial(_answer, [waiter for _, waiter in waiting]))


def _answer(waiters: Sequence[Waiter], committed: Future[list[RunId | None]]) -> None:
    is_committed = not committed.cancelled() and committed.exception() is None
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(is_committed)
