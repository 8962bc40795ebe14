"""Tracks which entries are being written: a read of one of them queues behind the write, on the writer's connection.

A write says what it writes to: a (namespace, key), a namespace, or EVERYTHING.  Touched on the event loop only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

EVERYTHING: Final = ("",)


class PendingWrites:
    def __init__(self) -> None:
        self._writes: dict[Hashable, int] = {}  # subject → how many wait or run

    def begin(self, subject: Hashable) -> None:
        self._writes[subject] = self._writes.get(subject, 0) + 1

    def end(self, subject: Hashable) -> None:
        """End a write that was committed, dropped or refused."""
        left = self._writes[subject] - 1
        if left:
            self._writes[subject] = left
        else:
            del self._writes[subject]

    def clear(self) -> None:
        self._writes.clear()

    def is_written(self, namespace: str, key: bytes) -> bool:
        """Return whether a write of this entry, alone or with others, waits or runs, cancelled or not."""
        writes = self._writes
        return bool(writes) and ((namespace, key) in writes or namespace in writes or EVERYTHING in writes)
