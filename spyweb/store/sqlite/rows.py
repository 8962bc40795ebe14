"""Runs and cursors as rows: what a change writes, and how a row is read.  Runs on the thread of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from sys import intern
from typing import TypeVar

import msgspec

from spyweb.errors import CursorMoved
from spyweb.model import Cursor, Failure, JobId, Outcome, Run, RunId, RunState
from spyweb.store.protocol import Change, End, NewRun, SkippedRange
from spyweb.store.sqlite.events import claim_event, clear_after_run, drop_event
from spyweb.store.sqlite.locks import release_run

SET_CURSOR = """
    INSERT INTO cursor (job, due_ms, schedule, paused, idle_since_ms) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (job) DO UPDATE SET
        due_ms = excluded.due_ms, schedule = excluded.schedule,
        paused = excluded.paused, idle_since_ms = excluded.idle_since_ms
"""
ADD_RUN = """
    INSERT INTO run (job, state, attempt, due_ms, "trigger", start_after_ms, started_ms, generation)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
BEGIN_RUN = "UPDATE run SET state = 'running', started_ms = ?, generation = ? WHERE id = ? AND state = 'waiting'"
END_RUN = """
    UPDATE run SET
        state = 'ended', ended_ms = ?, outcome = ?, failure = ?, reason = ?, traceback = ?,
        cpu_ms = ?, storage_errors = ?, result = ?, http_status = ?, items_found = ?, items_new = ?, note = ?
    WHERE id = ? AND state <> 'ended'
"""
NEWEST_ROW = """
    SELECT id, outcome, reason, "trigger", last_due_ms FROM run WHERE job = ? ORDER BY id DESC LIMIT 1
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
RUN_COLUMNS = """
    id, job, state, attempt, due_ms, "trigger", start_after_ms, started_ms, ended_ms, outcome, failure,
    reason, traceback, cpu_ms, storage_errors, result, http_status, items_found, items_new, note,
    generation, last_due_ms, count
