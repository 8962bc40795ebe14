"""Tracks which entries are being written, and remembers values of others that were read or set lately.

A read of an entry that is being written queues behind the write, on the writer's connection.  One that is remembered
need not wait for a thread; it is forgotten as soon as another write of it is asked for, so it is never older than the
last commit.  Touched on the event loop only, but for a CachedValue, which the thread of a connection fills.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Final

from spyweb.model import Value

EVERYTHING: Final = ("",)
LONGEST_KEY, LONGEST_VALUE = 1024, 1024  # bytes: longer ones are read each time
MOST_CACHED = 2048


class CachedValue:
    """The value of an entry, once it is known."""

    __slots__ = ("is_known", "value")

    def __init__(self) -> None:
        self.is_known = False
        self.value: Value = None  # None: there is no such entry

    def learn(self, value: Value) -> None:
        """Remember a value, if it is small and immutable."""
        if not isinstance(value, list | dict) and not (isinstance(value, bytes) and len(value) > LONGEST_VALUE):
            self.value = value
            self.is_known = True


class PendingWrites:
    """Counts the writes of each subject: a (namespace, key), a namespace, or EVERYTHING."""

    def __init__(self) -> None:
        self._writes: dict[Hashable, int] = {}  # subject → how many wait or run
        self._cached: dict[Hashable, CachedValue] = {}  # by subject

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
        self._cached.clear()

    def is_written(self, namespace: str, key: bytes) -> bool:
        """Return whether a write of this entry, alone or with others, waits or runs, cancelled or not."""
        writes = self._writes
        return bool(writes) and ((namespace, key) in writes or namespace in writes or EVERYTHING in writes)

    def cached(self, namespace: str, key: bytes) -> CachedValue:
        """Return what is known of an entry; where nothing is, something that the next read fills."""
        return self._cached.get((namespace, key)) or self.cache(namespace, key)

    def cache(self, namespace: str, key: bytes) -> CachedValue:
        """Return what will be known of an entry: a write just asked for, or the next read, fills it."""
        new = CachedValue()
        if len(key) <= LONGEST_KEY:
            if len(self._cached) >= MOST_CACHED:
                # The older half at once: to find the first of a dictionary whose first ones are gone takes long.
                for place in list(islice(self._cached, MOST_CACHED // 2)):
                    del self._cached[place]
            self._cached[namespace, key] = new
        return new

    def _forget(self, subject: Hashable) -> None:
        if isinstance(subject, tuple) and subject is not EVERYTHING:
            self._cached.pop(subject, None)
        else:
            self._cached.clear()
