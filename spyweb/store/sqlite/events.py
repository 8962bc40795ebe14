"""Store the outbox of changes: an event for each change that jobs watch, and a row of `wanted` for each such job.

Both are written in the transaction of the change.  The claim of a run puts its id into the job's row; the row is
deleted with the end of the run, unless another attempt has taken its place there, and the event with its last row.
"""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from spyweb.errors import StoreError
from spyweb.model import ChangeKind, JobId, RunId, Value
from spyweb.store.crypto.sealing import Codec, Place
from spyweb.store.encoding import Cell, Column
from spyweb.store.model.entries import BEFORE_ALL, ChangeEvent, Origin, Position, WantedChange, Watch
from spyweb.store.model.runs import End
from spyweb.store.sqlite.batch import BatchQueue, OpKind
from spyweb.store.sqlite.changes import ChangeNote, EntryContext, Row
from spyweb.store.sqlite.subscriptions import Notices, Subscribers, Subscriptions

NO_RUN = RunId(0)  # stands for the run that a change might have started; no run has this id

ADD_EVENT = """
    INSERT INTO event (
        namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value, at_ms, job, run, depth
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ADD_WANTED = "INSERT OR IGNORE INTO wanted (event, job) VALUES (?, ?)"
WANTED = """
    SELECT wanted.job, event.id, namespace, key, kind, at_ms, event.job, event.run, depth
    FROM wanted INDEXED BY wanted_waiting CROSS JOIN event ON event.id = wanted.event
    WHERE wanted.run IS NULL AND wanted.job > '' AND (wanted.job, wanted.event) > (?, ?)
    ORDER BY wanted.job, wanted.event LIMIT ?
"""
FIND = """
    SELECT id, namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value,
        at_ms, job, run, depth
    FROM event WHERE id = ?
"""
CLAIM = "UPDATE wanted SET run = ?3 WHERE event = ?1 AND job = ?2"
JOB_OF_RUN = "SELECT job FROM run WHERE id = ?"
# While it is unknown which other jobs want the event, the row says that this job has had it.
CLEAR = """
    DELETE FROM wanted WHERE event = ?1 AND job = ?2 AND run = ?3
        AND NOT EXISTS (SELECT 1 FROM wanted WHERE event = ?1 AND job = '')
"""
DELETE_UNWANTED = "DELETE FROM event WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM wanted WHERE event = ?1)"

OF_NOBODY_KNOWN = """
    SELECT event.id, namespace, key, kind FROM wanted INDEXED BY wanted_waiting JOIN event ON event.id = wanted.event
    WHERE wanted.run IS NULL AND wanted.job = ''
"""
FORGET_HANDLED = """
    DELETE FROM wanted WHERE event = ? AND (job = '' OR (
        run IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE run.id = wanted.run AND run.state <> 'ended')
    ))
