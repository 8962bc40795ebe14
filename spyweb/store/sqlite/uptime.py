"""Uptime in SQLite: each result holds until the next one, or until it is stale.

A result is written down when the next one comes: into the standing row of its job, which also has the sums of the hour
that was reached, and from there, once that hour is over, into the rows of its hour and its day.
"""

from __future__ import annotations

import re
import sqlite3
from asyncio import Future
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.model import Cursor, JobId
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.model.uptime import (
    DAYS_KEPT_MS,
    HOURS_KEPT_MS,
    LATENCIES,
    NO_SPAN,
    SPANS,
    Excuses,
    JobUptime,
    Sample,
    StandingResult,
    UptimeDay,
    UptimeSpan,
    Windows,
    bucket_of,
)
from spyweb.store.sqlite.batch import OpKind, each, execute_each
from spyweb.store.sqlite.connections import Connections, StorePart, on_questions, upsert

LETTERS = "".join(chr(code) for code in range(33, 127) if not chr(code).isdigit() and chr(code) not in "\"'\\")[
    :LATENCIES
]
COUNTS = re.compile(r"(\D)(\d*)")
LONGEST = 600  # characters of latencies: the shortest form of all buckets is below it
SET_BACK_MS = DAY_MS  # a result that is older than the standing one by more comes from a clock that was set back

HOLDS = "max(min(stale_ms, ?2) - since_ms, 0)"
# What nearly every end writes.
ADVANCE = f"""
    UPDATE standing SET
        up_ms = up_ms + CASE up WHEN 1 THEN {HOLDS} ELSE 0 END,
        down_ms = down_ms + CASE up WHEN 0 THEN {HOLDS} ELSE 0 END,
        ok = ok + ?3, failed = failed + 1 - ?3, latency = latency || ?4,
        ended_ms = ?2, since_ms = ?2, up = ?3, stale_ms = ?5
    WHERE job = ?1 AND since_ms >= ?6 AND since_ms <= ?2 AND length(latency) < {LONGEST}
"""
COLUMNS = "up_ms, down_ms, excused_ms, ok, failed, latency"
STANDING = f"job, ended_ms, since_ms, up, stale_ms, {COLUMNS}"
FIND = f"SELECT {STANDING} FROM standing WHERE job IN (SELECT value FROM json_each(?))"
STAND = upsert("standing", STANDING, "job")
FIND_SPAN = f"SELECT {COLUMNS} FROM uptime WHERE job = ? AND unit = ? AND start_ms = ?"
SAVE_SPAN = upsert("uptime", f"job, unit, start_ms, {COLUMNS}", "job, unit, start_ms")
SUMS = ", ".join(f"CAST(sum({name}) AS bigint)" for name in COLUMNS.split(", ")[:-1])
SPAN = f"""
    SELECT job, {SUMS}, group_concat(latency, '') FROM (
        SELECT * FROM uptime WHERE job IN (SELECT value FROM json_each(?1))
            AND unit = 'hour' AND start_ms >= ?2 AND start_ms < ?3
        UNION ALL SELECT * FROM uptime WHERE job IN (SELECT value FROM json_each(?1))
            AND unit = 'day' AND start_ms >= ?3 AND start_ms <= ?4
    ) AS parts GROUP BY job
"""
OF_DAYS = f"SELECT start_ms, {COLUMNS} FROM uptime WHERE job = ? AND unit = 'day' AND start_ms >= ? AND start_ms <= ?"
OUTDATED = """
    SELECT job, unit, start_ms FROM uptime WHERE job = ?1 AND unit = 'hour' AND start_ms < ?2
    UNION ALL SELECT job, unit, start_ms FROM uptime WHERE job = ?1 AND unit = 'day' AND start_ms < ?3 LIMIT ?4
"""
FORGET = "DELETE FROM uptime WHERE job = ? AND unit = ? AND start_ms = ?"
FORGET_STANDING = "DELETE FROM standing WHERE since_ms < ? AND stale_ms < ?"
UNITS: Final[Mapping[str, int]] = {"hour": HOUR_MS, "day": DAY_MS}

encode = msgspec.json.encode


