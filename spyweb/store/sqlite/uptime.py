"""Uptime in SQLite: each result holds until the next one, or until it is stale.

A result is written down when the next one comes: into the standing row of its job, which has the sums of one hour, and
once that hour is over, into the rows of its hour and its day.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from spyweb.clock import Clock
from spyweb.model import Cursor, JobId
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.model.uptime import (
    DAYS_KEPT_MS,
    HOURS_KEPT_MS,
    SPANS,
    Excuses,
    JobUptime,
    Sample,
    UptimeDays,
    UptimeSpan,
    begin_of,
    bucket_of,
)
from spyweb.store.sqlite.batch import OpKind, each, execute_each
from spyweb.store.sqlite.connections import Connections, StorePart, on_questions, on_writer, upsert

LETTERS = "".join(chr(code) for code in range(33, 127) if chr(code) not in "\"'\\0123456789")  # of buckets
COUNTS = re.compile(r"(\D)(\d*)")
LONGEST = 600  # characters of latencies: the shortest form of all buckets is below it
SET_BACK_MS = DAY_MS  # a result that is older than the standing one by more comes from a clock that was set back
SETTLED_AT_ONCE = 20  # jobs: the writes queued behind them hardly wait
UNITS: Final[Mapping[str, int]] = {"hour": HOUR_MS, "day": DAY_MS}

HOLDS = "max(min(stale_ms, ?2) - written_ms, 0)"
# What nearly every end writes.
ADVANCE = f"""
    UPDATE standing SET
        up_ms = up_ms + CASE up WHEN 1 THEN {HOLDS} ELSE 0 END,
        down_ms = down_ms + CASE up WHEN 0 THEN {HOLDS} ELSE 0 END,
        ok = ok + ?3, failed = failed + 1 - ?3, latency = latency || ?4,
        since_ms = ?2, written_ms = ?2, up = ?3, stale_ms = ?5
    WHERE job = ?1 AND written_ms >= ?6 AND written_ms <= ?2 AND length(latency) < {LONGEST}
"""
NUMBERS = UptimeSpan.__struct_fields__[:-1]
COLUMNS = ", ".join((*NUMBERS, "latency"))
STANDING = f"job, since_ms, written_ms, up, stale_ms, {COLUMNS}"
FIND = f"SELECT {STANDING} FROM standing WHERE job IN (SELECT value FROM json_each(?))"
STAND = upsert("standing", STANDING, "job")
FIND_SPAN = f"SELECT {COLUMNS} FROM uptime WHERE job = ? AND unit = ? AND start_ms = ?"
SAVE_SPAN = upsert("uptime", f"job, unit, start_ms, {COLUMNS}", "job, unit, start_ms")
BARE_SPAN = f"""
    SELECT job, {", ".join(f"CAST(sum({name}) AS bigint)" for name in NUMBERS)}, '' FROM (
        SELECT * FROM uptime WHERE job IN (SELECT value FROM json_each(?1))
            AND unit = 'hour' AND start_ms >= ?2 AND start_ms < ?3
        UNION ALL SELECT * FROM uptime WHERE job IN (SELECT value FROM json_each(?1))
            AND unit = 'day' AND start_ms >= ?3 AND start_ms <= ?4
    ) AS parts GROUP BY job
"""
SPAN = BARE_SPAN.replace("''", "group_concat(latency, '')")
OF_DAYS = f"""
    SELECT job, start_ms, {", ".join(NUMBERS)} FROM uptime
    WHERE job IN (SELECT value FROM json_each(?)) AND unit = 'day' AND start_ms >= ? AND start_ms <= ?
"""
OUTDATED = """
    SELECT job, unit, start_ms FROM uptime WHERE job = ?1 AND unit = 'hour' AND start_ms < ?2
    UNION ALL SELECT job, unit, start_ms FROM uptime WHERE job = ?1 AND unit = 'day' AND start_ms < ?3 LIMIT ?4
