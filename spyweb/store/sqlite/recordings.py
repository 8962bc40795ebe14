"""The records of runs' ops, in SQLite: of each job's newest that have one.  They are written with the ends of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import cast

from spyweb.clock import Clock
from spyweb.model import RunId
from spyweb.store.encoding import Cell
from spyweb.store.encryption import Codec, Place
from spyweb.store.sqlite.connections import Connections, StorePart, on_questions

KEPT = 5  # of a job
PLACE = ("recording", b"")  # of each, before its run
ADD = "INSERT INTO recording (run, job, type, data) SELECT id, job, ?, ? FROM run WHERE id = ?"
BEYOND = """
    DELETE FROM recording WHERE run IN (
        SELECT run FROM recording WHERE job = (SELECT job FROM run WHERE id = ?1) ORDER BY run DESC LIMIT 1 OFFSET ?2
    )
"""


class Recordings(StorePart):
    def __init__(self, connections: Connections, clock: Clock, codec: Codec) -> None:
        super().__init__(connections, clock)
        self._codec = codec

    def seal(self, run: RunId, data: bytes) -> tuple[str, bytes]:
        """Return the record as it is stored; in any thread."""
        return cast("tuple[str, bytes]", self._codec.write(Place(*PLACE, run), data))

    @on_questions
    def find(self, connection: sqlite3.Connection, run: RunId) -> bytes | None:
        """Return the record of a run.  Raises StoreError where it can't be decrypted."""
        row = connection.execute("SELECT type, data FROM recording WHERE run = ?", (run,)).fetchone()
        data = row and self._codec.read(Place(*PLACE, run), Cell(*row))
        return data if isinstance(data, bytes) else None


# On the thread of a connection


def add(connection: sqlite3.Connection, records: Iterable[tuple[RunId, tuple[str, bytes]]]) -> None:
    """Add the records of runs that end; of each job the oldest goes where it has too many."""
    for run, record in records:
        connection.execute(ADD, (*record, run))
        connection.execute(BEYOND, (run, KEPT))
