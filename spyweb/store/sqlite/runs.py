"""Store the record of every due time, and each schedule's cursor, in SQLite."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from itertools import islice
from sys import intern, maxsize
from typing import Any

import msgspec
import structlog
from msgspec.structs import astuple

from spyweb.clock import Clock
from spyweb.errors import CursorMoved
from spyweb.limits import IDEMPOTENCY_KEYS
from spyweb.model import Cursor, JobId, Run, RunId, Trigger
from spyweb.settings.units import DAY_MS
from spyweb.store.model.incidents import SubjectChange
from spyweb.store.model.runs import Change, End, KnownRequest, NewRun, Recorded, RequestKey, SkippedRange
from spyweb.store.sqlite.batch import TOGETHER, OpKind, Results, each, execute_each
from spyweb.store.sqlite.connections import (
    Connections,
    StorePart,
    columns_of,
    on_questions,
    on_reader,
    on_writer,
    read_as,
    upsert,
)
from spyweb.store.sqlite.events import clear_after_runs, drop_event
from spyweb.store.sqlite.incidents import Incidents, apply, tell_scripts
from spyweb.store.sqlite.locks import Locks, release_run
from spyweb.store.sqlite.outbox import Outbox, add_one
from spyweb.store.sqlite.uptime import ADD_IDLE, Uptimes

CURSOR_COLUMNS = columns_of(Cursor)
SET_CURSOR = upsert("cursor", CURSOR_COLUMNS, "job")
FIND_CURSOR = f"SELECT {CURSOR_COLUMNS} FROM cursor WHERE job = ?"
FIND_CURSORS = f"SELECT {CURSOR_COLUMNS} FROM cursor WHERE job IN (SELECT value FROM json_each(?))"
ADD_STEP = """
    INSERT INTO schedule (job, until_ms, due_ms, schedule, run)
    VALUES (?1, ?2, ?3, ?4, (SELECT coalesce(max(id), 0) FROM run WHERE job = ?1))
"""
HEAR = "UPDATE cursor SET due_ms = ?2 WHERE job = ?1"
ADD_RUN = """
    INSERT INTO run (job, state, attempt, due_ms, "trigger", start_after_ms, started_ms, generation)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
BEGIN_RUN = "UPDATE run SET state = 'running', started_ms = ?, generation = ? WHERE id = ? AND state = 'waiting'"
END_RUN = """
    UPDATE run SET
        state = 'ended', ended_ms = ?, outcome = ?, failure = ?, reason = ?, traceback = ?,
        cpu_ms = ?, storage_errors = ?, result = ?, http_status = ?, items_found = ?, items_new = ?, items_changed = ?,
        note = ?, stale_ms = ?, latency = ?
    WHERE id = ? AND state <> 'ended'
"""
# The range of a row, where it is about the current schedule.
NEWEST_ROW = """
    SELECT id, outcome, reason, "trigger",
        iif(id > coalesce((SELECT run FROM schedule WHERE job = ?1 ORDER BY id DESC LIMIT 1), 0), last_due_ms, NULL)
    FROM run WHERE job = ?1 ORDER BY id DESC LIMIT 1
"""
LENGTHEN_SKIPPED = """
    UPDATE run SET
        due_ms = min(due_ms, ?2), last_due_ms = max(last_due_ms, ?3), count = count + ?4, ended_ms = ?5
    WHERE id = ?1
"""
ADD_SKIPPED = """
    INSERT INTO run (job, state, attempt, due_ms, "trigger", ended_ms, outcome, reason, last_due_ms, count)
    VALUES (?, 'ended', 1, ?, ?, ?, ?, ?, ?, ?)
"""
RUN_COLUMNS = columns_of(Run)
LISTS = ("cursors", "new", "begin", "end", "skipped", "steps", "dropped", "told")  # of a Change
TRIGGER = Run.__struct_fields__.index("trigger")

