"""Answer questions about the runs on record from SQLite: each statement reads a bounded number of rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from sys import maxsize
from typing import cast

from spyweb.clock import Clock
from spyweb.model import JobId, Outcome, Run, RunId, RunMark
from spyweb.store.encoding import Cell
from spyweb.store.encryption import Codec, Place
from spyweb.store.model.runs import (
    NO_TIME,
    DueRow,
    FailingSeries,
    RunFilter,
    RunPage,
    RunPoint,
    RunStrip,
    ScheduleStep,
    StripWish,
    check_result_in,
)
from spyweb.store.sqlite.connections import Connections, StorePart, on_questions, read_as
from spyweb.store.sqlite.runs import NOT_ASIDE, RUN_COLUMNS, read_run

RECORD = ("recording", b"")  # the place of each, before its run
SEARCHED = 20_000  # rows that one page of a search reads, so that other questions get their turn
SERIES = 1_000  # rows that are read for a series of failures
FOLLOWED = 5_000  # rows after a run among which its followers are looked for

# In one letter, as RunMark has it.  `?2` is from when on a start is late.
MARK = f"""
    CASE state WHEN 'running' THEN '{RunMark.RUNNING}' WHEN 'waiting' THEN '{RunMark.WAITING}' ELSE
        CASE outcome
            WHEN 'success' THEN
                iif(attempt = 1 AND started_ms - due_ms > ?2, '{RunMark.LATE}', '{RunMark.SUCCESS}')
            WHEN 'failed' THEN iif(failure = 'cancelled', '{RunMark.CANCELLED}', '{RunMark.FAILED}')
            WHEN 'lost' THEN '{RunMark.LOST}'
            WHEN 'stopped' THEN '{RunMark.STOPPED}'
            WHEN 'missed' THEN '{RunMark.MISSED}'
            WHEN 'paused' THEN '{RunMark.PAUSED}'
            ELSE '{RunMark.SKIPPED}'
        END
    END
"""
TOOK = "iif(state = 'ended' AND started_ms IS NOT NULL AND outcome <> 'skipped', max(ended_ms - started_ms, 0), -1)"
STRIP = f"""
    SELECT group_concat(CAST(id AS text), ','), group_concat(mark, ''), group_concat(CAST(took AS text), ',') FROM (
        SELECT id, {MARK} AS mark, {TOOK} AS took
        FROM run INDEXED BY run_of_job WHERE job = ?1 AND {NOT_ASIDE} ORDER BY id DESC LIMIT ?3
    ) AS newest
"""
IS_FAILURE = "(outcome = 'lost' OR (outcome = 'failed' AND coalesce(failure, '') <> 'cancelled'))"
NEWEST_OF_JOB = (
    f"SELECT * FROM run INDEXED BY run_of_job WHERE job = ?1 AND {NOT_ASIDE} ORDER BY id DESC LIMIT {SERIES}"
)
SERIES_OF_JOB = f"""
    WITH newest AS MATERIALIZED (
        SELECT id, outcome, failure, attempt, coalesce(started_ms, due_ms, ended_ms) AS at_ms
        FROM ({NEWEST_OF_JOB}) AS rows_of_job
    ), series AS (
        SELECT id, attempt, at_ms FROM newest
        WHERE {IS_FAILURE} AND id > (SELECT coalesce(max(id), 0) FROM newest WHERE outcome = 'success')
    )
    SELECT min(id), max(1, count(*) FILTER (WHERE attempt = 1)), (SELECT at_ms FROM series ORDER BY id LIMIT 1)
    FROM series
"""
AT = "coalesce(started_ms, last_due_ms, due_ms, ended_ms)"
POINTS = f"""
    SELECT id, started_ms, {{took}}, iif(attempt = 1, max(started_ms - due_ms, 0), 0), {MARK}
    FROM run INDEXED BY run_of_job
    WHERE job = ?1 AND id < ?3 AND state = 'ended' AND started_ms >= ?4 AND {NOT_ASIDE}
    ORDER BY id DESC LIMIT ?5
"""
DURATIONS = POINTS.format(took="max(ended_ms - started_ms, 0)")
LATENCIES = POINTS.format(took="iif(outcome = 'success', result, '')")  # of checks, to be found in their results
LONGEST_MS = 1e12  # other results may be any text, and hold any number
MOST_DUE = 50_000  # rows about the due times of a job in one question
STEPS = "SELECT job, until_ms, due_ms, schedule, run FROM schedule WHERE job = ? ORDER BY id"
DUE_ROWS = """
    SELECT due_ms, due_ms, 1, NULL, CASE WHEN outcome IS NULL AND started_ms IS NULL THEN 'waiting'
        WHEN outcome = 'skipped' OR started_ms IS NULL THEN 'skipped'
        ELSE iif(started_ms - due_ms > ?4, 'late', 'ran') END, reason
    FROM run INDEXED BY run_once
    WHERE job = ?1 AND due_ms > ?2 AND due_ms <= ?3 AND last_due_ms IS NULL AND attempt = 1
    UNION ALL
    SELECT due_ms, last_due_ms, count, id, outcome, reason FROM run INDEXED BY run_range
    WHERE job = ?1 AND last_due_ms > ?2 AND due_ms <= ?3 AND "trigger" = '{"type":"schedule"}'
    ORDER BY 1 DESC LIMIT ?5
