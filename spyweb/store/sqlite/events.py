"""Deliver changes of entries to jobs and subscribers; a write without either pays nothing.

Jobs watch: for each change an event is stored, and a row of `wanted` for each such job, in the transaction of the
change.  The claim of a run puts its id into the job's row; the row is deleted with the end of the run, unless another
attempt has taken its place there, and the event with its last row.

Subscribers listen: they are called from memory, after the commit, and nothing is written for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

from spyweb.clock import Clock
from spyweb.errors import StoreError
from spyweb.model import ChangeKind, JobId, Value
from spyweb.store.encoding import Cell, Column
from spyweb.store.encryption import Codec, Place
from spyweb.store.model.entries import BEFORE_ALL, ChangeEvent, Origin, Position, WantedChange, Watch
from spyweb.store.model.runs import End
from spyweb.store.patterns import Pattern, compile_pattern
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.changes import ChangeNote, EntryContext
from spyweb.store.sqlite.connections import Connections, StorePart, insert_into, on_writer, read_as

COLUMNS = """
    namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value, at_ms, job, run, depth
"""
ADD_EVENT = insert_into("event", COLUMNS)
WANTED = """
    SELECT wanted.job, event.id, namespace, key, kind, at_ms, event.job, event.run, depth
    FROM wanted INDEXED BY wanted_waiting CROSS JOIN event ON event.id = wanted.event
    WHERE wanted.run IS NULL AND (wanted.job, wanted.event) > (?, ?)
    ORDER BY wanted.job, wanted.event LIMIT ?
"""
FIND = f"SELECT id, {COLUMNS} FROM event WHERE id = ?"
DELETE_UNWANTED = "DELETE FROM event WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM wanted WHERE event = ?1)"

JobsByKind = Mapping[ChangeKind, Set[JobId]]  # a kind that is not in it is watched by nobody


Subscription = tuple[Pattern, Watch]  # the pattern is that of the watch's key


class Subscriptions:
    """Watches, found by namespace.  It never changes once made, so any thread may use it."""

    def __init__(self, watches: Sequence[Watch] = ()) -> None:
        self._exact: dict[str, list[Subscription]] = {}
        self._prefixes: dict[str, list[Subscription]] = {}
        for watch in watches:
            group = self._prefixes if watch.is_prefix else self._exact
            group.setdefault(watch.namespace, []).append((compile_pattern(watch.key), watch))
        self.is_empty = not watches

    def of_namespace(self, namespace: str) -> list[Subscription]:
        if self.is_empty:
            return []
        found = list(self._exact.get(namespace, ()))
        for prefix, subscriptions in self._prefixes.items():
            if namespace.startswith(prefix):
                found += subscriptions
        return found

    def of_key(self, namespace: str, key: bytes) -> JobsByKind:
        return jobs_by_kind(self.of_namespace(namespace), key)


def jobs_by_kind(subscriptions: Sequence[Subscription], key: bytes) -> JobsByKind:
    """Return the kinds of change that this key is watched for, each with the jobs that watch."""
    found: dict[ChangeKind, set[JobId]] = {}
    for pattern, watch in subscriptions:
        if pattern.matches(key):
            for kind in watch.kinds:
                jobs = found.setdefault(kind, set())
                if watch.job is not None:
                    jobs.add(watch.job)
    return found


class Notices:
    """The changes of one op for subscribers, gathered on the store's thread."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self.events: list[ChangeEvent] = []

    def begin(self) -> None:
        """Forget the changes of an earlier try of the op, which was rolled back."""
        self.events.clear()

    def note(self, context: EntryContext, notes: Sequence[ChangeNote], origin: Origin) -> None:
        kinds = self._subscriptions.of_key(context.namespace, context.key)
        rows = [row_of(context, note, origin) for note in notes if note.kind in kinds]
        self.events += [read_event(context.codec, (0, *row)) for row in rows]  # not stored, so without an id


class Subscriber(NamedTuple):
    watch: Watch
    subscriptions: Subscriptions  # to that one
    listen: Callable[[ChangeEvent], None]


