"""Uptime in SQLite: each result holds until the next one, or until it is stale.

The end of a run adds its result to `sample`.  Those are counted in slices, into the rows of their hours and days; a
question counts for itself what is not counted yet.
"""

from __future__ import annotations

import sqlite3
from asyncio import gather
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, cycle, pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct, convert
from msgspec.structs import astuple

from spyweb.model import JobId
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.model.uptime import KEPT_MS, Excused, JobUptime, UptimeSpan, begin_of
from spyweb.store.sqlite.batch import OpKind, each, execute_each
from spyweb.store.sqlite.connections import SLICE, StorePart, on_questions, on_writer, upsert

SET_BACK_MS = 10 * MINUTE_MS  # a result that is older than the one before by more comes from a clock that was set back
ON_THE_WAY_MS = MINUTE_MS  # so old may be the result of an end that is being committed
ENOUGH, WAITS_MS = 10, 10 * MINUTE_MS  # so many samples of a job are counted, or fewer that have waited for so long
UNITS: Final[Mapping[str, int]] = {"hour": HOUR_MS, "day": DAY_MS}


class Sample(Struct, array_like=True):
    """The result of a job from a moment on: one that is not counted yet, or the last one that is."""

    job: JobId
    at_ms: int = 0  # 0: there was none yet
    up: bool | None = None  # None: nothing is known from here on (it is paused, disabled or absent)
    stale_ms: int = 0
    latency: int | None = None
    counted_ms: int = 0  # so far the time is counted for which it has held


Hours = dict[int, UptimeSpan]  # by when each begins

OF_JOBS = "job IN (SELECT value FROM json_each(?1))"
NUMBERS = UptimeSpan.__struct_fields__[:-1]
COLUMNS = ", ".join(UptimeSpan.__struct_fields__)
FOUND = COLUMNS.replace("latency", "'[' || latency || ']'")  # as `span_of` takes them
ADD_IDLE = "INSERT INTO sample (job, at_ms, stale_ms) VALUES (?, ?, 0)"
RESULT = "id, job, at_ms, up, stale_ms, latency"
FIND_SAMPLES = f"SELECT {RESULT} FROM sample WHERE {OF_JOBS}"
TAKE_SAMPLES = f"DELETE FROM sample WHERE {OF_JOBS} RETURNING {RESULT}"
TAKE_SLICE = f"DELETE FROM sample WHERE id IN (SELECT CAST(value AS bigint) FROM json_each(?)) RETURNING {RESULT}"
FIND_STANDING = f"SELECT job, at_ms, up, stale_ms, NULL, counted_ms FROM standing WHERE {OF_JOBS}"
SAVE_STANDING = upsert("standing", "job, at_ms, up, stale_ms, counted_ms", "job")
FIND_SPAN = f"SELECT {FOUND} FROM uptime WHERE job = ? AND unit = ? AND start_ms = ?"
SAVE_SPAN = upsert("uptime", f"job, unit, start_ms, {COLUMNS}", "job, unit, start_ms")
SUMS = ", ".join(f"CAST(sum({name}) AS bigint)" for name in NUMBERS) + ", '[' || group_concat(latency, ',') || ']'"
SPAN = f"""
    SELECT job, {SUMS} FROM uptime WHERE {OF_JOBS} AND unit = 'hour' AND start_ms >= ?2 AND start_ms < ?3 GROUP BY job
    UNION ALL
    SELECT job, {SUMS} FROM uptime WHERE {OF_JOBS} AND unit = 'day' AND start_ms >= ?3 AND start_ms <= ?4 GROUP BY job
"""
OF_DAYS = f"""
    SELECT job, start_ms, {FOUND} FROM uptime
    WHERE {OF_JOBS} AND unit = 'day' AND start_ms >= ?2 AND start_ms <= ?3
"""
DELETE_SPANS = f"DELETE FROM uptime WHERE {OF_JOBS} AND unit = ?2 AND start_ms < ?3"
DELETE_STANDING = "DELETE FROM standing WHERE counted_ms < ? AND stale_ms < ?"
# What has waited, and what has held for long: the more that is, the longer takes each question.  And what is too old.
UNCOUNTED = f"""
    SELECT job, id FROM sample
    WHERE job IN (SELECT job FROM sample GROUP BY job HAVING count(*) >= {ENOUGH} OR min(at_ms) < ?1)
    UNION ALL SELECT job, NULL FROM standing
    WHERE (counted_ms < ?2 AND counted_ms < stale_ms OR counted_ms < ?3) AND job NOT IN (SELECT job FROM sample)
    ORDER BY job, id LIMIT {1_000 * SLICE}
"""