"""
BEFORE = "SELECT max(id) FROM run INDEXED BY run_of_job WHERE job = ? AND id < ?"
AFTER = "SELECT min(id) FROM run INDEXED BY run_of_job WHERE job = ? AND id > ?"
# What a trigger says of the run behind it: `of` a retry, `run_id` of a job that follows, `by` of a change of state.
FOLLOWED_BY = ", ".join(
    f"CAST(json_extract(\"trigger\", '$.{name}') AS text)" for name in ("of", "retry_of", "run_id", "by", "cause.by")
)
FOLLOWERS = f"""
    SELECT {RUN_COLUMNS} FROM run
    WHERE id > ?1 AND id <= CAST(?1 AS bigint) + {FOLLOWED} AND CASE
        WHEN instr("trigger", CAST(?1 AS text)) = 0 THEN FALSE
        WHEN json_valid("trigger") THEN CAST(?1 AS text) IN ({FOLLOWED_BY}) ELSE FALSE END
    ORDER BY id LIMIT ?2
"""


class PastRuns(StorePart):
    def __init__(self, connections: Connections, clock: Clock, codec: Codec) -> None:
        super().__init__(connections, clock)
        self._codec = codec

    def seal(self, run: RunId, record: bytes) -> tuple[str, bytes]:
        """Return the record of what a run asked for as it is stored; in any thread."""
        return cast("tuple[str, bytes]", self._codec.write(Place(*RECORD, run), record))

    @on_questions
    def find_record(self, connection: sqlite3.Connection, run: RunId) -> bytes | None:
        """Return the record of what a run asked for.  Raises StoreError where it can't be decrypted."""
        row = connection.execute("SELECT type, data FROM recording WHERE run = ?", (run,)).fetchone()
        return cast("bytes", self._codec.read(Place(*RECORD, run), Cell(*row))) if row else None

    @on_questions
    def find(self, connection: sqlite3.Connection, run: RunId) -> Run | None:
        row = connection.execute(f"SELECT {RUN_COLUMNS} FROM run WHERE id = ?", (run,)).fetchone()
        return read_run(row) if row else None

    @on_questions
    def strips(self, connection: sqlite3.Connection, jobs: Sequence[StripWish], count: int) -> Mapping[JobId, RunStrip]:
        """Return the newest `count` runs of each of these jobs, without dry and debug runs and alert hooks.

        A range of due times that did not run counts as one.
        """
        found: dict[JobId, RunStrip] = {}
        for job, late_ms in jobs:
            ids, marks, took = connection.execute(STRIP, (job, late_ms, count)).fetchone()
            if ids is None:
                found[job] = RunStrip()
                continue
            # SQL promises no order.
            runs = sorted(zip(map(int, ids.split(",")), marks, map(int, took.split(",")), strict=True))
            numbers, letters, times = zip(*runs, strict=True)
            found[job] = RunStrip(ids=numbers, marks="".join(letters), took_ms=times)
        return found

    @on_questions
    def failing(self, connection: sqlite3.Connection, jobs: Sequence[JobId]) -> Mapping[JobId, FailingSeries]:
        """Return the series of failures of each of these jobs whose latest run did not succeed.

        A run that was cancelled, stopped or skipped neither belongs to a series nor ends it.  Of a very long series
        the latest part is returned.
        """
        found = {}
        for job in jobs:
            first, count, at_ms = connection.execute(SERIES_OF_JOB, (job,)).fetchone()
            if first is not None:
                found[job] = FailingSeries(since_ms=at_ms, count=count, first=RunId(first))
        return found

    @on_questions
    def search(
        self, connection: sqlite3.Connection, wanted: RunFilter, *, limit: int, before: RunId | None = None
    ) -> RunPage:
        """Return runs that match, newest first.

        A page may hold fewer than there are, even none: then a part of the record was searched, and `before` leads on.
        """
        below = maxsize if before is None else before
        table, values = source_of(wanted)
        conditions, more = conditions_of(wanted)
        statement = f"""
            SELECT {RUN_COLUMNS} FROM (SELECT * FROM {table} id < ? ORDER BY id DESC LIMIT {SEARCHED}) AS newest
            WHERE {conditions} ORDER BY id DESC LIMIT ?
        """
        rows = connection.execute(statement, (*values, below, *more, max(limit, 0))).fetchall()
        runs = [read_run(row) for row in rows]
        if runs and len(runs) == limit:
            return RunPage(runs=runs, before=runs[-1].id)
        last = connection.execute(
            f"SELECT id FROM {table} id < ? ORDER BY id DESC LIMIT 1 OFFSET {SEARCHED - 1}", (*values, below)
        ).fetchone()
        return RunPage(runs=runs, before=RunId(last[0]) if last else None)

    @on_questions
    def neighbours(self, connection: sqlite3.Connection, job: JobId, run: RunId) -> tuple[RunId | None, RunId | None]:
        """Return the runs of a job before and after this one."""
        before, after = (connection.execute(statement, (job, run)).fetchone()[0] for statement in (BEFORE, AFTER))
        return before, after

    @on_questions
    def points(
        self,
        connection: sqlite3.Connection,
        job: JobId,
        *,
        since_ms: int,
        limit: int,
        before: RunId | None = None,
        of_latency: bool = False,
    ) -> list[RunPoint]:
        """Return the runs of a job that began since this moment and have ended, newest first.

        With `of_latency` they took the latency of their result, or NO_TIME.
        """
        below = maxsize if before is None else before
        statement, read = (LATENCIES, latency_in) if of_latency else (DURATIONS, int)
        rows = connection.execute(statement, (job, maxsize, below, since_ms, max(limit, 0)))
        return [RunPoint(run, at_ms, read(took), late or 0, RunMark(mark)) for run, at_ms, took, late, mark in rows]

    @on_questions
    def due(
        self, connection: sqlite3.Connection, job: JobId, since_ms: int, until_ms: int, late_ms: int
    ) -> tuple[list[ScheduleStep], list[DueRow], int]:
        """Return the schedules of a job, rows about its due times, oldest first, and up to when they are incomplete."""
        steps = [read_as(ScheduleStep, row) for row in connection.execute(STEPS, (job,))]
        asked = (job, since_ms, until_ms, late_ms, MOST_DUE)
        rows = [DueRow(*row) for row in connection.execute(DUE_ROWS, asked)]
        # Read last: what is pruned meanwhile may be missing above.
        pruned = connection.execute("SELECT due_ms FROM pruned WHERE job = ?", (job,)).fetchone()
        too_many_ms = rows[-1].last_ms if len(rows) == MOST_DUE else 0
        return steps, rows[::-1], max(pruned[0] if pruned else 0, too_many_ms)

    @on_questions
    def followers(self, connection: sqlite3.Connection, run: RunId, *, limit: int) -> list[Run]:
        """Return the runs that came of this one, oldest first: its retries, and what its end or a change of it started.

        They are looked for among those that came soon after it.
        """
        return [read_run(row) for row in connection.execute(FOLLOWERS, (run, limit))]