"""
CURSOR_COLUMNS = "job, due_ms, schedule, paused, idle_since_ms"
FIND_CURSOR = f"SELECT {CURSOR_COLUMNS} FROM cursor WHERE job = ?"

E = TypeVar("E", Outcome, Failure)

encode_trigger = msgspec.json.Encoder().encode
decode_trigger = msgspec.json.Decoder(dict[str, object]).decode


def record(connection: sqlite3.Connection, change: Change) -> list[RunId | None]:
    expect_cursors(connection, change.expects)
    ended = record_ends(connection, change)
    for begin in change.begin:
        connection.execute(BEGIN_RUN, (begin.started_ms, begin.generation, begin.run))
    for skipped in change.skipped:
        if skipped.follows is None or skipped.follows in ended:
            record_skipped(connection, skipped)
    added = [add_run(connection, run) if run.follows is None or run.follows in ended else None for run in change.new]
    if change.cursors:
        connection.executemany(SET_CURSOR, map(row_of_cursor, change.cursors))
    for wanted in change.dropped:
        drop_event(connection, wanted.event, wanted.job)
    for end in change.end:
        if end.event is not None:
            clear_after_run(connection, end.event, end.run)
    return added


def expect_cursors(connection: sqlite3.Connection, expected: Sequence[Cursor]) -> None:
    """Raises CursorMoved."""
    for cursor in expected:
        row = connection.execute(FIND_CURSOR, (cursor.job,)).fetchone()
        found = read_cursor(row) if row else None
        if found != cursor:
            raise CursorMoved(cursor.job, found)


def record_ends(connection: sqlite3.Connection, change: Change) -> frozenset[RunId]:
    """Give the runs whose end applied, where something is to follow one."""
    follow_ups: Sequence[NewRun | SkippedRange] = (*change.new, *change.skipped)
    if any(each.follows is not None for each in follow_ups):
        return frozenset(end.run for end in change.end if connection.execute(END_RUN, row_of_end(end)).rowcount == 1)
    if change.end:
        # Statements that give nothing are handed over all at once: 15 take half as long.
        connection.executemany(END_RUN, map(row_of_end, change.end))
    return frozenset()


def record_and_release(connection: sqlite3.Connection, change: Change, holders: Sequence[RunId]) -> list[RunId | None]:
    """With the locks of runs that end."""
    for run in holders:
        release_run(connection, run)
    return record(connection, change)


def add_run(connection: sqlite3.Connection, run: NewRun) -> RunId | None:
    trigger = encode_trigger(run.trigger).decode()
    row = (
        run.job, run.state.value, run.attempt, run.due_ms, trigger,
        run.start_after_ms, run.started_ms, run.generation,
    )  # fmt: skip
    added = connection.execute(ADD_RUN, row)
    if added.rowcount != 1 or not added.lastrowid:
        return None
    if run.event is not None:
        claim_event(connection, run.event, run.job, RunId(added.lastrowid))
    return RunId(added.lastrowid)


def row_of_end(end: End) -> tuple[str | int | None, ...]:
    return (
        end.ended_ms, end.outcome.value, end.failure and end.failure.value,
        storable(end.reason), storable(end.traceback), end.cpu_ms, end.storage_errors,
        storable(end.result), end.http_status, end.items_found, end.items_new, storable(end.note), end.run,
    )  # fmt: skip


def record_skipped(connection: sqlite3.Connection, skipped: SkippedRange) -> None:
    first, last, count, at_ms = skipped.first_due_ms, skipped.last_due_ms, skipped.count, skipped.at_ms
    outcome, reason = skipped.outcome.value, storable(skipped.reason)
    trigger = encode_trigger({"type": skipped.trigger.value}).decode()
    newest = connection.execute(NEWEST_ROW, (skipped.job,)).fetchone()
    if newest and newest[1:4] == (outcome, reason, trigger) and newest[4] is not None:
        connection.execute(LENGTHEN_SKIPPED, (newest[0], first, last, count, at_ms))
    else:
        connection.execute(ADD_SKIPPED, (skipped.job, first, trigger, at_ms, outcome, reason, last, count))


def row_of_cursor(cursor: Cursor) -> tuple[str | int | None, ...]:
    return cursor.job, cursor.due_ms, cursor.schedule, int(cursor.paused), cursor.idle_since_ms


def storable(text: str) -> str:
    """SQLite's text is UTF-8, which has no lone surrogates: a run must not fail to end over one."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


RunRow = tuple[
    int, str, str, int, int | None, str, int | None, int | None, int | None, str | None, str | None,
    str, str, int, int, str, int | None, int | None, int | None, str,
    int, int | None, int,
]  # fmt: skip
CursorRow = tuple[str, int, str, int, int | None]


def read_run(row: RunRow) -> Run:
    (
        number, job, state, attempt, due_ms, trigger, start_after_ms, started_ms, ended_ms, outcome, failure,
        reason, traceback, cpu_ms, storage_errors, result, http_status, items_found, items_new, note,
        generation, last_due_ms, count,
    ) = row  # fmt: skip
    return Run(
        id=RunId(number),
        job=JobId(job),
        state=RunState(state),
        attempt=attempt,
        due_ms=due_ms,
        trigger=read_trigger(trigger),
        start_after_ms=start_after_ms,
        started_ms=started_ms,
        ended_ms=ended_ms,
        outcome=Outcome(outcome) if outcome else None,
        failure=Failure(failure) if failure else None,
        reason=reason,
        traceback=traceback,
        cpu_ms=cpu_ms,
        storage_errors=storage_errors,
        result=result,
        http_status=http_status,
        items_found=items_found,
        items_new=items_new,
        note=note,
        generation=generation,
        last_due_ms=last_due_ms,
        count=count,
    )


def read_trigger(text: str) -> Mapping[str, object]:
    """Nothing, where it is damaged: one run of which nobody can tell why it began must not keep a daemon down."""
    try:
        trigger: dict[str, object] = decode_trigger(text)
    except msgspec.DecodeError:
        return {}
    return trigger


def read_cursor(row: CursorRow) -> Cursor:
    job, due_ms, schedule, paused, idle_since_ms = row
    shared = intern(schedule)  # most of ten thousand jobs have few different ones
    return Cursor(job=JobId(job), due_ms=due_ms, schedule=shared, paused=bool(paused), idle_since_ms=idle_since_ms)
