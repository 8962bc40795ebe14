"""Deleting runs that nobody needs any more, in slices: found by the reader, deleted by the writer.

A slice deletes few enough rows that the writes queued behind it hardly wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from spyweb.store.batch import Kind, Lane

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


async def prune(writer: Lane, reader: Lane, keep: int, older_than_ms: int) -> int:
    deleted, job = 0, ""
    while True:
        found = await reader.submit(Kind.READ, find_outdated, job, keep, older_than_ms)
        if found.outdated:
            await writer.submit(Kind.SEVERAL, delete, found.outdated)
            deleted += len(found.outdated)
        if found.looked_up_to is None:
            return deleted
        job = found.looked_up_to


class Found(NamedTuple):
    outdated: Sequence[int]  # ids, at most SLICE
    looked_up_to: str | None  # the last job that has been looked at whole; None when all have


def find_outdated(connection: sqlite3.Connection, after: str, keep: int, older_than_ms: int) -> Found:
    found: list[int] = []
    for _ in range(JOBS_AT_ONCE):
        job = connection.execute(NEXT_JOB, (after,)).fetchone()[0]
        if job is None:
            return Found(found, None)
        room = SLICE - len(found)
        of_job = outdated_of_job(connection, job, keep, older_than_ms, room)
        found += of_job
        if len(of_job) == room:  # there may be more of this job
            break
        after = job
    return Found(found, after)


def outdated_of_job(connection: sqlite3.Connection, job: str, keep: int, older_than_ms: int, limit: int) -> list[int]:
    beyond = connection.execute(FIRST_BEYOND, (job, keep)).fetchone()
    rows = connection.execute(OUTDATED, (job, beyond[0] if beyond else 0, older_than_ms, limit))
    return [number for (number,) in rows]


def delete(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    connection.executemany(DELETE, [(number,) for number in numbers])
