"""How the tasks of a run ended, in SQLite."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from spyweb.limits import SHOWN_OUTPUTS
from spyweb.model import RunId, TaskRow
from spyweb.store.model.runs import PlannedTask
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import StorePart, columns_of, on_questions, on_writer, read_as, upsert
from spyweb.store.sqlite.runs import read_trigger

COLUMNS = columns_of(TaskRow)
ADD = upsert("task", f"run, {COLUMNS}", key="run, ordinal")
SHOWN = f"CASE WHEN sum(length(output)) OVER (ORDER BY ordinal) <= {SHOWN_OUTPUTS} THEN output END"
SHOWN_COLUMNS = COLUMNS.replace('"output"', SHOWN)
OF_RUN = f"SELECT {SHOWN_COLUMNS} FROM task WHERE run = ? ORDER BY ordinal"
NEWEST = "SELECT run FROM task GROUP BY run ORDER BY run DESC LIMIT ?"
BETWEEN = 'SELECT id, "trigger" FROM run WHERE job = ? AND id >= ? AND id < ? ORDER BY id'
# Done, so not to be done again: not what was skipped since another task had not succeeded.
DONE = f"SELECT {COLUMNS} FROM task WHERE run = ? AND status <> 'failed' AND started_ms IS NOT NULL ORDER BY ordinal"

BEYOND = """
    SELECT id, (SELECT count(*) FROM task WHERE task.run = run.id) FROM run INDEXED BY run_of_job
    WHERE job = ? AND EXISTS (SELECT 1 FROM task WHERE task.run = run.id) ORDER BY id DESC LIMIT ? OFFSET ?
"""
MOST_ROWS = 20_000  # deleted in one op: what is left of a job goes the next time


class Tasks(StorePart):
    def add(self, run: RunId, rows: Sequence[TaskRow]) -> Future[None]:
        """Record the ends of tasks of a run, together; one that was recorded before is replaced."""
        kind = OpKind.WRITE if len(rows) == 1 else OpKind.SEVERAL
        return self._writer.submit(kind, add, run, rows)

    @on_questions
    def of_runs(self, connection: sqlite3.Connection, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[TaskRow]]:
        """Return the tasks of each run that has any, by ordinal, with the outputs that people are shown."""
        found = {run: [read_as(TaskRow, row) for row in connection.execute(OF_RUN, (run,))] for run in runs}
        return {run: rows for run, rows in found.items() if rows}

    @on_questions
    def newest(self, connection: sqlite3.Connection, limit: int) -> Sequence[RunId]:
        """Return the newest runs that have tasks, newest first."""
        return [RunId(run) for (run,) in connection.execute(NEWEST, (limit,))]

    @on_writer(OpKind.SEVERAL)
    def take_over(self, connection: sqlite3.Connection, run: RunId, plan: Sequence[PlannedTask]) -> Sequence[TaskRow]:
        """Record anew, for a run that resumes others, what those have done of its plan; gives these rows.

        All of them or none.  A task is known by its workflow and name, or by a name that only one task has.
        """
        done = [
            read_as(TaskRow, row)
            for earlier in chain_of(connection, run)
            for row in connection.execute(DONE, (earlier,))
        ]
        taken = match_plan(done, plan)
        add(connection, run, taken)
        return taken

    @on_questions
    def chain(self, connection: sqlite3.Connection, run: RunId) -> Sequence[RunId]:
        """Return the runs that this one goes on with, oldest first; none where it begins anew."""
        return chain_of(connection, run)

    async def prune(self, *, keep: int) -> int:
        """Delete the tasks of all but the `keep` newest runs of each job that have some; return of how many runs."""

        def outdated(connection: sqlite3.Connection, job: str, limit: int) -> list[tuple[int]]:
            chosen: list[tuple[int]] = []
            rows = 0
            for run, count in connection.execute(BEYOND, (job, limit, keep)):
                rows += count
                if chosen and rows > MOST_ROWS:
                    break
                chosen.append((run,))
            return chosen

        return await self._prune_jobs("run", outdated, "DELETE FROM task WHERE run = ?")


# On the thread of a connection


def add(connection: sqlite3.Connection, run: RunId, rows: Sequence[TaskRow]) -> None:
    connection.executemany(ADD, [(run, *msgspec.structs.astuple(row)) for row in rows])


def chain_of(connection: sqlite3.Connection, run: RunId) -> Sequence[RunId]:
    row = connection.execute('SELECT job, "trigger" FROM run WHERE id = ?', (run,)).fetchone()
    first = read_trigger(row[1]).resumes if row else None
    if first is None:
        return []
    runs = connection.execute(BETWEEN, (row[0], first, run))
    return [RunId(number) for number, trigger in runs if number == first or read_trigger(trigger).resumes == first]


def match_plan(done: Sequence[TaskRow], plan: Sequence[PlannedTask]) -> list[TaskRow]:
    """Return what is done of a plan, as rows of its own: of several rows of a task the last one counts."""
    rows = {(row.workflow, row.name): row for row in done}
    by_name = {row.name: row for row in rows.values()}
    recorded, planned = Counter(name for _, name in rows), Counter(name for _, name in plan)
    taken = []
    for ordinal, (workflow, name) in enumerate(plan):
        row = rows.get((workflow, name))
        if row is None and recorded[name] == planned[name] == 1:
            row = by_name[name]
        if row is not None:
            taken.append(msgspec.structs.replace(row, ordinal=ordinal, workflow=workflow, attempts=0))
    return taken