OPEN_RUNS = f"SELECT {RUN_COLUMNS} FROM run WHERE state <> 'ended' ORDER BY id"
FIND_OPEN = f"""
    SELECT {RUN_COLUMNS} FROM run
    WHERE state <> 'ended' AND (state = 'waiting' OR job IN (SELECT value FROM json_each(?))) ORDER BY id
"""
# A dry run, one of `spyweb debug`, or one that tells of an incident says nothing about its job.
NOT_ASIDE = """
    CASE WHEN instr("trigger", '"dry_run"') + instr("trigger", '"debug"') + instr("trigger", '"incident"') = 0
    THEN TRUE WHEN json_valid("trigger")
    THEN CAST(coalesce(json_extract("trigger", '$.dry_run'), json_extract("trigger", '$.debug'), '0') AS text) = '0'
        AND json_type("trigger", '$.incident') IS NULL ELSE TRUE END
"""
# Of drift, which runs nothing.
NO_FINDING = """CASE WHEN json_valid("trigger") THEN json_extract("trigger", '$.finding') IS NULL ELSE TRUE END"""
# Jumps from job to job in the index instead of scanning every row.
EACH_JOB = """
    WITH RECURSIVE jobs (name) AS (
        SELECT min(job) FROM run
        UNION ALL SELECT (SELECT min(job) FROM run WHERE job > name) FROM jobs WHERE name IS NOT NULL
    )
"""


def newest(column: str, job: str, condition: str) -> str:
    """Return the expression for a column of the newest row of a job that says something about it."""
    return f"""(
        SELECT {column} FROM run INDEXED BY run_of_job
        WHERE job = {job} AND {condition} AND {NOT_ASIDE} ORDER BY id DESC LIMIT 1
    )"""


ENDED = "state = 'ended' AND last_due_ms IS NULL"
REALLY_RAN = f"{ENDED} AND outcome <> 'skipped'"
LATEST_RUNS = f"""
    {EACH_JOB} SELECT {RUN_COLUMNS} FROM run WHERE id IN (
        SELECT coalesce({newest("id", "name", REALLY_RAN)}, {newest("id", "name", ENDED)}) FROM jobs
    )
"""
SUCCESS = f"state = 'ended' AND outcome = 'success' AND {NO_FINDING}"
# For a job that has failed for long, all its kept runs are read.
NEWEST_MOMENTS = f"""
    {EACH_JOB} SELECT name, at_ms FROM (
        SELECT name, {{moment}} AS at_ms FROM jobs WHERE name IS NOT NULL
    ) AS found WHERE at_ms IS NOT NULL
"""
SUCCEEDED = NEWEST_MOMENTS.format(moment=newest("ended_ms", "name", SUCCESS))
STARTED = NEWEST_MOMENTS.format(moment=newest("started_ms", "name", f"started_ms IS NOT NULL AND {NO_FINDING}"))
CURSORS = f"SELECT {CURSOR_COLUMNS} FROM cursor"

# The newest `keep` ended rows of the job are below this id's; NULL when there are fewer.
FIRST_BEYOND = """
    SELECT id FROM run INDEXED BY run_of_job
    WHERE job = ? AND state = 'ended' ORDER BY id DESC LIMIT 1 OFFSET ?
"""
# Its last success stays, however old: how long it has had none is counted from there.
OUTDATED = f"""
    SELECT id FROM run INDEXED BY run_of_job
    WHERE job = ?1 AND state = 'ended' AND (id <= ?2 OR ended_ms < ?3) AND id < (SELECT max(id) FROM run)
    AND id <> coalesce({newest("id", "?1", SUCCESS)}, 0) LIMIT ?4
"""

RECORDS_KEPT = 5  # of a job, of what its runs asked for
ADD_RECORD = "INSERT INTO recording (run, job, type, data) SELECT id, job, ?, ? FROM run WHERE id = ?"
DROP_RECORDS = """
    DELETE FROM recording WHERE run IN (
        SELECT run FROM recording WHERE job = (SELECT job FROM run WHERE id = ?1) ORDER BY run DESC LIMIT 1 OFFSET ?2
    )
"""
REQUESTS_KEPT_MS = DAY_MS  # a key that is older may be anybody's again

ADD_REQUEST = "INSERT INTO request (scope, key, fingerprint, run, at_ms) VALUES (?, ?, ?, ?, ?)"
DROP_REQUEST = "DELETE FROM request WHERE scope = ? AND key = ?"
FIND_REQUEST = "SELECT fingerprint, run, at_ms FROM request WHERE scope = ? AND key = ?"
# Each new one clears two, so there are never many more than those of a day, or than are kept.
CLEAR_REQUESTS = """
    DELETE FROM request
    WHERE id IN (SELECT id FROM request ORDER BY id LIMIT 2) AND (at_ms < ?1 OR id <= CAST(?2 AS bigint) - ?3)
"""

