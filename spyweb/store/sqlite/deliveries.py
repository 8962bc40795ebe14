"""What has become of a change event: the runs that it started, and its end.  Runs on the thread of a connection.

It ends once it is delivered, which means that it starts no more runs, and those that it started have ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from spyweb.model import JobId, RunId

NO_RUN = RunId(0)  # in the place of one that a change might have started; no run has this id
STARTED = "REPLACE INTO started (event, job, run) VALUES (?, ?, ?)"
DELIVERED = "UPDATE event SET delivered = 1 WHERE id = ?"
END = """
    DELETE FROM event WHERE id = ?1 AND delivered AND NOT EXISTS (
        SELECT 1 FROM started JOIN run ON run.id = started.run WHERE started.event = ?1 AND run.state <> 'ended'
    )
"""
FORGET_STARTED = "DELETE FROM started WHERE event = ?"


def note_started(connection: sqlite3.Connection, event: int, job: JobId, run: RunId) -> None:
    connection.execute(STARTED, (event, job, run))


def deliver(connection: sqlite3.Connection, events: Iterable[int]) -> None:
    for event in events:
        connection.execute(DELIVERED, (event,))
        end_if_over(connection, event)


def end_if_over(connection: sqlite3.Connection, event: int) -> None:
    if connection.execute(END, (event,)).rowcount:
        connection.execute(FORGET_STARTED, (event,))