"""

WantedRow = tuple[str, int, str, bytes, str, int, str | None, int | None, int]
EventRow = tuple[
    int, str, bytes, str, int | None, str | None, Column, int | None, str | None, Column,
    int, str | None, int | None, int,
]  # fmt: skip


class Events:
    """The outbox of changes that jobs watch, written in the transaction of the change, once for each of these jobs.

    A job needs a change until the run that is claimed for it (`NewRun.event`) has ended, or `Change.dropped` says that
    there will be none; the event stays until no job needs it.  Reads on the writer's own connection: its queries are
    short, and must see every event that was announced.
    """

    def __init__(self, writer: BatchQueue, codec: Codec) -> None:
        self._writer = writer
        self._codec = codec
        self._callbacks: list[Callable[[], None]] = []
        self._all_known = False
        self._has_unaddressed = True  # there may be events from before migration 0006
        self.subscriptions = Subscriptions()  # of jobs
        self.subscribers = Subscribers()

    def watch(self, watches: Sequence[Watch], *, all_known: bool = True) -> None:
        """Keep these changes for their jobs and no others, from the writes that are requested after this on.

        `all_known`: there is no job whose watches are missing because its file can't be loaded.
        """
        self.subscriptions = Subscriptions(watches)
        self._all_known = all_known

    @property
    def is_quiet(self) -> bool:
        """Return whether nobody watches or follows anything."""
        return self.subscriptions.is_empty and self.subscribers.is_empty

    def wanted(self, limit: int, *, after: Position = BEFORE_ALL) -> Future[list[WantedChange]]:
        """Return changes that no run has been claimed for, sorted by job, those of each job oldest first."""
        if self._has_unaddressed:
            return self._writer.submit(OpKind.SEVERAL, self._address_and_find, limit, after)
        return self._writer.submit(OpKind.READ, find_wanted, limit, after)

    def _address_and_find(self, connection: sqlite3.Connection, limit: int, after: Position) -> list[WantedChange]:
        self._has_unaddressed = address_events(connection, self.subscriptions, all_known=self._all_known)
        return find_wanted(connection, limit, after)

    def find(self, event: int) -> Future[ChangeEvent | None]:
        """Return an event that a job still needs."""
        return self._writer.submit(OpKind.READ, find_event, self._codec, event)

    def on_committed(self, callback: Callable[[], None]) -> None:
        """Have this called on the loop, after the commit, each time that there may be new events."""
        self._callbacks.append(callback)

    def follow(self, watch: Watch, listen: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        """Have this called on the loop with each such change after its commit; return the function that ends it.

        Nothing is stored for it: these events have no id, and begin with the writes that are requested after this.
        """
        return self.subscribers.add(watch, listen)

    def after(self, *, is_kept: bool, notices: Notices | None) -> Callable[[], None] | None:
        """Return the callback for the loop once a write is committed."""
        if notices is None:
            return self._tell if is_kept else None
        return partial(self._tell_all, is_kept, notices)

    def _tell_all(self, is_kept: bool, notices: Notices) -> None:
        self.subscribers.tell(notices)
        if is_kept:
            self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback()


# On the thread of a connection


def keep_event(
    connection: sqlite3.Connection, context: EntryContext, note: ChangeNote, origin: Origin, jobs: Iterable[JobId]
) -> None:
    """Write the event of a change for these jobs."""
    old, new = side_of(note.old), side_of(note.new)
    who = (origin.job, origin.run, origin.depth)
    row = (context.namespace, context.key, note.kind.value, *old, *new, context.now_ms, *who)
    event = connection.execute(ADD_EVENT, row).lastrowid
    connection.executemany(ADD_WANTED, [(event, job) for job in jobs])


def side_of(row: Row | None) -> tuple[object, ...]:
    return (row.version, row.type, row.column) if row else (None, None, None)


def claim_event(connection: sqlite3.Connection, event: int, job: JobId, run: RunId) -> None:
    """Note the run that is claimed for a change that the job wants."""
    connection.execute(CLAIM, (event, job, run))


def drop_event(connection: sqlite3.Connection, event: int, job: JobId) -> None:
    """Note that no run of the job is started for this change."""
    claim_event(connection, event, job, NO_RUN)
    clear_event(connection, event, job, NO_RUN)


def clear_after_run(connection: sqlite3.Connection, end: End) -> None:
    """Note the end of a run that a change may have started."""
    if end.event is None:
        return
    found = connection.execute(JOB_OF_RUN, (end.run,)).fetchone()
    if found:
        clear_event(connection, end.event, JobId(found[0]), end.run)


def clear_event(connection: sqlite3.Connection, event: int, job: JobId, run: RunId) -> None:
    connection.execute(CLEAR, (event, job, run))
    connection.execute(DELETE_UNWANTED, (event,))


def address_events(connection: sqlite3.Connection, subscriptions: Subscriptions, *, all_known: bool) -> bool:
    """Assign events that an earlier spyweb left unassigned to the jobs that watch such changes now.

    As long as not all jobs are known, the jobs that have had an event are noted.  Return False when there is no event.
    """
    unaddressed = connection.execute(OF_NOBODY_KNOWN).fetchall()
    for event, namespace, key, kind in unaddressed:
        jobs = subscriptions.of_key(namespace, key).get(ChangeKind(kind), ())
        connection.executemany(ADD_WANTED, [(event, job) for job in jobs])
        if all_known:
            connection.execute(FORGET_HANDLED, (event,))
            connection.execute(DELETE_UNWANTED, (event,))
    return bool(unaddressed)


def find_wanted(connection: sqlite3.Connection, limit: int, after: Position) -> list[WantedChange]:
    return [read_wanted(row) for row in connection.execute(WANTED, (*after, max(limit, 0)))]


def find_event(connection: sqlite3.Connection, codec: Codec, event: int) -> ChangeEvent | None:
    row = connection.execute(FIND, (event,)).fetchone()
    return read_event(codec, row) if row else None


def read_wanted(row: WantedRow) -> WantedChange:
    wanted_by, event, namespace, key, kind, at_ms, job, run, depth = row
    return WantedChange(
        job=JobId(wanted_by),
        event=event,
        namespace=namespace,
        key=key,
        kind=ChangeKind(kind),
        at_ms=at_ms,
        origin=read_origin(job, run, depth),
    )


def read_event(codec: Codec, row: EventRow) -> ChangeEvent:
    (
        number, namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value,
        at_ms, job, run, depth,
    ) = row  # fmt: skip
    return ChangeEvent(
        id=number,
        namespace=namespace,
        key=key,
        kind=ChangeKind(kind),
        old=read_side(codec, namespace, key, (old_version, old_type, old_value)),
        new=read_side(codec, namespace, key, (new_version, new_type, new_value)),
        version=new_version or old_version or 0,
        at_ms=at_ms,
        origin=read_origin(job, run, depth),
    )


def read_origin(job: str | None, run: int | None, depth: int) -> Origin:
    return Origin(job=None if job is None else JobId(job), run=None if run is None else RunId(run), depth=depth)


def read_side(codec: Codec, namespace: str, key: bytes, side: tuple[int | None, str | None, Column]) -> Value:
    """Return the value, or None if it can't be read: a damaged value must not keep a run from starting."""
    version, kind, column = side
    if version is None or kind is None:
        return None
    try:
        return codec.read(Place(namespace, key, version), Cell(kind, column))
    except StoreError:
        return None
