"""Tracks which entries are being written: a read of one of them queues behind the write, on the writer's connection.

A write says what it writes to: a (namespace, key), a namespace, or EVERYTHING.  Touched on the event loop only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, cast

from spyweb.store.sqlite.entry_cache import EntryCache, Place

EVERYTHING: Final = ("",)


class PendingWrites:
    def __init__(self) -> None:
        self._writes: dict[Hashable, int] = {}  # subject → how many wait or run
        self.cache = EntryCache()  # of entries that are not being written

    def begin(self, subject: Hashable) -> None:
        self._writes[subject] = self._writes.get(subject, 0) + 1
        self._forget(subject)

    def end(self, subject: Hashable) -> None:
        """End a write that was committed."""
        left = self._writes[subject] - 1
        if left:
            self._writes[subject] = left
        else:
            del self._writes[subject]

    def drop(self, subject: Hashable) -> None:
        """End a write that was cancelled or refused."""
        self.end(subject)
        self._forget(subject)

    def clear(self) -> None:
        self._writes.clear()
        self.cache.clear()

    def is_written(self, namespace: str, key: bytes) -> bool:
        """Return whether a write of this entry, alone or with others, waits or runs, cancelled or not."""
        writes = self._writes
        return bool(writes) and ((namespace, key) in writes or namespace in writes or EVERYTHING in writes)

    def _forget(self, subject: Hashable) -> None:
        if isinstance(subject, tuple) and subject is not EVERYTHING:
            self.cache.forget(cast("Place", subject))
        else:
            self.cache.clear()
