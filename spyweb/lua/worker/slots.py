"""The shared memory where each stepping thread writes which run it is stepping: what the daemon reads after a death."""

from __future__ import annotations

import mmap
import threading

from spyweb.lua import wire


class ThreadSlots:
    """A thread takes a slot for its life.  When all are taken the last one, which nobody reads, is shared."""

    def __init__(self, descriptor: int) -> None:
        self.runs = memoryview(mmap.mmap(descriptor, wire.SLOT_BYTES)).cast("Q")
        self._free = list(range(wire.SLOTS - 1, -1, -1))
        self._lock = threading.Lock()

    def take(self) -> int:
        with self._lock:
            return self._free.pop() if self._free else wire.SLOTS - 1

    def give_back(self, slot: int) -> None:
        self.runs[slot] = 0
        with self._lock:
            if slot not in self._free:
                self._free.append(slot)
