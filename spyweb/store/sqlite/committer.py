"""Commits the writer's transactions, counts them in the database and beside it, and measures how long they take."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable

from spyweb.clock import Clock
from spyweb.store.marker import LastCommit, Stamp

COUNT = "REPLACE INTO last_commit VALUES (1, ?, ?)"
RECENT = 8  # commits: one that takes long may have waited for something else than the disk


class Committer:
    """Commits transactions that have changed something.

    Each has a number, which is stored in the same transaction, and noted beside the database before its ops are
    answered.  A database with a smaller number than that has lost acknowledged commits.
    """

    def __init__(self, clock: Clock, last: LastCommit, note: Callable[[LastCommit], None] | None = None) -> None:
        self._clock = clock
        self._number = last.number
        self._note = note
        self._recent: deque[float] = deque(maxlen=RECENT)  # seconds
        self.file: Stamp | None = last.file  # of the database, before the transaction

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit, on the connection's thread."""
        last = LastCommit(self._number + 1, self._clock.now_ms(), self.file)
        connection.execute(COUNT, (last.number, last.at_ms))
        began = self._clock.monotonic()
        connection.execute("COMMIT")
        self._recent.append(self._clock.monotonic() - began)
        self._number = last.number
        if self._note:
            self._note(last)

    @property
    def usual_s(self) -> float:
        """Return the seconds that even the fastest of the latest commits took; 0 before there are enough."""
        recent = list(self._recent)
        return min(recent) if len(recent) == RECENT else 0.0


def find_last_commit(connection: sqlite3.Connection, file: Stamp | None = None) -> LastCommit:
    """Return the commit that the database holds as its last; its number is 0 where none has been counted."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'last_commit'").fetchone() is None:
        return LastCommit(0, 0, file)
    number, at_ms = connection.execute("SELECT max(number), max(at_ms) FROM last_commit").fetchone()
    return LastCommit(number or 0, at_ms or 0, file)
