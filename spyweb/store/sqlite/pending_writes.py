"""What is just being written, and what is known of the entries that are not.

The writes of a queue say what they write to: a (namespace, key), a namespace, or EVERYTHING.  What was last read of an
entry, or put there, is known until another write of it is asked for: reading it again asks no thread.  So is an integer
that is only added to, for those additions.  All of this is touched on the event loop only, but for a Known and a Count,
which the thread of a connection fills.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Final, TypeVar

EVERYTHING: Final = ("",)

KNOWN_KEY = 1024  # bytes; to look a key of 8 MB up takes 3 ms, and nobody keeps one
KNOWN_VALUE = 1024  # bytes; a larger value is read each time
MOST_KNOWN = 2048  # entries, and as many counts: all of them take 8 MB at most

Place = tuple[str, bytes]  # an entry: namespace, key
T = TypeVar("T")


class Known:
    """The text of an entry."""

    __slots__ = ("is_filled", "value")

    def __init__(self) -> None:
        self.is_filled = False
        self.value: bytes | None = None  # None: there is no such entry

    def fill(self, value: bytes | None) -> None:
        if value is None or len(value) <= KNOWN_VALUE:
            self.value = value
            self.is_filled = True


class Count:
    """An integer entry as the additions so far have left it.  Each of them is handed the same one, in the order in
    which they are asked for; any other write in between makes them begin with a new one."""

    __slots__ = ("expires_ms", "rowid", "times", "updated_ms", "value", "version")

    def __init__(self) -> None:
        self.rowid = 0  # 0: nothing is known, and the rest says nothing
        self.value = 0
        self.version = 0
        self.expires_ms: int | None = None
        self.times = 0  # that it was added to and not yet written
        self.updated_ms = 0


class PendingWrites:
    def __init__(self) -> None:
        self._writes: dict[Hashable, int] = {}  # subject → how many wait or run
        self._known: dict[Hashable, Known] = {}
        self._counts: dict[Hashable, Count] = {}

    def begin(self, subject: Hashable) -> None:
        """A write is asked for."""
        writes = self._writes
        writes[subject] = writes.get(subject, 0) + 1
        if type(subject) is tuple and subject is not EVERYTHING:
            self._known.pop(subject, None)
            self._counts.pop(subject, None)
        else:
            self._forget_all()

    def end(self, subject: Hashable, *, is_committed: bool) -> None:
        left = self._writes[subject] - 1
        if left:
            self._writes[subject] = left
        else:
            del self._writes[subject]
        if not is_committed:
            self._forget_all()

    def clear(self) -> None:
        """Nothing is written any more, and nothing is known."""
        self._writes.clear()
        self._forget_all()

    def _forget_all(self) -> None:
        self._known.clear()
        self._counts.clear()

    def is_written(self, namespace: str, key: bytes) -> bool:
        """Whether a write of this entry, by itself or with others, waits or runs, be its future cancelled or not."""
        writes = self._writes
        return bool(writes) and (self._is_subject(namespace, key) or namespace in writes or EVERYTHING in writes)

    def _is_subject(self, namespace: str, key: bytes) -> bool:
        if len(key) > KNOWN_KEY and not any(map(_has_long_key, self._writes)):
            return False
        return (namespace, key) in self._writes

    def known(self, namespace: str, key: bytes) -> Known | None:
        """To be filled, where it is not, with what a read gives that is asked for now; None while it is being written.

        What has a long key is not known by the next time.
        """
        if len(key) > KNOWN_KEY:
            return None if self.is_written(namespace, key) else Known()
        subject, writes = (namespace, key), self._writes
        if writes and (subject in writes or namespace in writes or EVERYTHING in writes):
            return None
        return self._known.get(subject) or self._note(subject)

    def begin_addition(self, subject: Place) -> Count:
        """A write that only adds to an entry: gives what additions know of it.

        Of one with a long key nothing is known by the next time.
        """
        writes, counts = self._writes, self._counts
        writes[subject] = writes.get(subject, 0) + 1
        self._known.pop(subject, None)
        count = counts.get(subject)
        if count is None:
            count = Count()
            if len(subject[1]) <= KNOWN_KEY:
                _make_room(counts)
                counts[subject] = count
        return count

    def put(self, subject: Place, value: bytes) -> None:
        """What a write that has just been asked for makes of an entry."""
        if len(subject[1]) <= KNOWN_KEY:
            self._note(subject).fill(value)

    def _note(self, subject: Hashable) -> Known:
        _make_room(self._known)
        self._known[subject] = new = Known()
        return new


def _make_room(remembered: dict[Hashable, T]) -> None:
    """The older half goes at once: to find the first of a dictionary that has lost its first ones takes 2 us."""
    if len(remembered) >= MOST_KNOWN:
        for subject in list(islice(remembered, MOST_KNOWN // 2)):
            del remembered[subject]


def _has_long_key(subject: Hashable) -> bool:
    return type(subject) is tuple and subject is not EVERYTHING and len(subject[1]) > KNOWN_KEY