"""
FORGET = "DELETE FROM uptime WHERE job = ? AND unit = ? AND start_ms = ?"
HELD_LONG = "SELECT job FROM standing WHERE written_ms < ? AND written_ms < stale_ms"
FORGET_STANDING = "DELETE FROM standing WHERE written_ms < ? AND stale_ms < ?"

Sums = Counter[str | int]  # by the names of NUMBERS, and the numbers of buckets

encode = msgspec.json.encode


class StandingRow(Struct, frozen=True):
    """A row of `standing`, as STANDING has it."""

    job: JobId
    since_ms: int
    written_ms: int
    up: bool | None
    stale_ms: int
    sums: Sums  # of the hour of `written_ms`


class Uptimes(StorePart):
    """For how long each job was up and down; runs write it with their ends (`End.sample`)."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        super().__init__(connections, clock)
        self.excuses = Excuses()

    @on_writer(OpKind.SEVERAL)
    def settle(self, connection: sqlite3.Connection, jobs: Sequence[JobId], excuses: Excuses, now_ms: int) -> None:
        """Write down what the standing results of these jobs have held for, with the maintenance that this knows."""
        standing = StandingRows(connection, jobs, excuses)
        for row in [row for row in standing.of_job.values() if row.written_ms < min(now_ms, row.stale_ms)]:
            until_ms = min(now_ms, row.stale_ms)
            standing.put(replace(row, written_ms=until_ms), hours_of(row, until_ms, excuses))
        standing.save(connection)

    @on_questions
    def read(
        self,
        connection: sqlite3.Connection,
        jobs: Sequence[JobId],
        now_ms: int,
        spans: Sequence[str] = tuple(SPANS),
        *,
        latency: bool = True,
    ) -> dict[JobId, JobUptime]:
        """Return the standing results of these jobs, and the spans of these names up to now; fast without latency."""
        asked, begins = encode(jobs).decode(), {name: begin_of(name, now_ms) for name in spans}
        found = defaultdict[tuple[str, str], Sums](Counter)
        for name, begin_ms in begins.items():
            asked_for = (asked, begin_ms, begin_ms + -begin_ms % DAY_MS, now_ms)
            for job, *columns in connection.execute(SPAN if latency else BARE_SPAN, asked_for):
                found[job, name] = sums_of(columns)
        uptimes = {}
        for job, row in find_standing(connection, jobs).items():
            for hour_ms, sums in hours_of(row, now_ms, self.excuses).items():
                for name in (name for name, begin_ms in begins.items() if hour_ms >= begin_ms):
                    found[job, name].update(sums)
            up = row.up if now_ms < row.stale_ms else None
            shown = {name: span_of(found[job, name], latency=latency) for name in spans}
            uptimes[job] = JobUptime(up=up, since_ms=row.since_ms or None, until_ms=row.stale_ms or None, spans=shown)
        return uptimes

    @on_questions
    def days(self, connection: sqlite3.Connection, jobs: Sequence[JobId], count: int) -> dict[JobId, UptimeDays]:
        """Return the last days of UTC of these jobs, up to today, which is not over; without latencies."""
        now_ms = self._clock.now_ms()
        first_ms = now_ms - now_ms % DAY_MS - (count - 1) * DAY_MS
        found = {job: dict.fromkeys(range(first_ms, now_ms + 1, DAY_MS), UptimeSpan()) for job in jobs}
        for job, start_ms, *numbers in connection.execute(OF_DAYS, (encode(jobs).decode(), first_ms, now_ms)):
            found[job][start_ms] = UptimeSpan(*numbers)
        for job, row in find_standing(connection, jobs).items():
            for hour_ms, sums in hours_of(row, now_ms, self.excuses).items():
                if day := found[job].get(start_ms := hour_ms - hour_ms % DAY_MS):
                    found[job][start_ms] = UptimeSpan(*(getattr(day, name) + sums[name] for name in NUMBERS))
        return found

    async def prune(self, now_ms: int) -> int:
        """Delete what is older than is kept; return how many hours and days.

        First, what has held for a day is written down: the longer that is ago, the longer takes each question.
        """
        held = await self._questions.submit(
            OpKind.READ, lambda connection: [job for (job,) in connection.execute(HELD_LONG, (now_ms - DAY_MS,))]
        )
        for first in range(0, len(held), SETTLED_AT_ONCE):
            await self.settle(held[first : first + SETTLED_AT_ONCE], self.excuses, now_ms)

        def outdated(connection: sqlite3.Connection, job: str, limit: int) -> list[tuple[Any, ...]]:
            kept = (now_ms - HOURS_KEPT_MS, now_ms - DAYS_KEPT_MS)
            return connection.execute(OUTDATED, (job, *kept, limit)).fetchall()

        await self._writer.submit(OpKind.WRITE, execute_each, FORGET_STANDING, [(now_ms - DAYS_KEPT_MS, now_ms)])
        return await self._prune_jobs("uptime", outdated, FORGET)


# On the thread of a connection: writing


def note(connection: sqlite3.Connection, samples: Sequence[Sample], excuses: Excuses) -> None:
    """Write results down, with one statement each but where an hour is over, or there is maintenance."""
    first: dict[JobId, Sample] = {}
    usual = [sample for sample in samples if first.setdefault(sample.job, sample) is sample and sample.up is not None]
    results = each(connection, ADVANCE, [row_of(sample) for sample in usual]) if usual else ()
    done = {id(sample) for sample, result in zip(usual, results, strict=True) if result.rowcount == 1}
    if len(done) < len(samples):
        standing = StandingRows(connection, list(first), excuses)
        for sample in samples:
            if id(sample) not in done:
                standing.note(sample)
        standing.save(connection)


def row_of(sample: Sample) -> tuple[str | int, ...]:
    letter = "" if sample.latency_ms is None or not sample.up else LETTERS[bucket_of(sample.latency_ms)]
    begin_ms = max(hour_of(sample.at_ms), sample.free_ms)
    return (sample.job, sample.at_ms, bool(sample.up), letter, sample.stale_ms, begin_ms)


def idle_of(cursors: Sequence[Cursor]) -> list[Sample]:
    """Return what cursors say: nothing is known of a job that is paused, disabled or absent."""
    idle = [(cursor.job, cursor.idle_since_ms) for cursor in cursors if cursor.idle_since_ms is not None]
    return [Sample(job=job, at_ms=since_ms, up=None) for job, since_ms in idle]


