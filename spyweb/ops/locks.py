"""Queue the runs that wait for a lock, and renew the leases of the runs that hold one.

The store records who has a lock, and frees the locks of a run in the transaction that ends it.  This module adds what
the store can't know: which runs are alive, so that their locks don't expire, and which is next in a queue.  A new
request never overtakes one that waits.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Event, Future
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, field

from spyweb.clock import Clock, Handle
from spyweb.logs.output import note_refused
from spyweb.lua.session import Lineage
from spyweb.model import BranchId, RunId
from spyweb.store.model.entries import Held
from spyweb.store.sqlite.locks import Locks

LONGEST_RECHECK = 10.0  # seconds: leases end by the wall clock, which may jump
SHORTEST_RECHECK = 0.01
SHORTEST_RENEWAL = 1.0  # seconds between two renewals, however short a lease is
RENEWALS_PER_LEASE = 3

_note_failure = partial(note_refused, "lock.store_failed")


class LockRequest(Struct, frozen=True, kw_only=True):
    """A request of a run for a lock."""

    name: bytes
    holder: bytes
    run: RunId
    lease_ms: int
    lineage: Lineage = ()  # the branch of the run, and those that it is in

    @property
    def owner(self) -> BranchId:
        """The branch that would like to have it; 0: the run itself."""
        return BranchId(self.run, self.lineage[0] if self.lineage else 0)


class LockWaiter(Struct, eq=False):
    """A run in a lock's queue."""

    request: LockRequest
    awake: Event = field(default_factory=Event)  # the lock may be free, or its timeout has passed
    is_late: bool = False  # its timeout has passed
    has_lock: bool = False

    def time_out(self) -> None:
        self.is_late = True
        self.awake.set()


