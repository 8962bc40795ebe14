"""Caches values that were read or set lately, so that a script that asks again need not wait for a thread.

What is cached of an entry is dropped as soon as another write of it is asked for, so it is never older than the last
commit.  Only where no other process can write.  Touched on the event loop only, but for a CachedValue, which the
thread of a connection fills.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice

from spyweb.model import Value
from spyweb.store.model.entries import Entry

LONGEST_KEY = 1024  # bytes: a longer one is costly to look up
LONGEST_VALUE = 1024  # bytes: a longer one is read each time
MOST_ENTRIES = 2048

Place = tuple[str, bytes]  # namespace, key


class CachedValue:
    """The value of an entry, once it is known."""

    __slots__ = ("is_known", "value")

    def __init__(self) -> None:
        self.is_known = False
        self.value: Value = None  # None: there is no such entry

    def learn(self, value: Value) -> None:
        """Remember a value, if it is small and immutable."""
        if isinstance(value, list | dict) or (isinstance(value, bytes) and len(value) > LONGEST_VALUE):
            return
        self.value = value
        self.is_known = True

    def learn_entry(self, entry: Entry | None) -> None:
        """Remember the value of an entry that was read, unless it will expire."""
        if entry is None or entry.expires_ms is None:
            self.learn(entry.value if entry else None)


class EntryCache:
    def __init__(self) -> None:
        self._values: dict[Hashable, CachedValue] = {}

    def find(self, place: Place) -> CachedValue:
        """Return the cached value of an entry; where none is known, one that the next read fills."""
        return self._values.get(place) or self._add(place)

    def put(self, place: Place, value: Value) -> None:
        """Remember the value that a write just asked for gives an entry."""
        self._add(place).learn(value)

    def forget(self, place: Place) -> None:
        self._values.pop(place, None)

    def clear(self) -> None:
        self._values.clear()

    def _add(self, place: Place) -> CachedValue:
        new = CachedValue()
        if len(place[1]) <= LONGEST_KEY:
            self._make_room()
            self._values[place] = new
        return new

    def _make_room(self) -> None:
        """Drop the older half at once: to find the first of a dictionary whose first ones are gone takes long."""
        if len(self._values) >= MOST_ENTRIES:
            for place in list(islice(self._values, MOST_ENTRIES // 2)):
                del self._values[place]