class Events(StorePart):
    """The outbox of changes that jobs watch, written in the transaction of the change, once for each of these jobs.

    A job needs a change until the run that is claimed for it (`Trigger.change_event`) has ended, or `Change.dropped`
    says that there will be none; the event stays until no job needs it.  Reads on the writer's own connection: its
    queries are short, and must see every event that was announced.
    """

    def __init__(self, connections: Connections, clock: Clock, codec: Codec) -> None:
        super().__init__(connections, clock)
        self._codec = codec
        self._callbacks: list[Callable[[], None]] = []
        self.subscriptions = Subscriptions()  # of jobs
        self._subscribers: Sequence[Subscriber] = ()
        self._followed = Subscriptions()  # of all subscribers together

    def watch(self, watches: Sequence[Watch]) -> None:
        """Keep these changes for their jobs and no others, from the writes that are requested after this on."""
        self.subscriptions = Subscriptions(watches)

    @property
    def is_quiet(self) -> bool:
        """Return whether nobody watches or follows anything."""
        return self.subscriptions.is_empty and self._followed.is_empty

    @on_writer(OpKind.READ)
    def wanted(self, connection: sqlite3.Connection, limit: int, *, after: Position = BEFORE_ALL) -> list[WantedChange]:
        """Return changes that no run has been claimed for, sorted by job, those of each job oldest first."""
        rows = connection.execute(WANTED, (*after, max(limit, 0)))
        return [read_as(WantedChange, row, origin=Origin(job=row[6], run=row[7], depth=row[8])) for row in rows]

    @on_writer(OpKind.READ)
    def find(self, connection: sqlite3.Connection, event: int) -> ChangeEvent | None:
        """Return an event that a job still needs."""
        row = connection.execute(FIND, (event,)).fetchone()
        return read_event(self._codec, row) if row else None

    def on_committed(self, callback: Callable[[], None]) -> None:
        """Have this called on the loop, after the commit, each time that there may be new events."""
        self._callbacks.append(callback)

    def follow(self, watch: Watch, listen: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        """Have this called on the loop with each such change after its commit; return the function that ends it.

        Nothing is stored for it: these events have no id, and begin with the writes that are requested after this.
        """
        new = Subscriber(watch, Subscriptions([watch]), listen)
        self._tell_only([*self._subscribers, new])
        return lambda: self._tell_only([each for each in self._subscribers if each is not new])

    def _tell_only(self, subscribers: Sequence[Subscriber]) -> None:
        self._subscribers = subscribers
        self._followed = Subscriptions([subscriber.watch for subscriber in subscribers])

    def notices(self, namespace: str | None = None) -> Notices | None:
        """Begin the notices of an op on this namespace (None: on any); None when nobody listens."""
        is_followed = self._subscribers if namespace is None else self._followed.of_namespace(namespace)
        return Notices(self._followed) if is_followed else None

    def after(self, *, is_kept: bool, notices: Notices | None) -> Callable[[], None] | None:
        """Return the callback for the loop once a write is committed."""
        if notices is None:
            return self._tell if is_kept else None
        return partial(self._tell_all, is_kept, notices)

    def _tell_all(self, is_kept: bool, notices: Notices) -> None:
        for event in notices.events:
            for subscriber in self._subscribers:
                if event.kind in subscriber.subscriptions.of_key(event.namespace, event.key):
                    subscriber.listen(event)
        if is_kept:
            self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback()
        self.ring()


# On the thread of a connection


def keep_event(
    connection: sqlite3.Connection, context: EntryContext, note: ChangeNote, origin: Origin, jobs: Iterable[JobId]
) -> None:
    """Write the event of a change for these jobs."""
    event = connection.execute(ADD_EVENT, row_of(context, note, origin)).lastrowid
    connection.executemany("INSERT INTO wanted (event, job) VALUES (?, ?)", [(event, job) for job in jobs])


def row_of(context: EntryContext, note: ChangeNote, origin: Origin) -> tuple[object, ...]:
    sides = [(row.version, row.type, row.column) if row else (None, None, None) for row in (note.old, note.new)]
    who = (origin.job, origin.run, origin.depth)
    return (context.namespace, context.key, note.kind.value, *sides[0], *sides[1], context.now_ms, *who)


def drop_event(connection: sqlite3.Connection, event: int, job: JobId) -> None:
    """Note that no run of the job is started for this change."""
    connection.execute("DELETE FROM wanted WHERE event = ? AND job = ?", (event, job))
    connection.execute(DELETE_UNWANTED, (event,))


def clear_after_runs(connection: sqlite3.Connection, ends: Sequence[End]) -> None:
    """Note the ends of runs that changes may have started."""
    if ended := [(end.event, end.run) for end in ends if end.event is not None]:
        connection.executemany("DELETE FROM wanted WHERE event = ? AND run = ?", ended)
        connection.executemany(DELETE_UNWANTED, [(event,) for event, _ in ended])


def read_event(codec: Codec, row: Sequence[Any]) -> ChangeEvent:
    number, namespace, key, kind, *sides, at_ms, job, run, depth = row
    old, new = sides[:3], sides[3:]
    return ChangeEvent(
        id=number,
        namespace=namespace,
        key=key,
        kind=ChangeKind(kind),
        old=read_side(codec, namespace, key, *old),
        new=read_side(codec, namespace, key, *new),
        version=new[0] or old[0] or 0,
        at_ms=at_ms,
        origin=Origin(job=job, run=run, depth=depth),
    )


def read_side(codec: Codec, namespace: str, key: bytes, version: int | None, kind: str, column: Column) -> Value:
    """Return the value, or None if it can't be read: a damaged value must not keep a run from starting."""
    try:
        return None if version is None else codec.read(Place(namespace, key, version), Cell(kind, column))
    except StoreError:
        return None