log = structlog.get_logger()

encode = msgspec.json.encode
encode_trigger = msgspec.json.Encoder().encode
decode_trigger = msgspec.json.Decoder(Trigger).decode


class Runs(StorePart):
    """The record of every due time: which runs there were, which were skipped, and why."""

    def __init__(
        self, connections: Connections, clock: Clock, locks: Locks, incidents: Incidents, outbox: Outbox
    ) -> None:
        super().__init__(connections, clock)
        self._locks = locks
        self._incidents = incidents
        self._outbox = outbox
        self.uptime = Uptimes(connections, clock)
        self._listeners: list[Recorded] = []

    def record(self, change: Change) -> Future[list[RunId | None]]:
        """Commit a change; return the id of each of `change.new`, None if (job, due_ms, attempt) is on record already.

        Refused with CursorMoved when a cursor is not as `expects` says: the caller decides again, from the one that is
        on record (`write_cursors`).  Applied in this order: end, begin, skipped, new, cursors, dropped.  A run ends
        once: a later end is ignored, and a run that follows it (`follows`) is not recorded, its id being None.  The
        locks of a run that ends are released.  A change event is deleted once each job that wanted it has dropped it,
        or has no open run for it.
        """
        holders = self._locks.holders_among(end.run for end in change.end)
        subjects: list[SubjectChange] = []  # filled on the writer's thread, read after the commit

        def committed() -> None:
            self._locks.tell_of_ended(holders)
            self._incidents.tell(subjects)
            self._outbox.tell([end.ping.target for end in change.end if end.ping])
            for listen in self._listeners:
                listen(change, None if recorded.cancelled() else recorded.result())

        recorded = self._writer.submit(OpKind.SEVERAL, record, change, holders, subjects, after=committed)
        return recorded

    async def write_cursors(
        self, decide: Callable[[], Change], go_by: Callable[[JobId, Cursor | None], None]
    ) -> Change:
        """Record the change that `decide` returns, and return that change.

        If a cursor is not as it expects, `go_by` gets the one that is on record, and `decide` is called again: however
        often, since each refusal means that another process has made progress.
        """
        while True:
            change = decide()
            if not change.cursors:
                return change
            try:
                await self.record(change)
            except CursorMoved as moved:
                log.warning("a schedule was changed elsewhere, it is decided again from the record", job=moved.job)
                go_by(JobId(moved.job), moved.found if isinstance(moved.found, Cursor) else None)
            else:
                return change

    def on_recorded(self, listen: Recorded) -> Callable[[], None]:
        """Have this called on the loop with each change after its commit; return the function that ends it."""
        self._listeners = [*self._listeners, listen]

        def leave() -> None:
            self._listeners = [each for each in self._listeners if each is not listen]

        return leave

    @on_questions
    def cursors(self, connection: sqlite3.Connection) -> dict[JobId, Cursor]:
        return {cursor.job: cursor for cursor in map(read_cursor, connection.execute(CURSORS))}

    @on_questions
    def open(self, connection: sqlite3.Connection) -> list[Run]:
        """Return the runs that have not ended, waiting or running, oldest first."""
        return [read_run(row) for row in connection.execute(OPEN_RUNS)]

    @on_writer(OpKind.READ)
    def in_line(
        self, connection: sqlite3.Connection, jobs: Sequence[JobId] | None = None
    ) -> tuple[dict[JobId, Cursor], list[Run]]:
        """Return the cursors and the open runs of these jobs, or of all, and the waiting runs of all.

        It is in line with the writes: each claim of this daemon that it shows has been answered before this is.
        """
        asked, given = (
            ((CURSORS, OPEN_RUNS), ()) if jobs is None else ((FIND_CURSORS, FIND_OPEN), (encode(jobs).decode(),))
        )
        found, open_runs = (connection.execute(text, given).fetchall() for text in asked)
        return {cursor.job: cursor for cursor in map(read_cursor, found)}, [read_run(row) for row in open_runs]

    @on_questions
    def latest(self, connection: sqlite3.Connection) -> dict[JobId, Run]:
        """Return the newest ended run of each job, skipped ranges left out; a skipped run where there is no other."""
        return {run.job: run for run in map(read_run, connection.execute(LATEST_RUNS))}

    @on_questions
    def succeeded(self, connection: sqlite3.Connection) -> dict[JobId, int]:
        """Return when a run of each job last ended as a success, of those on record."""
        return dict(connection.execute(SUCCEEDED).fetchall())

    @on_questions
    def started(self, connection: sqlite3.Connection) -> dict[JobId, int]:
        """Return when the newest run of each job has started, of those on record; retries count."""
        return dict(connection.execute(STARTED).fetchall())

    async def prune(self, *, keep: int, older_than_ms: int) -> int:
        """Delete ended rows beyond `keep` per job, or ended before this moment; return how many.

        Works in slices, so that no write waits for long.  The newest row of all stays, so that ids never repeat, and
        the last success of each job.
        """

        def outdated(connection: sqlite3.Connection, job: str, limit: int) -> list[tuple[int]]:
            beyond = connection.execute(FIRST_BEYOND, (job, keep)).fetchone()
            return connection.execute(OUTDATED, (job, beyond[0] if beyond else 0, older_than_ms, limit)).fetchall()

        return await self._prune_jobs("run", outdated, "DELETE FROM run WHERE id = ?")

    @on_questions
    def list(
        self, connection: sqlite3.Connection, job: JobId | None = None, *, limit: int = 30, before: RunId | None = None
    ) -> list[Run]:
        """Return runs of one job, or of all, newest first."""
        below = maxsize if before is None else before
        of_job = ("", ()) if job is None else ("job = ? AND ", (job,))
        statement = f"SELECT {RUN_COLUMNS} FROM run WHERE {of_job[0]}id < ? ORDER BY id DESC LIMIT ?"
        return [read_run(row) for row in connection.execute(statement, (*of_job[1], below, max(limit, 0)))]

    @on_reader
    def find_request(self, connection: sqlite3.Connection, scope: str, key: bytes) -> KnownRequest | None:
        """Return the request that has started a run by this key."""
        row = connection.execute(FIND_REQUEST, (scope, key)).fetchone()
        return KnownRequest(fingerprint=row[0], run=RunId(row[1]), at_ms=row[2]) if row else None

    @on_reader
    def payload(self, connection: sqlite3.Connection, run: RunId) -> bytes | None:
        """Return the payload of this run; None once it was deleted."""
        row = connection.execute("SELECT content FROM payload WHERE run = ?", (run,)).fetchone()
        return row[0] if row else None


