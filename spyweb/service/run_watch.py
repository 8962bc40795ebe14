"""Watching one run while it goes, line by line."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from spyweb.clock import Clock
from spyweb.model import MIB, Ending, Run
from spyweb.views.runs import RunEvent, log_line, run_ended

MOST_BYTES = 16 * MIB  # of lines that wait; who reads more slowly than a script logs misses some, and is told how many


@dataclass(slots=True)
class RunWatcher:
    """A run's observer that queues what it sees for whoever watches."""

    clock: Clock
    is_watched: bool = True  # whoever watches may leave before the run ends
    _waiting: asyncio.Queue[tuple[RunEvent, int]] = field(default_factory=asyncio.Queue)
    _size: int = 0
    _dropped: int = 0

    def log(self, level: str, text: bytes) -> None:
        if not self.is_watched:
            return
        if self._size + len(text) > MOST_BYTES:
            self._dropped += 1
            return
        self._tell_of_dropped()
        self._put(level, text)

    def ended(self, run: Run, ending: Ending) -> None:
        self._tell_of_dropped()
        self._waiting.put_nowait((run_ended(run, ending, self.clock.now_ms()), 0))

    async def next(self) -> RunEvent:
        event, size = await self._waiting.get()
        self._size -= size
        return event

    def _tell_of_dropped(self) -> None:
        if self._dropped:
            self._put("warn", b"%d lines came faster than they were read and are not shown" % self._dropped)
            self._dropped = 0

    def _put(self, level: str, text: bytes) -> None:
        self._size += len(text)
        self._waiting.put_nowait((log_line(level, text, self.clock.now_ms()), len(text)))
