"""Store the locks of scripts as rows.  Waiting for a lock happens elsewhere, outside any transaction."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import astuple, replace

from spyweb.clock import Clock
from spyweb.model import RunId
from spyweb.store.model.entries import Held
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import Announcer, Connections, columns_of, on_writer, read_as, upsert

COLUMNS = columns_of(Held)
FIND = f"SELECT {COLUMNS} FROM lock WHERE name = ?"
TAKE = upsert("lock", COLUMNS, key="name")
IS_OPEN = "SELECT 1 FROM run WHERE id = ? AND state <> 'ended'"
FREE = "DELETE FROM lock WHERE name = ?"


class Locks(Announcer[bytes]):
    """Locks by name, each with a lease; announces the names of locks that may have become free.

    A lock whose lease has expired is free, unless its run is alive.  All locks that a run has acquired since the store
    was opened are released in the transaction that ends it (`Change.end`); those of an earlier daemon's runs last
    until their leases expire.
    """

    def __init__(self, connections: Connections, clock: Clock) -> None:
        super().__init__(connections, clock)
        self._names: dict[RunId, set[bytes]] = {}  # that runs of this daemon may hold: the end of others costs nothing
        # Whether a run of this daemon lives, asked on the store's thread: it must be quick.
        self.alive: Callable[[RunId], bool] = lambda _run: False

    def holders_among(self, runs: Iterable[RunId]) -> list[RunId]:
        """Return the runs among these that may hold a lock."""
        return [run for run in runs if run in self._names] if self._names else []

    def tell_of_ended(self, runs: Iterable[RunId]) -> None:
        self.tell([name for run in runs for name in sorted(self._names.pop(run, ()))])

    def acquire(self, name: bytes, holder: bytes, run: RunId | None, lease_ms: int) -> Future[Held | None]:
        """Acquire a lock and return None; otherwise return who holds it, even if that is this holder."""
        if run is not None:
            self._names.setdefault(run, set()).add(name)
        now_ms = self._clock.now_ms()
        wanted = Held(
            name=name, holder=holder, run=run, acquired_ms=now_ms, expires_ms=now_ms + lease_ms, lease_ms=lease_ms
        )
        return self._writer.submit(OpKind.WRITE, self._take, wanted)

    def _take(self, connection: sqlite3.Connection, wanted: Held) -> Held | None:
        held = self._find(connection, wanted.name, wanted.acquired_ms)
        if held is None:
            connection.execute(TAKE, astuple(wanted))
            return None
        # A lease that reaches further than its own length: the clock was set back, and nobody would get the lock until
        # it has caught up.
        shortened = replace(held, expires_ms=min(held.expires_ms, wanted.acquired_ms + held.lease_ms))
        if shortened != held:
            connection.execute(TAKE, astuple(shortened))
        return shortened

    def release(self, name: bytes, holder: bytes | None) -> Future[Held | None]:
        """Release the lock if this holder has it, or any holder with None; return the holder (None: it was free)."""
        now_ms = self._clock.now_ms()

        def free(connection: sqlite3.Connection) -> Held | None:
            held = self._find(connection, name, now_ms)
            if held and holder in (None, held.holder):
                connection.execute(FREE, (name,))
            return held

        return self._writer.submit(OpKind.WRITE, free, after=partial(self.tell, [name]))

    def release_run(self, run: RunId) -> Future[list[bytes]]:
        """Release all locks of a run; return their names."""
        return self._writer.submit(OpKind.WRITE, release_run, run, after=lambda: self.tell_of_ended([run]))

    @on_writer(OpKind.SEVERAL)
    def renew(self, connection: sqlite3.Connection, runs: Sequence[RunId]) -> int:
        """Restart the leases of all locks of these runs; return how many locks."""
        renew, now_ms = "UPDATE lock SET expires_ms = ?2 + lease_ms WHERE run = ?1", self._clock.now_ms()
        return sum(connection.execute(renew, (run, now_ms)).rowcount for run in runs)

    @on_writer(OpKind.SEVERAL)
    def sweep(self, connection: sqlite3.Connection) -> list[bytes]:
        """Delete locks that are free though nobody has released them; return their names."""
        now_ms = self._clock.now_ms()
        rows = connection.execute(f"SELECT {COLUMNS} FROM lock WHERE expires_ms <= ?", (now_ms,)).fetchall()
        free = [held.name for row in rows if not self._is_held(connection, held := read_as(Held, row), now_ms)]
        connection.executemany(FREE, [(name,) for name in free])
        return free

    @on_writer(OpKind.READ)
    def holder(self, connection: sqlite3.Connection, name: bytes) -> Held | None:
        """Return who holds a lock; None when it is free."""
        return self._find(connection, name, self._clock.now_ms())

    def find_all(self, connection: sqlite3.Connection, now_ms: int) -> list[Held]:
        locks = [read_as(Held, row) for row in connection.execute(f"SELECT {COLUMNS} FROM lock ORDER BY name")]
        return [held for held in locks if self._is_held(connection, held, now_ms)]

    def _find(self, connection: sqlite3.Connection, name: bytes, now_ms: int) -> Held | None:
        row = connection.execute(FIND, (name,)).fetchone()
        held = read_as(Held, row) if row else None
        return held if held and self._is_held(connection, held, now_ms) else None

    def _is_held(self, connection: sqlite3.Connection, held: Held, now_ms: int) -> bool:
        """Return whether its lease goes on, or its run lives: here, or on another node, by the record."""
        if held.expires_ms > now_ms or held.run is None:
            return held.expires_ms > now_ms
        is_shared = self._connections.is_shared
        return self.alive(held.run) or (is_shared and connection.execute(IS_OPEN, (held.run,)).fetchone() is not None)

    @on_writer(OpKind.READ)
    def list(self, connection: sqlite3.Connection) -> list[Held]:
        """Return all held locks, sorted by name."""
        return self.find_all(connection, self._clock.now_ms())


def release_run(connection: sqlite3.Connection, run: RunId) -> list[bytes]:
    names = connection.execute("DELETE FROM lock WHERE run = ? RETURNING name", (run,)).fetchall()
    return sorted(name for (name,) in names)