class LockKeeper:
    """Takes locks for the runs of a daemon.  `run_ended` must be called for every run whose end is committed."""

    def __init__(self, locks: Locks, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock
        self._queues: dict[bytes, deque[LockWaiter]] = {}
        self._living: set[RunId] = set()  # runs that have asked for a lock
        self._leases: dict[RunId, int] = {}  # the shortest lease of each run that has had a lock
        self._branch_locks: dict[bytes, LockRequest] = {}  # by name: with which a branch took it last
        self._branches: set[BranchId] = set()  # that have asked for a lock
        self._renewal: Handle | None = None
        locks.alive = self._living.__contains__
        locks.on_committed(self._released)

    async def take(self, request: LockRequest) -> Held | None:
        """Take a lock at once; return None if that succeeds, otherwise who has it or is next."""
        if request.name in self._queues:
            held = await self._holder_or_next(request.name)
            if held:
                return held
        return await self.acquire(request)

    async def wait(self, request: LockRequest, timeout: float) -> Held | None:
        """Wait at most `timeout` seconds for a lock, and not at all if a run would wait for itself.

        Return the same as `take`.
        """
        if request.name in self._queues:
            held = await self._locks.holder(request.name)
            if held and self.is_own(held, request.run, request.lineage):
                return held
        queue = self._queues.setdefault(request.name, deque())
        waiter = LockWaiter(request)
        queue.append(waiter)
        timer = self._clock.call_later(timeout, waiter.time_out)
        try:
            held = await self._wait_in(queue, waiter)
        finally:
            timer.cancel()
            was_first = queue[0] is waiter
            queue.remove(waiter)
            if not queue:
                del self._queues[request.name]
            elif was_first and not waiter.has_lock:
                queue[0].awake.set()
        return None if waiter.has_lock else held or await self.take(request)

    async def _wait_in(self, queue: deque[LockWaiter], waiter: LockWaiter) -> Held | None:
        """Wait until a waiter has the lock, or is late; return who has it, where that is known.

        The store is asked for the first in the queue, and again each time that the lock may have become free or the
        lease of a dead holder has expired.
        """
        while True:
            waiter.awake.clear()
            held = None
            if queue[0] is waiter:
                held = await self._ask(waiter.request)
                waiter.has_lock = held is None
                if held is None or self.is_own(held, waiter.request.run, waiter.request.lineage):
                    return held
            if waiter.is_late:
                return held
            recheck = held and self.call_when_expired(held, waiter.awake.set)
            try:
                await waiter.awake.wait()
            finally:
                if recheck:
                    recheck.cancel()

    async def _ask(self, request: LockRequest) -> Held | None:
        answer = self.acquire(request)
        try:
            return await asyncio.shield(answer)
        except CancelledError:
            answer.add_done_callback(partial(self._return_unwanted, request))
            raise

    def _return_unwanted(self, request: LockRequest, answer: Future[Held | None]) -> None:
        if not (answer.cancelled() or answer.exception() or answer.result()):
            self.give_back(request)

    def release(self, run: RunId) -> None:
        """Free a run's locks once all its requests are done."""
        if run in self._living:
            self._locks.release_run(run).add_done_callback(_note_failure)

    def is_own(self, held: Held, run: RunId, lineage: Lineage) -> bool:
        """Return whether who asks has the lock already: the run, or the branch, or one that this is in."""
        if held.run != run:
            return False
        taken = self._branch_locks.get(held.name)
        return taken is None or taken.owner.branch in lineage

    def branch_ended(self, branch: BranchId) -> None:
        """Free the locks of a branch."""
        if branch not in self._branches:
            return
        self._branches.discard(branch)
        for name, taken in list(self._branch_locks.items()):
            if taken.owner == branch:
                del self._branch_locks[name]
                self.give_back(taken)

    def run_ended(self, run: RunId) -> None:
        """Forget a run whose end is committed, which has freed its locks."""
        self._living.discard(run)
        self._leases.pop(run, None)
        if not self._leases:
            self.close()

    def close(self) -> None:
        """Stop renewing leases."""
        if self._renewal:
            self._renewal.cancel()
            self._renewal = None

    def acquire(self, request: LockRequest) -> Future[Held | None]:
        """Ask the store for the lock, past any queue."""
        self._living.add(request.run)
        if request.lineage:
            self._branches.add(request.owner)
        answer = self._locks.acquire(request.name, request.holder, request.run, request.lease_ms)
        if answer.done():
            self._acquired(request, answer)
        else:
            answer.add_done_callback(partial(self._acquired, request))
        return answer

    def give_back(self, request: LockRequest) -> None:
        """Release a lock that was acquired for a waiter or a branch that has ended."""
        self._locks.release(request.name, request.holder).add_done_callback(_note_failure)

    def call_when_expired(self, held: Held, callback: Callable[[], object]) -> Handle:
        """Call back once the lease may have expired; a living run's lease does not, and its end is announced."""
        delay = LONGEST_RECHECK
        if held.run not in self._living:
            delay = min(delay, max(SHORTEST_RECHECK, (held.expires_ms - self._clock.now_ms()) / 1000))
        return self._clock.call_later(delay, callback)

    async def _holder_or_next(self, name: bytes) -> Held | None:
        """Return who has the lock or is next in the queue; None if it is free and nobody waits."""
        held = await self._locks.holder(name)
        queue = self._queues.get(name)
        if held or queue is None:
            return held
        request, now = queue[0].request, self._clock.now_ms()
        return Held(
            name=request.name,
            holder=request.holder,
            run=request.run,
            acquired_ms=now,
            expires_ms=now + request.lease_ms,
            lease_ms=request.lease_ms,
        )

    def look(self) -> None:
        """Ask again for each lock that is waited for: a run of another node may have freed it."""
        for queue in self._queues.values():
            queue[0].awake.set()

    def _released(self, names: Sequence[bytes]) -> None:
        for name in names:
            if name in self._queues:
                self._queues[name][0].awake.set()

    def _acquired(self, request: LockRequest, answer: Future[Held | None]) -> None:
        if answer.cancelled() or answer.exception() or answer.result() or request.run not in self._living:
            return
        if not request.lineage:
            self._branch_locks.pop(request.name, None)
        elif request.owner in self._branches:
            self._branch_locks[request.name] = request
        else:  # it has ended meanwhile
            self.give_back(request)
        shortest = min(self._leases.values(), default=None)
        self._leases[request.run] = min(request.lease_ms, self._leases.get(request.run, request.lease_ms))
        if shortest is None or request.lease_ms < shortest:
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
