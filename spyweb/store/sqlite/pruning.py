"""Delete outdated rows in slices: a reader finds them, the writer deletes them.

A slice is small enough that the writes queued behind it hardly wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from spyweb.store.sqlite.batch import BatchQueue, OpKind

SLICE = 200  # rows deleted in one op
JOBS_AT_ONCE = 100  # looked at in one query, so that other queries get their turn

Rows = Sequence[tuple[Any, ...]]  # the parameters of a DELETE, one a row
Find = Callable[[sqlite3.Connection, str], tuple[Rows, str | None]]  # given and gives where to go on; None: that is all


async def prune(writer: BatchQueue, reader: BatchQueue, find: Find, delete: str) -> int:
    """Delete what is found by this statement; return how many rows."""
    deleted = 0
    after: str | None = ""
    while after is not None:
        rows, after = await reader.submit(OpKind.READ, find, after)
        if rows:
            await writer.submit(OpKind.SEVERAL, execute_each, delete, rows)
            deleted += len(rows)
    return deleted


def older(outdated: str, than_ms: int) -> Find:
    """Find the rows that this statement gives for the moment and a limit."""

    def find(connection: sqlite3.Connection, after: str) -> tuple[Rows, str | None]:
        rows = connection.execute(outdated, (than_ms, SLICE)).fetchall()
        return rows, after if rows else None

    return find


def of_jobs(table: str, outdated: Callable[[sqlite3.Connection, str, int], Rows]) -> Find:
    """Find the rows of each job that has any in this table: `outdated` gives at most so many of one."""

    def find(connection: sqlite3.Connection, after: str) -> tuple[Rows, str | None]:
        found: list[tuple[Any, ...]] = []
        for _ in range(JOBS_AT_ONCE):
            job = connection.execute(f"SELECT min(job) FROM {table} WHERE job > ?", (after,)).fetchone()[0]
            if job is None:
                return found, None
            most = SLICE - len(found)
            of_job = outdated(connection, job, most)
            found += of_job
            if len(of_job) == most:  # there may be more of this job
                break
            after = job
        return found, after

    return find


def execute_each(connection: sqlite3.Connection, statement: str, rows: Rows) -> None:
    connection.executemany(statement, rows)
