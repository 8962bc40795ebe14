"""Watching changes as they are committed: from memory, so that nothing is written for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.store.protocol import ChangeEvent, ChangeKind, Events, Watch
from spyweb.web.state_view import ChangeView, view_change

HEARTBEAT = 15.0  # seconds; without one, a watcher that has gone would be noticed at the next change only
MOST_WAITING = 10_000  # changes; who reads more slowly than that is let go rather than filling the memory


@dataclass(slots=True)
class Listener:
    """What has been heard and not been told yet."""

    waiting: asyncio.Queue[ChangeView | None] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    is_late: bool = False

    def hear(self, event: ChangeEvent | None) -> None:
        if self.waiting.full():
            self.is_late = True
        else:
            self.waiting.put_nowait(view_change(event) if event else None)


async def watch(
    events: Events, clock: Clock, namespace: str | None, pattern: bytes
) -> AsyncGenerator[ChangeView | None, None]:
    """Raises Refused when changes come faster than they are taken."""
    listener = Listener()
    wanted = Watch(namespace=namespace or "", is_prefix=namespace is None, key=pattern, kinds=frozenset(ChangeKind))
    leave = events.follow(wanted, listener.hear)
    try:
        yield None
        while not listener.is_late:
            beat = clock.call_later(HEARTBEAT, partial(listener.hear, None))
            try:
                change = await listener.waiting.get()
            finally:
                beat.cancel()
            yield change
        raise Refused(f"changes come faster than they are taken: more than {MOST_WAITING} are waiting")
    finally:
        leave()