# On the thread of a connection: writing


Asked = tuple[Change, Sequence[RunId], list[SubjectChange]]  # the arguments of `record`


def record(
    connection: sqlite3.Connection, change: Change, holders: Sequence[RunId], subjects: list[SubjectChange]
) -> list[RunId | None]:
    """Write a change.  `holders` are its ending runs with locks; `subjects` is filled."""
    if change.expects and (moved := moved_of(change, find_cursors(connection, change.expects))):
        raise moved
    added, ended = write(connection, change, holders)
    subjects[:] = follow_ends(connection, change, ended)
    return added


def record_all(connection: sqlite3.Connection, asked: Sequence[Asked]) -> Results:
    """Write changes in their order: those of different jobs and runs together, with a few statements for all."""
    done: Results = []
    together: list[Asked] = []
    touched: set[JobId | RunId] = set()
    for one in asked:
        touches = touched_by(one[0])
        if not touched.isdisjoint(touches):
            done += record_together(connection, together)
            together, touched = [], set()
        together.append(one)
        touched |= touches
    return done + record_together(connection, together)


TOGETHER[record] = record_all


def touched_by(change: Change) -> set[JobId | RunId]:
    """Return the jobs and runs that a change reads or writes."""
    jobs = [one.job for of_jobs in (change.cursors, change.new, change.skipped) for one in of_jobs]
    runs = [one.run for of_runs in (change.begin, change.end) for one in of_runs]
    return {*change.expects, *change.heard, *jobs, *runs}