encode = msgspec.json.encode
decode_latencies = msgspec.json.Decoder(list[dict[int, int]]).decode


class Uptimes(StorePart):
    """For how long each job was up and down; a trigger adds the result of each run (`End.stale_ms`)."""

    excused: Excused = staticmethod(lambda job, since_ms, until_ms: ())  # by the maintenance of now

    @on_writer(OpKind.SEVERAL)
    def count(
        self, connection: sqlite3.Connection, until: Mapping[JobId, int], excused: Excused, ids: Sequence[int] = ()
    ) -> None:
        """Count the samples of these jobs, or those with these ids, and for how long results have held."""
        take, asked = (TAKE_SLICE, ids) if ids else (TAKE_SAMPLES, [*until])
        followed = follow_all(connection, connection.execute(take, (encode(asked).decode(),)), until, excused)
        spans = defaultdict[tuple[JobId, str, int], UptimeSpan](UptimeSpan)
        for row, hours in followed:
            for hour_ms, span in hours.items():
                for unit, size_ms in UNITS.items():
                    spans[row.job, unit, hour_ms - hour_ms % size_ms].add(span)
        for span, found in zip(spans.values(), each(connection, FIND_SPAN, [*spans]), strict=True):
            for columns in found:
                span.add(span_of(columns))
        rows = [(*place, *astuple(span)[:-1], encode(span.latency).decode()) for place, span in spans.items()]
        execute_each(connection, SAVE_SPAN, rows)
        standing = [(row.job, row.at_ms, row.up, row.stale_ms, row.counted_ms) for row, _ in followed if row.at_ms]
        execute_each(connection, SAVE_STANDING, standing)

    async def prune(self, now_ms: int) -> None:
        """Count what has waited for long enough, in slices, and delete what is older than is kept."""
        outdated_ms = now_ms - KEPT_MS["day"]
        asked = UNCOUNTED, (now_ms - WAITS_MS, now_ms - DAY_MS, outdated_ms)
        found = await self._questions.submit(OpKind.READ, lambda db: db.execute(*asked).fetchall())
        for first in range(0, len(found), SLICE):
            jobs, ids = zip(*found[first : first + SLICE], strict=True)
            held = {job: now_ms - ON_THE_WAY_MS for job, number in zip(jobs, ids, strict=True) if number is None}
            counted = self.count(held, self.excused, ids)
            outdated = [(encode(jobs).decode(), unit, now_ms - kept_ms) for unit, kept_ms in KEPT_MS.items()]
            deleted = self._writer.submit(OpKind.SEVERAL, execute_each, DELETE_SPANS, outdated)
            await gather(counted, deleted)  # in one commit
        if found:
            await self._writer.submit(OpKind.WRITE, execute_each, DELETE_STANDING, [(outdated_ms, now_ms)])

    @on_questions
    def read(
        self, connection: sqlite3.Connection, jobs: Sequence[JobId], now_ms: int, spans: Iterable[str], days: int = 0
    ) -> dict[JobId, JobUptime]:
        """Return the results of these jobs, and their spans and last days up to now."""
        asked, begins, found = encode(jobs).decode(), {name: begin_of(name, now_ms) for name in spans}, {}
        today_ms, counted = now_ms - now_ms % DAY_MS, defaultdict[tuple[JobId, object], UptimeSpan](UptimeSpan)
        shown = range(today_ms - (days - 1) * DAY_MS, today_ms + 1, DAY_MS)
        with one_state(connection):
            for name, begin_ms in begins.items():
                between = begin_ms, begin_ms + -begin_ms % DAY_MS, now_ms
                for job, *columns in connection.execute(SPAN, (asked, *between)):
                    counted[job, name].add(span_of(columns))
            for job, day_ms, *columns in connection.execute(OF_DAYS, (asked, shown.start, now_ms)) if days else ():
                counted[job, day_ms] = span_of(columns)
            samples = connection.execute(FIND_SAMPLES, (asked,))
            for row, hours in follow_all(connection, samples, dict.fromkeys(jobs, now_ms), self.excused):
                for at_ms, span in hours.items():
                    begun = [name for name in begins if begins[name] <= at_ms]
                    for part in (at_ms - at_ms % DAY_MS, *begun) if at_ms <= now_ms else ():
                        counted[row.job, part].add(span)
                by_name = {name: counted[row.job, name] for name in begins}
                by_day = {day_ms: counted[row.job, day_ms] for day_ms in shown}
                up = row.up if now_ms < row.stale_ms else None
                found[row.job] = JobUptime(up, row.at_ms or None, row.stale_ms or None, by_name, by_day)
        return found


