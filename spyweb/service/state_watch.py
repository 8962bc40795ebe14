"""Watching changes as they are committed: from memory, so that nothing is written for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.model import MIB, ChangeKind
from spyweb.ops.rules.values import size_of
from spyweb.store.values_protocol import ChangeEvent, Events, Watch
from spyweb.views.state import ChangeView, view_change

HEARTBEAT = 15.0  # seconds; without one, a watcher that has gone would be noticed at the next change only
MOST_WAITING = 10_000  # changes; who reads more slowly than that is let go rather than filling the memory
MOST_BYTES = 16 * MIB  # of the values in them


@dataclass(slots=True)
class ChangeQueue:
    """The changes that have been heard and not been taken yet."""

    waiting: asyncio.Queue[tuple[ChangeView | None, int]] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    size: int = 0  # bytes of the values that wait
    is_late: bool = False

    def hear(self, event: ChangeEvent | None) -> None:
        size = size_of(event.old) + size_of(event.new) if event else 0
        if self.waiting.full() or (self.size and self.size + size > MOST_BYTES):
            self.is_late = True
        else:
            self.size += size
            self.waiting.put_nowait((view_change(event) if event else None, size))

    async def next(self) -> ChangeView | None:
        """Wait for the next change; None is a sign of life."""
        change, size = await self.waiting.get()
        self.size -= size
        return change


async def watch(
    events: Events, clock: Clock, namespace: str | None, pattern: bytes
) -> AsyncGenerator[ChangeView | None, None]:
    """Yield changes as they are committed.  Raises Refused when they come faster than they are taken."""
    changes = ChangeQueue()
    wanted = Watch(namespace=namespace or "", is_prefix=namespace is None, key=pattern, kinds=frozenset(ChangeKind))
    leave = events.follow(wanted, changes.hear)
    try:
        yield None
        while not changes.is_late:
            beat = clock.call_later(HEARTBEAT, partial(changes.hear, None))
            try:
                change = await changes.next()
            finally:
                beat.cancel()
            yield change
        raise Refused(f"changes come faster than they are taken: {changes.waiting.qsize()} are waiting")
    finally:
        leave()