# On the thread of a connection


def latency_in(result: str) -> int:
    """Return the latency that a result names, in ms; NO_TIME where it names none."""
    found = check_result_in(result)
    latency = found.latency if found else None
    return NO_TIME if latency is None or not 0 <= latency <= LONGEST_MS else round(latency)


def source_of(wanted: RunFilter) -> tuple[str, list[str | int]]:
    """Return the index by which the rows are walked, with the beginning of the condition on it."""
    if wanted.job is not None:
        return "run INDEXED BY run_of_job WHERE job = ? AND", [wanted.job]
    if wanted.outcomes and Outcome.SUCCESS not in wanted.outcomes:
        return "run INDEXED BY run_unsuccessful WHERE outcome <> 'success' AND", []
    return "run WHERE", []


def conditions_of(wanted: RunFilter) -> tuple[str, list[str | int]]:
    conditions, values = ["TRUE"], list[str | int]()
    if wanted.outcomes:
        conditions.append(f"outcome IN ({', '.join('?' * len(wanted.outcomes))})")
        values += [outcome.value for outcome in wanted.outcomes]
    if wanted.triggers:
        marks = ", ".join("?" * len(wanted.triggers))
        conditions.append(f"iif(json_valid(\"trigger\"), json_extract(\"trigger\", '$.type'), '') IN ({marks})")
        values += [trigger.value for trigger in wanted.triggers]
    if wanted.own:
        conditions.append(f"({NOT_ASIDE})")
    if not wanted.began_skipped:
        conditions.append("(started_ms IS NULL OR outcome <> 'skipped')")
    if wanted.since_ms is not None:
        conditions.append(f"{AT} >= ?")
        values.append(wanted.since_ms)
    if wanted.until_ms is not None:
        conditions.append(f"{AT} < ?")
        values.append(wanted.until_ms)
    return " AND ".join(conditions), values
