"""Queue those who wait for a lock, in memory and holding nothing else up; renew the leases of those who have one.

The store says who has a lock, and frees the locks of a run in the transaction that ends it.  Here is what it can't
know: which runs live, so that their locks don't expire, and who is next in line.  A newcomer never gets past a line.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence

import structlog

from spyweb.clock import Clock, Handle
from spyweb.logs.refusals import tell_refusal
from spyweb.model import RunId
from spyweb.ops.lock_queue import LockQueue, LockRequest
from spyweb.store.values_protocol import Held, Locks

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
        self._lines: dict[bytes, LockQueue] = {}
        self._living: set[RunId] = set()  # runs that have asked for a lock
        self._leases: dict[RunId, int] = {}  # the shortest lease of each run that has had a lock
        self._renewal: Handle | None = None
        locks.believe(self._living.__contains__)
        locks.on_released(self._released)

    async def take(self, wish: LockRequest) -> Held | None:
        """Take a lock at once.  Returns None when it is yours, otherwise who has it, or is about to."""
        if wish.name in self._lines:
            held = await self._holder_or_next(wish.name)
            if held:
                return held
        return await self.acquire(wish)

    async def wait(self, wish: LockRequest, patience: float) -> Held | None:
        """Wait for a lock, at most `patience` seconds, and not at all where a run would wait for itself; returns as
        `take`.
        """
        if wish.name in self._lines:
            held = await self._locks.holder(wish.name)
            if held and held.run == wish.run:
                return held
        line = self._lines.setdefault(wish.name, LockQueue(self))
        waiter = line.join(wish)
        timer = self._clock.call_later(patience, lambda: line.lose_patience(waiter))
        try:
            is_served = await waiter.served
        finally:
            timer.cancel()
            line.leave(waiter)
            self._leave(wish.name, line)
        return None if is_served else line.held or await self.take(wish)

    def release(self, run: RunId) -> None:
        """Free a run's locks once all that it has asked for is done."""
        if run in self._living:
            self._locks.release_run(run).add_done_callback(_note_failure)

    def run_ended(self, run: RunId) -> None:
        """Forget a run whose end is committed: with that its locks were freed."""
        self._living.discard(run)
        self._leases.pop(run, None)
        if not self._leases:
            self.close()

    def close(self) -> None:
        """No lease is renewed any more."""
        if self._renewal:
            self._renewal.cancel()
            self._renewal = None

    def acquire(self, wish: LockRequest) -> Future[Held | None]:
        """Ask the store, past any line."""
        self._living.add(wish.run)
        answer = self._locks.acquire(wish.name, wish.holder, wish.run, wish.lease_ms)
        answer.add_done_callback(lambda answer: self._keep_alive(wish, answer))
        return answer

    def give_back(self, wish: LockRequest) -> None:
        self._locks.release(wish.name, wish.holder).add_done_callback(_note_failure)

    def call_when_expired(self, held: Held, callback: Callable[[], object]) -> Handle:
        """The lock of a run that lives doesn't expire; its end is told."""
        delay = LONGEST_RECHECK
        if held.run not in self._living:
            delay = min(delay, max(SHORTEST_RECHECK, (held.expires_ms - self._clock.now_ms()) / 1000))
        return self._clock.call_later(delay, callback)

    def _leave(self, name: bytes, line: LockQueue) -> None:
        if line.first is None and self._lines.get(name) is line:
            del self._lines[name]

    async def _holder_or_next(self, name: bytes) -> Held | None:
        """Return who has the lock or is next in line; None where it is free and nobody waits."""
        held = await self._locks.holder(name)
        line = self._lines.get(name)
        if held or line is None or line.first is None:
            return held
        return self._as_if_held(line.first.wish)

    def _as_if_held(self, wish: LockRequest) -> Held:
        now = self._clock.now_ms()
        return Held(
            name=wish.name,
            holder=wish.holder,
            run=wish.run,
            acquired_ms=now,
            expires_ms=now + wish.lease_ms,
            lease_ms=wish.lease_ms,
        )

    def _released(self, names: Sequence[bytes]) -> None:
        for name in names:
            if name in self._lines:
                self._lines[name].ask()

    # Leases

    def _keep_alive(self, wish: LockRequest, answer: Future[Held | None]) -> None:
        if answer.cancelled() or answer.exception() or answer.result() or wish.run not in self._living:
            return
        shortest = min(self._leases.values(), default=None)
        self._leases[wish.run] = min(wish.lease_ms, self._leases.get(wish.run, wish.lease_ms))
        if shortest is None or wish.lease_ms < shortest:
            self._renew_later()

    def _renew_later(self) -> None:
        self.close()
        if self._leases:
            shortest = min(self._leases.values()) / 1000
            self._renewal = self._clock.call_later(max(SHORTEST_RENEWAL, shortest / RENEWALS_PER_LEASE), self._renew)

    def _renew(self) -> None:
        self._renewal = None
        if self._leases:
            self._locks.renew(list(self._leases)).add_done_callback(_note_failure)
        self._renew_later()


def _note_failure(answer: Future[Held | None] | Future[int] | Future[list[bytes]]) -> None:
    error = None if answer.cancelled() else answer.exception()
    if error:
        tell_refusal("lock.store_failed", error)
