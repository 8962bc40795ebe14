"""The outbox of changes: written with the change, read here, deleted with the record of the run that they start."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence

from spyweb.model import JobId, RunId, Value
from spyweb.store.batch import Kind, Lane
from spyweb.store.encoding import Cell, Column
from spyweb.store.protocol import ChangeEvent, ChangeKind, Origin, Watch
from spyweb.store.sealing import Codec, Place
from spyweb.store.watching import Watches

PENDING = """
    SELECT id, namespace, key, kind, old_version, old_type, old_value, new_version, new_type, new_value,
        at_ms, job, run, depth
    FROM event WHERE id > ? ORDER BY id LIMIT ?
"""

EventRow = tuple[
    int, str, bytes, str, int | None, str | None, Column, int | None, str | None, Column,
    int, str | None, int | None, int,
]  # fmt: skip


class SqliteEvents:
    """Questions go to the writer's own connection: they are short, and see every event that was told of."""

    def __init__(self, writer: Lane, codec: Codec) -> None:
        self._writer = writer
        self._codec = codec
        self._callbacks: list[Callable[[], None]] = []
        self.watches = Watches()

    def watch(self, watches: Sequence[Watch]) -> None:
        self.watches = Watches(watches)

    def pending(self, limit: int = 1000, *, after: int = 0) -> Future[list[ChangeEvent]]:
        return self._writer.submit(Kind.READ, find_pending, self._codec, limit, after)

    def on_committed(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def tell(self) -> None:
        for callback in self._callbacks:
            callback()


def find_pending(connection: sqlite3.Connection, codec: Codec, limit: int, after: int) -> list[ChangeEvent]:
    return [read_event(codec, row) for row in connection.execute(PENDING, (after, max(limit, 0)))]


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
        origin=Origin(job=None if job is None else JobId(job), run=None if run is None else RunId(run), depth=depth),
    )


def read_side(codec: Codec, namespace: str, key: bytes, side: tuple[int | None, str | None, Column]) -> Value:
    version, kind, column = side
    if version is None or kind is None:
        return None
    return codec.read(Place(namespace, key, version), Cell(kind, column))