def record_together(connection: sqlite3.Connection, asked: Sequence[Asked]) -> Results:
    """Write changes none of which touches what another does."""
    found = find_cursors(connection, [job for change, _, _ in asked for job in change.expects])
    moved = [moved_of(change, found) for change, _, _ in asked]
    fit = [one for one, error in zip(asked, moved, strict=True) if not error]
    whole = merge([change for change, _, _ in fit])
    added, ended = write(connection, whole, [run for _, holders, _ in fit for run in holders])
    for change, _, subjects in fit:
        subjects[:] = follow_ends(connection, change, ended)
    left = iter(added)
    return [error or list(islice(left, len(one[0].new))) for one, error in zip(asked, moved, strict=True)]


def merge(changes: Sequence[Change]) -> Change:
    """Return what they write as one change."""
    parts: dict[str, Any] = {part: [one for change in changes for one in getattr(change, part)] for part in LISTS}
    return Change(heard={job: at_ms for change in changes for job, at_ms in change.heard.items()}, **parts)


def write(
    connection: sqlite3.Connection, change: Change, holders: Sequence[RunId]
) -> tuple[list[RunId | None], set[RunId]]:
    """Write a change but for incidents and messages; return the ids of its new runs, and the ends that applied."""
    for run in holders:
        release_run(connection, run)
    results = each(connection, END_RUN, [row_of_end(end) for end in change.end]) if change.end else ()
    ended = {end.run for end, result in zip(change.end, results, strict=True) if result.rowcount == 1}
    if change.begin:
        connection.executemany(BEGIN_RUN, [(begin.started_ms, begin.generation, begin.run) for begin in change.begin])
    if change.steps:
        connection.executemany(ADD_STEP, [astuple(step)[:-1] for step in change.steps])
    for skipped in change.skipped:
        if skipped.follows is None or skipped.follows in ended:
            record_skipped(connection, skipped)
    added = add_runs(connection, change.new, ended) if change.new else []
    write_of_jobs(connection, change)
    if change.end:
        clear_after_runs(connection, change.end)
        add_records(connection, [end for end in change.end if end.run in ended])
    return added, ended


def write_of_jobs(connection: sqlite3.Connection, change: Change) -> None:
    if change.cursors:
        connection.executemany(SET_CURSOR, map(astuple, change.cursors))
        idle = [(each.job, each.idle_since_ms) for each in change.cursors if each.idle_since_ms is not None]
        execute_each(connection, ADD_IDLE, idle)
    if change.heard:
        connection.executemany(HEAR, change.heard.items())
    for wanted in change.dropped:
        drop_event(connection, wanted.event, wanted.job)
    if change.told:
        tell_scripts(connection, change.told)


def follow_ends(connection: sqlite3.Connection, change: Change, ended: Set[RunId]) -> list[SubjectChange]:
    """Let ends that applied change their jobs' incidents, and send them to watchers elsewhere."""
    subjects: list[SubjectChange] = []
    for end in change.end:
        if end.alert and end.run in ended:
            subjects.append(apply(connection, end.alert))
        if end.ping and end.run in ended:
            add_one(connection, end.ping, end.ended_ms)
        if end.of_payload is not None and not any(run.of_payload == end.of_payload for run in change.new):
            connection.execute("DELETE FROM payload WHERE run = ?", (end.of_payload,))
    return subjects


def find_cursors(connection: sqlite3.Connection, jobs: Collection[JobId]) -> dict[JobId, Cursor]:
    """Return the cursors of these jobs that are on record."""
    if not jobs:
        return {}
    asked = (FIND_CURSOR, tuple(jobs)) if len(jobs) == 1 else (FIND_CURSORS, (encode(list(jobs)).decode(),))
    return {JobId(row[0]): read_cursor(row) for row in connection.execute(*asked)}


def moved_of(change: Change, found: Mapping[JobId, Cursor]) -> CursorMoved | None:
    """Return the error that refuses a change: a cursor on record is not as it expects."""
    for job, cursor in change.expects.items():
        if found.get(job) != cursor:
            return CursorMoved(job, found.get(job))
    return None