class NeverExcused:
    """No job has maintenance."""

    def free_since(self, job: str, moment_ms: int) -> int:
        return 0

    def excused(self, job: str, since_ms: int, until_ms: int) -> Windows:
        return ()


class StandingRow(Struct, frozen=True):
    """A row of `standing`."""

    job: JobId
    ended_ms: int
    since_ms: int
    up: bool | None
    stale_ms: int
    span: UptimeSpan = NO_SPAN  # of the hour of `since_ms`


class Uptimes(StorePart):
    """For how long each job was up and down; runs write it with their ends (`End.sample`)."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        super().__init__(connections, clock)
        self.excuses: Excuses = NeverExcused()

    def settle(self, jobs: Sequence[JobId], excuses: Excuses) -> Future[None]:
        """Write down what the standing results of these jobs have held for, with the maintenance that this knows."""
        return self._writer.submit(OpKind.SEVERAL, settle, jobs, self._clock.now_ms(), excuses)

    @on_questions
    def read(
        self, connection: sqlite3.Connection, jobs: Sequence[JobId], now_ms: int, spans: Sequence[str] = tuple(SPANS)
    ) -> dict[JobId, JobUptime]:
        """Return the standing results of these jobs, and the spans of these names up to now."""
        begins = {name: hour_of(now_ms - SPANS[name]) for name in spans}
        begins |= {name: start - start % DAY_MS for name, start in begins.items() if SPANS[name] > HOURS_KEPT_MS}
        asked, rows = encode(jobs).decode(), find_standing(connection, jobs)
        found: dict[tuple[str, str], UptimeSpan] = {}
        for name, begin_ms in begins.items():
            midnight_ms = begin_ms + -begin_ms % DAY_MS
            for job, *columns in connection.execute(SPAN, (asked, begin_ms, midnight_ms, now_ms)):
                found[job, name] = span_of(columns)
        return {job: self._up_to_now(job, rows.get(job), begins, found, now_ms) for job in jobs}

    def _up_to_now(
        self,
        job: JobId,
        row: StandingRow | None,
        begins: Mapping[str, int],
        over: Mapping[tuple[str, str], UptimeSpan],
        now_ms: int,
    ) -> JobUptime:
        spans = {name: over.get((job, name), NO_SPAN) for name in begins}
        if row is None:
            return JobUptime(spans=spans)
        for hour_ms, part in hours_of(row, now_ms, self.excuses).items():
            spans |= {name: spans[name] + part for name, begin_ms in begins.items() if hour_ms >= begin_ms}
        return JobUptime(standing=StandingResult(up=row.up, since_ms=row.ended_ms, stale_ms=row.stale_ms), spans=spans)

    @on_questions
    def days(self, connection: sqlite3.Connection, job: JobId, count: int) -> list[UptimeDay]:
        """Return the last days of UTC up to today, which is not over."""
        now_ms = self._clock.now_ms()
        first_ms = now_ms - now_ms % DAY_MS - (count - 1) * DAY_MS
        days = dict.fromkeys(range(first_ms, now_ms + 1, DAY_MS), NO_SPAN)
        for start_ms, *columns in connection.execute(OF_DAYS, (job, first_ms, now_ms)):
            days[start_ms] += span_of(columns)
        for row in find_standing(connection, [job]).values():
            for hour_ms, part in hours_of(row, now_ms, self.excuses).items():
                if (start_ms := hour_ms - hour_ms % DAY_MS) in days:
                    days[start_ms] += part
        return [UptimeDay(start_ms=start_ms, span=span) for start_ms, span in days.items()]

    async def prune(self, now_ms: int) -> int:
        """Delete what is older than is kept; return how many hours and days."""

        def outdated(connection: sqlite3.Connection, job: str, limit: int) -> list[tuple[Any, ...]]:
            kept = (now_ms - HOURS_KEPT_MS, now_ms - DAYS_KEPT_MS)
            return connection.execute(OUTDATED, (job, *kept, limit)).fetchall()

        long_ago = (now_ms - DAYS_KEPT_MS, now_ms)
        await self._writer.submit(OpKind.SEVERAL, execute_each, FORGET_STANDING, [long_ago])
        return await self._prune_jobs("uptime", outdated, FORGET)


# On the thread of a connection: writing


def note(connection: sqlite3.Connection, samples: Sequence[Sample], excuses: Excuses) -> None:
    """Write results down, with one statement each but where an hour is over, or there is maintenance."""
    first: dict[JobId, Sample] = {}
    usual = [sample for sample in samples if first.setdefault(sample.job, sample) is sample and sample.up is not None]
    results = each(connection, ADVANCE, [row_of_end(sample) for sample in usual]) if usual else ()
    done = {id(sample) for sample, result in zip(usual, results, strict=True) if result.rowcount == 1}
    if len(done) == len(samples):
        return
    ledger = Ledger(connection, list(first), excuses)
    for sample in samples:
        if id(sample) not in done:
            ledger.note(sample)
    ledger.save(connection)


def row_of_end(sample: Sample) -> tuple[str | int, ...]:
    letter = "" if sample.latency_ms is None or not sample.up else LETTERS[bucket_of(sample.latency_ms)]
    since_ms = max(hour_of(sample.at_ms), sample.free_ms)
    return (sample.job, sample.at_ms, int(bool(sample.up)), letter, sample.stale_ms, since_ms)


def idle_of(cursors: Sequence[Cursor]) -> list[Sample]:
    """Return what cursors say: nothing is known of a job that is paused, disabled or absent."""
    idle = [(cursor.job, cursor.idle_since_ms) for cursor in cursors if cursor.idle_since_ms is not None]
    return [Sample(job=job, at_ms=since_ms, up=None) for job, since_ms in idle]


def settle(connection: sqlite3.Connection, jobs: Sequence[JobId], at_ms: int, excuses: Excuses) -> None:
    ledger = Ledger(connection, jobs, excuses)
    for row in list(ledger.rows.values()):
        ledger.put(hours_of(row, at_ms, excuses), replace(row, since_ms=max(row.since_ms, at_ms)))
    ledger.save(connection)


class Ledger:
    """The standing rows of some jobs, and the hours that are over for them, until both are saved."""

    def __init__(self, connection: sqlite3.Connection, jobs: Sequence[JobId], excuses: Excuses) -> None:
        self.rows = find_standing(connection, jobs)
        self._excuses = excuses
        self._changed: set[JobId] = set()
        self._over: dict[tuple[str, str, int], UptimeSpan] = {}

    def note(self, new: Sample) -> None:
        """Let a result follow the standing one; one that is older is counted, and holds for nothing."""
        row = self.rows.get(new.job)
        if new.up is None and (row is None or row.up is None):
            return
        row = row or StandingRow(new.job, new.at_ms, new.at_ms, None, new.at_ms)
        was_set_back = new.at_ms < row.ended_ms - SET_BACK_MS
        if row.ended_ms <= new.at_ms or was_set_back:
            hours = hours_of(row, new.at_ms, self._excuses)
            since_ms = new.at_ms if was_set_back else max(row.since_ms, new.at_ms)
            row = replace(row, ended_ms=new.at_ms, since_ms=since_ms, up=new.up, stale_ms=new.stale_ms)
        else:
            hours = {hour_of(row.since_ms): row.span}
        hour_ms = hour_of(new.at_ms)
        self.put(hours | {hour_ms: hours.get(hour_ms, NO_SPAN) + counted(new)}, row)

    def put(self, hours: Mapping[int, UptimeSpan], row: StandingRow) -> None:
        """Change a standing row; of the hours, its own stays with it."""
        open_ms = hour_of(row.since_ms)
        self.rows[row.job] = replace(row, span=hours.get(open_ms, NO_SPAN))
        self._changed.add(row.job)
        for hour_ms, span in hours.items():
            for unit, size_ms in UNITS.items() if hour_ms != open_ms and span != NO_SPAN else ():
                place = (row.job, unit, hour_ms - hour_ms % size_ms)
                self._over[place] = self._over.get(place, NO_SPAN) + span

    def save(self, connection: sqlite3.Connection) -> None:
        found = each(connection, FIND_SPAN, list(self._over)) if self._over else ()
        rows = [
            (*place, *merged(span, row.fetchone()))
            for (place, span), row in zip(self._over.items(), found, strict=True)
        ]
        execute_each(connection, SAVE_SPAN, rows)
        execute_each(connection, STAND, [columns_of_row(self.rows[job]) for job in sorted(self._changed)])


def counted(sample: Sample) -> UptimeSpan:
    if sample.up is None:
        return NO_SPAN
    is_timed = sample.up and sample.latency_ms is not None
    latency = {bucket_of(sample.latency_ms or 0): 1} if is_timed else {}
    return UptimeSpan(ok=int(sample.up), failed=int(not sample.up), latency=latency)


# On the thread of a connection: reading


def find_standing(connection: sqlite3.Connection, jobs: Sequence[JobId]) -> dict[JobId, StandingRow]:
    found = connection.execute(FIND, (encode(jobs).decode(),))
    return {
        job: StandingRow(job, ended_ms, since_ms, None if up is None else bool(up), stale_ms, span_of(columns))
        for job, ended_ms, since_ms, up, stale_ms, *columns in found
    }


def hours_of(row: StandingRow, until_ms: int, excuses: Excuses) -> dict[int, UptimeSpan]:
    """Return the hour of a row, and the hours in which its result has held since, as they are at a moment."""
    hours = {hour_of(row.since_ms): row.span}
    until_ms = min(until_ms, row.stale_ms)
    if row.up is None or until_ms <= row.since_ms:
        return hours
    excused = excuses.excused(row.job, row.since_ms, until_ms)
    result = "up_ms" if row.up else "down_ms"
    for start_ms, end_ms, is_excused in parts_of(row.since_ms, until_ms, excused):
        for at_ms, next_ms in pairwise([start_ms, *range(hour_of(start_ms) + HOUR_MS, end_ms, HOUR_MS), end_ms]):
            part = UptimeSpan(**{"excused_ms" if is_excused else result: next_ms - at_ms})
            hours[hour_of(at_ms)] = hours.get(hour_of(at_ms), NO_SPAN) + part
    return hours


def parts_of(since_ms: int, until_ms: int, excused: Windows) -> Iterator[tuple[int, int, bool]]:
    """Yield the parts of a span of time, each with whether it is excused; one may be empty."""
    for start_ms, end_ms in excused:
        start_ms, end_ms = max(start_ms, since_ms), min(end_ms, until_ms)
        yield since_ms, start_ms, False
        yield start_ms, end_ms, True
        since_ms = end_ms
    yield since_ms, until_ms, False


def hour_of(moment_ms: int) -> int:
    return moment_ms - moment_ms % HOUR_MS


def columns_of_row(row: StandingRow) -> tuple[int | str | None, ...]:
    """Return a row as the columns STANDING."""
    up = None if row.up is None else int(row.up)
    return (row.job, row.ended_ms, row.since_ms, up, row.stale_ms, *columns_of_span(row.span))


def merged(span: UptimeSpan, found: Sequence[Any] | None) -> tuple[int | str, ...]:
    return columns_of_span(span + span_of(found) if found else span)


def columns_of_span(span: UptimeSpan) -> tuple[int | str, ...]:
    """Return a span as the columns COLUMNS."""
    return (span.up_ms, span.down_ms, span.excused_ms, span.ok, span.failed, text_of(span.latency))


def span_of(columns: Sequence[Any]) -> UptimeSpan:
    up_ms, down_ms, excused_ms, ok, failed, latency = columns
    return UptimeSpan(
        up_ms=up_ms, down_ms=down_ms, excused_ms=excused_ms, ok=ok, failed=failed, latency=latency_of(latency)
    )


def text_of(latency: Mapping[int, int]) -> str:
    """Write counts of latencies; texts are added by joining them."""
    return "".join(LETTERS[bucket] + (str(count) if count > 1 else "") for bucket, count in sorted(latency.items()))


def latency_of(text: str) -> Mapping[int, int]:
    counts: Counter[int] = Counter()
    for letter, count in COUNTS.findall(text):
        counts[LETTERS.find(letter)] += int(count or 1)
    return dict(counts)
