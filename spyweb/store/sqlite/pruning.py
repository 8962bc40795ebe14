"""Deleting rows of jobs that nobody needs any more, in slices: found by the reader, deleted by the writer.

A slice deletes few enough rows that the writes queued behind it hardly wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from spyweb.store.sqlite.batch import BatchQueue, OpKind

SLICE = 200  # rows deleted in one op: about 1 ms
JOBS_AT_ONCE = 100  # looked at in one question, so that other questions get between

NEXT_JOB = "SELECT min(job) FROM run WHERE job > ?"
# The newest `keep` ended rows of the job are below this id's; NULL when there are no more than that.
FIRST_BEYOND = """
    SELECT id FROM run INDEXED BY run_of_job
    WHERE job = ? AND state = 'ended' ORDER BY id DESC LIMIT 1 OFFSET ?
"""
OUTDATED = """
    SELECT id FROM run INDEXED BY run_of_job
    WHERE job = ?1 AND state = 'ended' AND (id <= ?2 OR ended_ms < ?3) AND id < (SELECT max(id) FROM run)
    LIMIT ?4
"""
DELETE = "DELETE FROM run WHERE id = ?"


class Prunable(NamedTuple):
    """A table of which each job has rows."""

    next_job: str  # SQL: the first job after the one that is given
    outdated: Callable[[sqlite3.Connection, str, int], list[int]]  # of a job, at most so many
    delete: str  # SQL


def runs(keep: int, older_than_ms: int) -> Prunable:
    return Prunable(NEXT_JOB, partial(outdated_of_job, keep, older_than_ms), DELETE)


async def prune(writer: BatchQueue, reader: BatchQueue, table: Prunable) -> int:
    deleted, job = 0, ""
    while True:
        found = await reader.submit(OpKind.READ, find_outdated, table, job)
        if found.outdated:
            await writer.submit(OpKind.SEVERAL, delete, table.delete, found.outdated)
            deleted += len(found.outdated)
        if found.looked_up_to is None:
            return deleted
        job = found.looked_up_to


class Found(NamedTuple):
    outdated: Sequence[int]  # ids, at most SLICE
    looked_up_to: str | None  # the last job that has been looked at whole; None when all have


def find_outdated(connection: sqlite3.Connection, table: Prunable, after: str) -> Found:
    found: list[int] = []
    for _ in range(JOBS_AT_ONCE):
        job = connection.execute(table.next_job, (after,)).fetchone()[0]
        if job is None:
            return Found(found, None)
        room = SLICE - len(found)
        of_job = table.outdated(connection, job, room)
        found += of_job
        if len(of_job) == room:  # there may be more of this job
            break
        after = job
    return Found(found, after)


def outdated_of_job(keep: int, older_than_ms: int, connection: sqlite3.Connection, job: str, limit: int) -> list[int]:
    beyond = connection.execute(FIRST_BEYOND, (job, keep)).fetchone()
    rows = connection.execute(OUTDATED, (job, beyond[0] if beyond else 0, older_than_ms, limit))
    return [number for (number,) in rows]


def delete(connection: sqlite3.Connection, statement: str, numbers: Sequence[int]) -> None:
    connection.executemany(statement, [(number,) for number in numbers])