def add_runs(connection: sqlite3.Connection, runs: Sequence[NewRun], ended: Set[RunId]) -> list[RunId | None]:
    """Add runs, with what is kept beside them; not those that follow an end that was ignored."""
    due = [(at, run) for at, run in enumerate(runs) if run.follows is None or run.follows in ended]
    results = each(connection, ADD_RUN, [row_of_run(run) for _, run in due])
    added: list[RunId | None] = [None] * len(runs)
    wanted: list[tuple[int, int, str]] = []
    payloads: list[tuple[int, bytes]] = []
    for (at, run), result in zip(due, results, strict=True):
        if result.rowcount != 1 or not result.lastrowid:
            continue
        number = added[at] = RunId(result.lastrowid)
        if (event := run.trigger.change_event) is not None:
            wanted.append((number, event, run.job))
        if run.payload is not None:
            payloads.append((number, run.payload))
        if run.request is not None:
            add_request(connection, run.request, number)
    execute_each(connection, "UPDATE wanted SET run = ? WHERE event = ? AND job = ?", wanted)
    execute_each(connection, "INSERT INTO payload (run, content) VALUES (?, ?)", payloads)
    return added


def row_of_run(run: NewRun) -> tuple[str | int | None, ...]:
    return (
        run.job, run.state.value, run.attempt, run.due_ms, encode_trigger(run.trigger).decode(),
        run.start_after_ms, run.started_ms, run.generation,
    )  # fmt: skip


def add_request(connection: sqlite3.Connection, asked: RequestKey, run: RunId) -> None:
    request = (asked.scope, asked.key, asked.fingerprint, run, asked.at_ms)
    connection.execute(DROP_REQUEST, request[:2])  # the new one gets the greatest id
    newest = connection.execute(ADD_REQUEST, request).lastrowid or 0
    connection.execute(CLEAR_REQUESTS, (asked.at_ms - REQUESTS_KEPT_MS, newest, IDEMPOTENCY_KEYS))


def row_of_end(end: End) -> tuple[str | int | None, ...]:
    return (
        end.ended_ms, end.outcome.value, end.failure and end.failure.value,
        storable(end.reason), storable(end.traceback), end.cpu_ms, end.storage_errors,
        storable(end.result), end.http_status, end.items_found, end.items_new, end.items_changed,
        storable(end.note), end.stale_ms, end.latency, end.run,
    )  # fmt: skip


def add_records(connection: sqlite3.Connection, ends: Sequence[End]) -> None:
    """Add the records of runs that end; of each job the oldest goes where it has too many."""
    for end in ends:
        if end.record:
            connection.execute(ADD_RECORD, (*end.record, end.run))
            connection.execute(DROP_RECORDS, (end.run, RECORDS_KEPT))


def record_skipped(connection: sqlite3.Connection, skipped: SkippedRange) -> None:
    first, last, count, at_ms = skipped.first_due_ms, skipped.last_due_ms, skipped.count, skipped.at_ms
    outcome, reason = skipped.outcome.value, storable(skipped.reason)
    trigger = encode_trigger(Trigger(type=skipped.trigger)).decode()
    newest = connection.execute(NEWEST_ROW, (skipped.job,)).fetchone()
    if newest and newest[1:4] == (outcome, reason, trigger) and newest[4] is not None:
        connection.execute(LENGTHEN_SKIPPED, (newest[0], first, last, count, at_ms))
    else:
        connection.execute(ADD_SKIPPED, (skipped.job, first, trigger, at_ms, outcome, reason, last, count))


def storable(text: str) -> str:
    """Replace lone surrogates, which SQLite's text can't hold: a run must not fail to end over one."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# On the thread of a connection: reading


def read_run(row: Sequence[Any]) -> Run:
    return read_as(Run, row, trigger=read_trigger(row[TRIGGER]))


def read_trigger(text: str) -> Trigger:
    """Return the trigger, or an empty one if it is damaged, which must not keep a daemon from starting."""
    try:
        return decode_trigger(text)
    except msgspec.DecodeError:
        return Trigger()


def read_cursor(row: Sequence[Any]) -> Cursor:
    job, due_ms, schedule, paused, idle_since_ms, paused_for, active_since_ms, pool = row
    return Cursor(
        job=JobId(job),
        due_ms=due_ms,
        schedule=intern(schedule),  # thousands of jobs have few different schedules
        paused=bool(paused),
        idle_since_ms=idle_since_ms,
        paused_for=paused_for,
        active_since_ms=active_since_ms,
        pool=intern(pool),
    )
