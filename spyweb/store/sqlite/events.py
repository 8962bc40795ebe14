"""The outbox of changes: written with the change, read here, deleted with the record of the run that they start."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial

from spyweb.errors import StoreError
from spyweb.model import JobId, RunId, Value
from spyweb.store.crypto.sealing import Codec, Place
from spyweb.store.encoding import Cell, Column
from spyweb.store.protocol import ChangeEvent, ChangeKind, Origin, Watch
from spyweb.store.sqlite.batch import Kind, Lane
from spyweb.store.sqlite.following import Notices, Subscribers
from spyweb.store.sqlite.watching import Subscriptions

COLUMNS = """
    id, namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value,
    at_ms, event.job, event.run, depth,
    (SELECT group_concat(started.job, char(10)) FROM started WHERE started.event = event.id)
"""
PENDING = f"SELECT {COLUMNS} FROM event WHERE delivered = 0 AND id > ? ORDER BY id LIMIT ?"
FIND = f"SELECT {COLUMNS} FROM event WHERE id = ?"

EventRow = tuple[
    int, str, bytes, str, int | None, str | None, Column, int | None, str | None, Column,
    int, str | None, int | None, int, str | None,
]  # fmt: skip


class SqliteEvents:
    """Questions go to the writer's own connection: they are short, and see every event that was told of."""

    def __init__(self, writer: Lane, codec: Codec) -> None:
        self._writer = writer
        self._codec = codec
        self._callbacks: list[Callable[[], None]] = []
        self.subscriptions = Subscriptions()
        self.subscribers = Subscribers()

    def watch(self, watches: Sequence[Watch]) -> None:
        self.subscriptions = Subscriptions(watches)

    @property
    def is_quiet(self) -> bool:
        """Nobody is to be told of anything."""
        return self.subscriptions.is_empty and self.subscribers.is_empty

    def pending(self, limit: int = 1000, *, after: int = 0) -> Future[list[ChangeEvent]]:
        return self._writer.submit(Kind.READ, find_pending, self._codec, limit, after)

    def find(self, event: int) -> Future[ChangeEvent | None]:
        return self._writer.submit(Kind.READ, find_event, self._codec, event)

    def on_committed(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def follow(self, watch: Watch, hear: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        return self.subscribers.add(watch, hear)

    def tell(self) -> None:
        for callback in self._callbacks:
            callback()

    def after(self, *, is_kept: bool, notices: Notices | None) -> Callable[[], None] | None:
        """What is to be done on the loop once a write is committed."""
        if notices is None:
            return self.tell if is_kept else None
        return partial(self._tell_all, is_kept, notices)

    def _tell_all(self, is_kept: bool, notices: Notices) -> None:
        self.subscribers.tell(notices)
        if is_kept:
            self.tell()


def find_pending(connection: sqlite3.Connection, codec: Codec, limit: int, after: int) -> list[ChangeEvent]:
    return [read_event(codec, row) for row in connection.execute(PENDING, (after, max(limit, 0)))]


def find_event(connection: sqlite3.Connection, codec: Codec, event: int) -> ChangeEvent | None:
    row = connection.execute(FIND, (event,)).fetchone()
    return read_event(codec, row) if row else None


def read_event(codec: Codec, row: EventRow) -> ChangeEvent:
    (
        number, namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value,
        at_ms, job, run, depth, started,
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
        origin=Origin(job=None if job is None else JobId(job), run=None if run is None else RunId(run), depth=depth),
        started=frozenset(map(JobId, started.split("\n"))) if started else frozenset(),
    )


def read_side(codec: Codec, namespace: str, key: bytes, side: tuple[int | None, str | None, Column]) -> Value:
    """None also where it can't be read: one damaged value must not keep every other change from being handed out."""
    version, kind, column = side
    if version is None or kind is None:
        return None
    try:
        return codec.read(Place(namespace, key, version), Cell(kind, column))
    except StoreError:
        return None
