"""How the tasks of a run ended, in SQLite."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from spyweb.limits import SHOWN_OUTPUTS
from spyweb.model import JobId, RunId, TaskRow, Trigger
from spyweb.store.model.runs import PlannedTask, RunPlan
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import StorePart, columns_of, on_questions, on_writer, read_as, upsert
from spyweb.store.sqlite.runs import NOT_ASIDE, read_trigger

COLUMNS = columns_of(TaskRow)
ADD = upsert("task", f"run, {COLUMNS}", key="run, ordinal")
SHOWN = f"CASE WHEN sum(length(output)) OVER (ORDER BY ordinal) <= {SHOWN_OUTPUTS} THEN output END"
SHOWN_COLUMNS = COLUMNS.replace('"output"', SHOWN)
OF_RUN = f"SELECT {SHOWN_COLUMNS} FROM task WHERE run = ? ORDER BY ordinal"
DECLARE = upsert("plan", "run, plan", key="run")
NEWEST_PLAN = f"""
    SELECT id FROM (
        SELECT id, "trigger" FROM run INDEXED BY run_of_job WHERE job = ? ORDER BY id DESC LIMIT 1000
    ) AS newest
    WHERE id IN (SELECT run FROM plan) AND {NOT_ASIDE} ORDER BY id DESC LIMIT 1
"""
NEWEST = "SELECT run FROM task GROUP BY run ORDER BY run DESC LIMIT ?"
BETWEEN = 'SELECT id, "trigger" FROM run WHERE job = ? AND id >= ? AND id < ? ORDER BY id'
# Done, so not to be done again: not what was skipped since another task had not succeeded.
DONE = f"SELECT {COLUMNS} FROM task WHERE run = ? AND status <> 'failed' AND started_ms IS NOT NULL ORDER BY ordinal"

BEYOND = """
    SELECT id, (SELECT count(*) FROM task WHERE task.run = run.id) FROM run INDEXED BY run_of_job
    WHERE job = ? AND EXISTS (SELECT 1 FROM task WHERE task.run = run.id) ORDER BY id DESC LIMIT ? OFFSET ?
"""
MOST_LINKS = 32  # runs of a chain that are read; each has recorded the tasks that it took over
MOST_ROWS = 20_000  # deleted in one op: further rows of a job are deleted the next time


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
        """Record again, for a run that resumes or retries others, the tasks that those have done; return these rows.

        All of them or none.  A task is known by its workflow and name, or by a name that only one task has.
        """
        done = [row for earlier in chain_of(connection, run) for row in done_by(connection, earlier)]
        taken = match_plan(done, plan)
        add(connection, run, taken)
        return taken

    @on_questions
    def chain(self, connection: sqlite3.Connection, run: RunId) -> Sequence[RunId]:
        """Return the runs that this one resumes or retries, oldest first; none where it starts from the beginning."""
        return chain_of(connection, run)

    @on_writer(OpKind.WRITE)
    def declare(self, connection: sqlite3.Connection, run: RunId, plan: RunPlan) -> None:
        """Record the plan of a run at its start."""
        connection.execute(DECLARE, (run, msgspec.json.encode(plan)))

    @on_questions
    def plan(self, connection: sqlite3.Connection, run: RunId) -> RunPlan | None:
        """Return the plan of a run, if it has declared one."""
        row = connection.execute("SELECT plan FROM plan WHERE run = ?", (run,)).fetchone()
        return msgspec.json.decode(row[0], type=RunPlan) if row else None

    @on_questions
    def newest_of(self, connection: sqlite3.Connection, job: JobId) -> RunId | None:
        """Return the newest run of a job that has declared a plan, and is no dry run."""
        row = connection.execute(NEWEST_PLAN, (job,)).fetchone()
        return RunId(row[0]) if row else None

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
    """Return the runs whose tasks a run takes over: the earlier ones that it resumes, then the one that it retries."""
    chain: list[RunId] = []
    at: RunId | None = run
    for _ in range(MOST_LINKS):
        row = connection.execute('SELECT job, "trigger" FROM run WHERE id = ?', (at,)).fetchone()
        trigger = read_trigger(row[1]) if row else Trigger()
        if (first := trigger.resumes) is not None:
            runs = connection.execute(BETWEEN, (row[0], first, at))
            chain[:0] = [RunId(each) for each, text in runs if each == first or read_trigger(text).resumes == first]
        elif trigger.retry_of is not None:
            chain.insert(0, trigger.retry_of)
        else:
            break
        at = trigger.resumes or trigger.retry_of
    return chain


def done_by(connection: sqlite3.Connection, run: RunId) -> Iterator[TaskRow]:
    """Yield the finished tasks of a run, with the run that performed each."""
    for row in connection.execute(DONE, (run,)):
        task = read_as(TaskRow, row)
        yield msgspec.structs.replace(task, taken_from=task.taken_from or run)


def match_plan(done: Sequence[TaskRow], plan: Sequence[PlannedTask]) -> list[TaskRow]:
    """Return the finished tasks of a plan, a row each: of several rows of a task the last one counts."""
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
