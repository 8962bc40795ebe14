"""The line of those who wait for one lock.

Whoever is first asks the store, again each time that the lock may have become free, and when the lease of a holder that
is dead has passed.  One question is under way at a time.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from spyweb.clock import Handle
from spyweb.model import RunId
from spyweb.store.values_protocol import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """A lock that a run would like to have."""

    name: bytes
    holder: bytes
    run: RunId
    lease_ms: int


class LockBackend(Protocol):
    """The part of the lock keeper that a queue calls."""

    def acquire(self, wish: LockRequest) -> Future[Held | None]: ...

    def give_back(self, wish: LockRequest) -> None:
        """Release a lock that was acquired for somebody who is gone."""

    def call_when_expired(self, held: Held, callback: Callable[[], object]) -> Handle: ...


@dataclass(slots=True, eq=False)
class LockWaiter:
    wish: LockRequest
    served: Future[bool]  # True: the lock is its own; False: it gave up
    is_late: bool = False  # its patience has ended


class LockQueue:
    def __init__(self, desk: LockBackend) -> None:
        self._desk = desk
        self._waiters: deque[LockWaiter] = deque()
        self._asking: LockWaiter | None = None  # for whom the store is being asked
        self._again = False  # the lock may have become free meanwhile
        self._recheck: Handle | None = None
        self.held: Held | None = None  # who has it, as far as was heard

    @property
    def first(self) -> LockWaiter | None:
        return self._waiters[0] if self._waiters else None

    def join(self, wish: LockRequest) -> LockWaiter:
        waiter = LockWaiter(wish, get_running_loop().create_future())
        self._waiters.append(waiter)
        if self.first is waiter:
            self.ask()
        return waiter

    def leave(self, waiter: LockWaiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not self._waiters:
            self._stop_rechecking()

    def lose_patience(self, waiter: LockWaiter) -> None:
        """Let a waiter give up; where the store is being asked for it, that answer still counts."""
        waiter.is_late = True
        if self._asking is not waiter:
            self._dismiss(waiter, served=False)

    def ask(self) -> None:
        """The lock may be free: try for the first in line."""
        if self._asking:
            self._again = True
            return
        self._drop_those_gone()
        waiter = self.first
        if waiter is None:
            return
        self._stop_rechecking()
        self._asking, self._again = waiter, False
        self._desk.acquire(waiter.wish).add_done_callback(partial(self._answered, waiter))

    def _drop_those_gone(self) -> None:
        """A waiter is done while it is in line when its run was told to end a moment ago."""
        while self._waiters and self._waiters[0].served.done():
            self._waiters.popleft()

    def _answered(self, waiter: LockWaiter, answer: Future[Held | None]) -> None:
        self._asking = None
        error = answer.exception()
        if error is not None:
            self._fail(waiter, error)
        elif (held := answer.result()) is None:
            self._acquired(waiter)
        else:
            self._refused(waiter, held)

    def _acquired(self, waiter: LockWaiter) -> None:
        self.held = None
        if waiter.served.done():
            self._desk.give_back(waiter.wish)  # which has the next one ask
        else:
            self._dismiss(waiter, served=True)

    def _refused(self, waiter: LockWaiter, held: Held) -> None:
        self.held = held
        if waiter.is_late or held.run == waiter.wish.run:
            self._dismiss(waiter, served=False)
        if self._again or self.first not in (None, waiter):
            self.ask()
        elif self.first:
            self._recheck = self._desk.call_when_expired(held, self.ask)

    def _fail(self, waiter: LockWaiter, error: BaseException) -> None:
        """The store's trouble is told to whoever asked; the next one may fare better."""
        self.leave(waiter)
        if not waiter.served.done():
            waiter.served.set_exception(error)
        self.ask()

    def _dismiss(self, waiter: LockWaiter, *, served: bool) -> None:
        self.leave(waiter)
        if not waiter.served.done():
            waiter.served.set_result(served)

    def _stop_rechecking(self) -> None:
        if self._recheck:
            self._recheck.cancel()
            self._recheck = None