class StandingRows:
    """The standing rows of some jobs, and the hours that are over for them, until both are saved."""

    def __init__(self, connection: sqlite3.Connection, jobs: Sequence[JobId], excuses: Excuses) -> None:
        self.of_job = find_standing(connection, jobs)
        self._excuses = excuses
        self._changed: set[JobId] = set()
        self._over = defaultdict[tuple[str, str, int], Sums](Counter)

    def note(self, new: Sample) -> None:
        """Let a result follow the standing one; one that is older is counted, and holds for nothing."""
        row = self.of_job[new.job]
        if new.up is row.up is None and (not row.since_ms or new.at_ms <= row.since_ms):  # as is known
            return
        hours = hours_of(row, new.at_ms, self._excuses)
        if new.up is not None:
            hours[hour_of(new.at_ms)]["ok" if new.up else "failed"] += 1
        if new.up and new.latency_ms is not None:
            hours[hour_of(new.at_ms)][bucket_of(new.latency_ms)] += 1
        was_set_back = new.at_ms < row.since_ms - SET_BACK_MS
        if row.since_ms <= new.at_ms or was_set_back:
            written_ms = new.at_ms if was_set_back else max(row.written_ms, new.at_ms)
            row = replace(row, up=new.up, since_ms=new.at_ms, stale_ms=new.stale_ms, written_ms=written_ms)
        self.put(row, hours)

    def put(self, row: StandingRow, hours: dict[int, Sums]) -> None:
        """Change a standing row; of the hours, its own stays with it."""
        self.of_job[row.job] = replace(row, sums=hours.pop(hour_of(row.written_ms), Counter()))
        self._changed.add(row.job)
        for hour_ms, sums in hours.items():
            for unit, size_ms in UNITS.items() if sums.total() else ():
                self._over[row.job, unit, hour_ms - hour_ms % size_ms].update(sums)

    def save(self, connection: sqlite3.Connection) -> None:
        for (*_, sums), found in zip(self._over.items(), each(connection, FIND_SPAN, [*self._over]), strict=True):
            for columns in found:
                sums.update(sums_of(columns))
        execute_each(connection, SAVE_SPAN, [(*place, *columns_of(sums)) for place, sums in self._over.items()])
        rows = [self.of_job[job] for job in sorted(self._changed)]
        execute_each(connection, STAND, [(*astuple(row)[:-1], *columns_of(row.sums)) for row in rows])


# On the thread of a connection: reading


def find_standing(connection: sqlite3.Connection, jobs: Sequence[JobId]) -> dict[JobId, StandingRow]:
    """Return the rows of these jobs, also of those that have none yet: their moments are 0."""
    found = {job: StandingRow(job, 0, 0, None, 0, Counter()) for job in jobs}
    for job, since_ms, written_ms, up, stale_ms, *sums in connection.execute(FIND, (encode(jobs).decode(),)):
        is_up = None if up is None else bool(up)
        found[job] = StandingRow(job, since_ms, written_ms, is_up, stale_ms, sums_of(sums))
    return found


def hours_of(row: StandingRow, until_ms: int, excuses: Excuses) -> dict[int, Sums]:
    """Return the hour of a row, and the hours in which its result has held since, as they are at a moment."""
    hours = defaultdict[int, Sums](Counter, {hour_of(row.written_ms): row.sums.copy()})
    until_ms = min(until_ms, row.stale_ms)
    if row.up is None or until_ms <= row.written_ms:
        return hours
    kind = "up_ms" if row.up else "down_ms"
    parts = [(row.written_ms, until_ms, kind, 1)]
    for window in excuses.excused(row.job, row.written_ms, until_ms):
        parts += [(*window, kind, -1), (*window, "excused_ms", 1)]
    for start_ms, end_ms, name, sign in parts:
        for at_ms, next_ms in pairwise([start_ms, *range(hour_of(start_ms) + HOUR_MS, end_ms, HOUR_MS), end_ms]):
            hours[hour_of(at_ms)][name] += sign * (next_ms - at_ms)
    return hours


def hour_of(moment_ms: int) -> int:
    return moment_ms - moment_ms % HOUR_MS


def columns_of(sums: Sums) -> tuple[int | str, ...]:
    """Return sums as COLUMNS; texts of latencies are added by joining them."""
    counts = sorted((key, count) for key, count in sums.items() if isinstance(key, int))
    text = "".join(LETTERS[bucket] + (str(count) if count > 1 else "") for bucket, count in counts)
    return (*(sums[name] for name in NUMBERS), text)


def sums_of(columns: Sequence[Any]) -> Sums:
    sums: Sums = Counter(dict(zip(NUMBERS, columns, strict=False)))
    for letter, count in COUNTS.findall(columns[-1]):
        sums[LETTERS.index(letter)] += int(count or 1)
    return sums


def span_of(sums: Sums, *, latency: bool) -> UptimeSpan:
    counts = {key: count for key, count in sums.items() if latency and isinstance(key, int)}
    return UptimeSpan(latency=counts, **{name: sums[name] for name in NUMBERS})
