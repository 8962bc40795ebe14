"""Delete outdated rows of jobs, in slices: a reader finds them, the writer deletes them.

A slice is small enough that the writes queued behind it hardly wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spyweb.store.sqlite.batch import BatchQueue, OpKind

SLICE = 200  # rows deleted in one op
JOBS_AT_ONCE = 100  # looked at in one query, so that other queries get their turn


class Prunable(NamedTuple):
    """A table in which each job has rows, and the queries that find and delete outdated ones."""

    next_job: str  # SQL: the first job after the one that is given
    outdated: Callable[[sqlite3.Connection, str, int], list[int]]  # of a job, at most so many
    delete: str  # SQL


async def prune(writer: BatchQueue, reader: BatchQueue, table: Prunable) -> int:
    deleted, job = 0, ""
    while True:
        found = await reader.submit(OpKind.READ, find_outdated, table, job)
        if found.outdated:
            await writer.submit(OpKind.SEVERAL, delete, table.delete, found.outdated)
            deleted += len(found.outdated)
        if found.searched_up_to is None:
            return deleted
        job = found.searched_up_to


async def prune_older(
    writer: BatchQueue, reader: BatchQueue, outdated: str, delete_row: str, older_than_ms: int
) -> int:
    """Delete the rows that `outdated` finds, given the moment and a limit; return how many."""
    deleted = 0
    while found := await reader.submit(OpKind.READ, find_older, outdated, older_than_ms):
        await writer.submit(OpKind.SEVERAL, delete, delete_row, found)
        deleted += len(found)
    return deleted


def find_older(connection: sqlite3.Connection, outdated: str, older_than_ms: int) -> list[int]:
    return [number for (number,) in connection.execute(outdated, (older_than_ms, SLICE))]


class OutdatedRows(NamedTuple):
    outdated: Sequence[int]  # ids, at most SLICE
    searched_up_to: str | None  # the last job that was searched to its end; None when all were


def find_outdated(connection: sqlite3.Connection, table: Prunable, after: str) -> OutdatedRows:
    found: list[int] = []
    for _ in range(JOBS_AT_ONCE):
        job = connection.execute(table.next_job, (after,)).fetchone()[0]
        if job is None:
            return OutdatedRows(found, None)
        most = SLICE - len(found)
        of_job = table.outdated(connection, job, most)
        found += of_job
        if len(of_job) == most:  # there may be more of this job
            break
        after = job
    return OutdatedRows(found, after)


def delete(connection: sqlite3.Connection, statement: str, numbers: Sequence[int]) -> None:
    connection.executemany(statement, [(number,) for number in numbers])
