"""The record of every due time, and how far each schedule has been dealt with.

Changes go through the writer's queue.  Questions, which may walk over many rows, have a queue of their own, so that
they never hold up a write.
"""

from __future__ import annotations

import sqlite3
from asyncio import Future
from functools import partial

from spyweb.model import Cursor, JobId, Run, RunId
from spyweb.store.protocol import Change
from spyweb.store.sqlite import pruning
from spyweb.store.sqlite.batch import BatchQueue, OpKind
from spyweb.store.sqlite.locks import Holdings
from spyweb.store.sqlite.rows import CURSOR_COLUMNS, RUN_COLUMNS, read_cursor, read_run, record, record_and_release

OPEN_RUNS = f"SELECT {RUN_COLUMNS} FROM run WHERE state <> 'ended' ORDER BY id"
ALL_RUNS = f"SELECT {RUN_COLUMNS} FROM run WHERE id < ? ORDER BY id DESC LIMIT ?"
RUNS_OF_JOB = f"SELECT {RUN_COLUMNS} FROM run WHERE job = ? AND id < ? ORDER BY id DESC LIMIT ?"
# Leaps from job to job in the index instead of walking over every row.
LATEST_RUNS = f"""
    WITH RECURSIVE jobs (name) AS (
        SELECT min(job) FROM run
        UNION ALL SELECT (SELECT min(job) FROM run WHERE job > name) FROM jobs WHERE name IS NOT NULL
    )
    SELECT {RUN_COLUMNS} FROM run WHERE id IN (
        SELECT (
            SELECT id FROM run INDEXED BY run_of_job
            WHERE job = name AND state = 'ended' AND last_due_ms IS NULL ORDER BY id DESC LIMIT 1
        ) FROM jobs
    )
"""
CURSORS = f"SELECT {CURSOR_COLUMNS} FROM cursor"

BEYOND_ALL = (1 << 63) - 1  # greater than any id


class SqliteRuns:
    def __init__(self, writer: BatchQueue, reader: BatchQueue, holdings: Holdings) -> None:
        self._writer = writer
        self._reader = reader
        self._holdings = holdings

    def record(self, change: Change) -> Future[list[RunId | None]]:
        holders = self._holdings.any_of(end.run for end in change.end)
        if not holders:
            return self._writer.submit(kind_of(change), record, change)
        tell = partial(self._holdings.ended, holders)
        return self._writer.submit(OpKind.SEVERAL, record_and_release, change, holders, after=tell)

    def cursors(self) -> Future[dict[JobId, Cursor]]:
        return self._reader.submit(OpKind.READ, find_cursors)

    def open(self) -> Future[list[Run]]:
        return self._reader.submit(OpKind.READ, find_open)

    def latest(self) -> Future[dict[JobId, Run]]:
        return self._reader.submit(OpKind.READ, find_latest)

    async def prune(self, *, keep: int, older_than_ms: int) -> int:
        return await pruning.prune(self._writer, self._reader, pruning.runs(keep, older_than_ms))

    def list(self, job: JobId | None = None, *, limit: int = 30, before: RunId | None = None) -> Future[list[Run]]:
        return self._reader.submit(OpKind.READ, find_runs, job, limit, before)


def kind_of(change: Change) -> OpKind:
    writes = len(change.end) + len(change.begin) + len(change.skipped) + len(change.new) + len(change.cursors)
    writes += 2 * len(change.dropped)
    if writes > 1:
        return OpKind.SEVERAL
    writes += sum(run.event is not None for run in change.new) + sum(end.event is not None for end in change.end)
    return OpKind.SEVERAL if writes > 1 else OpKind.WRITE


def find_cursors(connection: sqlite3.Connection) -> dict[JobId, Cursor]:
    return {cursor.job: cursor for cursor in map(read_cursor, connection.execute(CURSORS))}


def find_open(connection: sqlite3.Connection) -> list[Run]:
    return [read_run(row) for row in connection.execute(OPEN_RUNS)]


def find_latest(connection: sqlite3.Connection) -> dict[JobId, Run]:
    return {run.job: run for run in map(read_run, connection.execute(LATEST_RUNS))}


def find_runs(connection: sqlite3.Connection, job: JobId | None, limit: int, before: RunId | None) -> list[Run]:
    below = BEYOND_ALL if before is None else before
    if job is None:
        rows = connection.execute(ALL_RUNS, (below, max(limit, 0)))
    else:
        rows = connection.execute(RUNS_OF_JOB, (job, below, max(limit, 0)))
    return [read_run(row) for row in rows]