# On the thread of a connection


@contextmanager
def one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """Let statements read the same state: what is counted between them would be there twice, or not at all."""
    is_alone = not connection.in_transaction
    if is_alone:
        connection.execute("BEGIN")
    try:
        yield
    finally:
        if is_alone:
            connection.execute("ROLLBACK")


def follow_all(
    connection: sqlite3.Connection, numbered: Iterable[tuple[Any, ...]], until: Mapping[JobId, int], excused: Excused
) -> list[tuple[Sample, Hours]]:
    """Return the result of each job that stands after these samples, and what is not counted yet.

    That is up to the moment given for the job, else to the last of these: what follows goes on there to the same sums.
    """
    samples: dict[JobId, list[Sample]] = {job: [] for job in until}
    for new in convert([columns for _, *columns in sorted(numbered)], list[Sample], strict=False):
        samples.setdefault(new.job, []).append(new)
    asked = (encode([*samples]).decode(),)
    found = convert(connection.execute(FIND_STANDING, asked).fetchall(), list[Sample], strict=False)
    standing = {job: Sample(job) for job in samples} | {row.job: row for row in found}
    return [(row, follow(row, samples[job], until.get(job), excused)) for job, row in standing.items()]


def follow(row: Sample, samples: Iterable[Sample], until_ms: int | None, excused: Excused) -> Hours:
    """Let samples follow a result; return what is to be counted.  One that is older than it holds for nothing."""
    hours = defaultdict[int, UptimeSpan](UptimeSpan)
    for new in samples:
        if new.up is not None:
            latency = {} if new.latency is None else {new.latency: 1}
            span = UptimeSpan(ok=int(new.up), failed=int(not new.up), latency=latency)
            hours[new.at_ms - new.at_ms % HOUR_MS].add(span)
        elif not row.at_ms:  # nothing was known before, either
            continue
        was_set_back = new.at_ms < row.at_ms - SET_BACK_MS
        if new.at_ms < row.at_ms and not was_set_back:
            continue
        if was_set_back or new.up != row.up or new.at_ms > row.stale_ms:
            hold(row, max(row.at_ms, new.at_ms), excused, hours)
            row.counted_ms = new.at_ms if was_set_back else max(row.counted_ms, new.at_ms)
        row.at_ms, row.up, row.stale_ms = new.at_ms, new.up, new.stale_ms
    hold(row, row.at_ms if until_ms is None else until_ms, excused, hours)
    return hours


def hold(row: Sample, until_ms: int, excused: Excused, hours: Hours) -> None:
    """Count for how long a result has held up to a moment, hour by hour."""
    start_ms, until_ms = row.counted_ms, min(until_ms, row.stale_ms)
    if row.up is None or until_ms <= start_ms:
        return
    row.counted_ms = until_ms
    edges = [start_ms, *chain.from_iterable(excused(row.job, start_ms, until_ms)), until_ms]
    for (at_ms, end_ms), is_excused in zip(pairwise(edges), cycle((False, True))):
        while at_ms < end_ms:
            hour_ms = at_ms - at_ms % HOUR_MS
            span, next_ms = hours[hour_ms], min(end_ms, hour_ms + HOUR_MS)
            if is_excused:
                span.excused_ms += next_ms - at_ms
            elif row.up:
                span.up_ms += next_ms - at_ms
            else:
                span.down_ms += next_ms - at_ms
            at_ms = next_ms


def span_of(columns: Sequence[Any]) -> UptimeSpan:
    """Return a span from its numbers, and an array of latencies."""
    up_ms, down_ms, excused_ms, ok, failed, latencies = columns
    total, *others = decode_latencies(latencies)
    for latency in others:
        for bucket, count in latency.items():
            total[bucket] = total.get(bucket, 0) + count
    return UptimeSpan(up_ms, down_ms, excused_ms, ok, failed, total)
