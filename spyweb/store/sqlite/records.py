"""Store records in SQLite, and the hashes of seen items."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from spyweb.errors import StoreError
from spyweb.model import JobId
from spyweb.store.model.records import NewRecord, Record, RecordFilter, RecordPage
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import StorePart, on_questions_after_writes, on_writer

LATEST_NS = (1 << 63) - 1  # rev_ts counts down from here
NS_IN_MS = 1_000_000
STEP_NS = 1_000  # between records, so that a reader whose numbers are doubles tells them apart
TOUCH_MS = 24 * 3_600_000  # how old `last_ms` may get, so that a page without anything new rarely causes a write
SEARCHED = 2_000  # records that one page of a search reads, so that other questions get their turn
ASKED_AT_ONCE = 32  # hashes looked up in one statement

COLUMNS = "rev_ts, job, hash, url, fields, matches"
ALL = f"SELECT {COLUMNS} FROM record WHERE rev_ts > ? AND rev_ts <= ? ORDER BY rev_ts LIMIT ?"
OF_JOB = f"""
    SELECT {COLUMNS} FROM record INDEXED BY record_of_job
    WHERE job = ? AND rev_ts > ? AND rev_ts <= ? ORDER BY rev_ts LIMIT ?
"""
COUNTS = "SELECT job, count(*) FROM record INDEXED BY record_of_job GROUP BY job"
OWED = f"""
    SELECT {COLUMNS} FROM record INDEXED BY record_owed WHERE job = ? AND is_owed ORDER BY rev_ts DESC LIMIT ?
"""
ADD = f"INSERT INTO record ({COLUMNS}, is_owed) VALUES (?, ?, ?, ?, ?, ?, ?)"
NOTE_ANNOUNCED = "UPDATE record SET is_owed = 0 WHERE rev_ts = ?"
SEEN = f"SELECT hash, last_ms FROM seen WHERE job = ? AND hash IN ({', '.join('?' * ASKED_AT_ONCE)})"
SEE = "INSERT INTO seen (job, hash, first_ms, last_ms) VALUES (?, ?, ?, ?)"

FIRST_BEYOND = "SELECT rev_ts FROM record INDEXED BY record_of_job WHERE job = ? ORDER BY rev_ts LIMIT 1 OFFSET ?"
OUTDATED = """
    SELECT rev_ts FROM record INDEXED BY record_of_job
    WHERE job = ?1 AND rev_ts >= min(?2, ?3) AND (rev_ts >= ?3 OR NOT is_owed) LIMIT ?4
"""
UNSEEN = "SELECT job, hash, ?1 FROM seen WHERE last_ms < ?1 LIMIT ?2"
# Not of an item that has come back meanwhile.
FORGET = "DELETE FROM seen WHERE job = ? AND hash = ? AND last_ms < ?"

# Hashes that both have seen stay with the new job.
MOVE_SEEN = ("UPDATE OR IGNORE seen SET job = :new WHERE job = :old", "DELETE FROM seen WHERE job = :old")

encode = msgspec.json.encode


class Records(StorePart):
    """The records of every job, and the hashes of all items that it has seen, even if their records are pruned."""

    @on_writer(OpKind.SEVERAL)
    def add(
        self, connection: sqlite3.Connection, job: JobId, items: Sequence[NewRecord], *, owed: bool = False
    ) -> list[int | None]:
        """Record those items that are new, in one transaction and in this order.

        Return for each item the `timestamp_ns` of its record, or None if its hash was seen before, in the store or
        among the items before it.  With `owed` the new records are to be announced: each is marked, also over a crash,
        until Outbox.add settles it.  Raises StoreError, and records nothing, for text that is not valid Unicode.
        """
        now_ms = self._clock.now_ms()
        known = find_seen(connection, job, [item.hash for item in items])
        stale = [(now_ms, job, item_hash) for item_hash, last_ms in known.items() if last_ms <= now_ms - TOUCH_MS]
        connection.executemany("UPDATE seen SET last_ms = ? WHERE job = ? AND hash = ?", stale)
        moments: Iterator[int] | None = None
        added: list[int | None] = []
        for item in items:
            if item.hash in known:
                added.append(None)
                continue
            known[item.hash] = now_ms
            if item.found_ns is None:
                moments = moments or free_moments(connection, now_ms)
                moment = next(moments)
            else:
                moment, moments = item.found_ns, None
                while connection.execute("SELECT 1 FROM record WHERE rev_ts = ?", (LATEST_NS - moment,)).fetchone():
                    moment += STEP_NS  # to the next that is free
            connection.execute(SEE, (job, item.hash, min(now_ms, moment // NS_IN_MS), now_ms))
            fields, matches = to_text(dict(item.fields)), to_text(list(item.matches))
            connection.execute(ADD, (LATEST_NS - moment, job, item.hash, item.url, fields, matches, owed))
            added.append(moment)
        return added

    @on_questions_after_writes
    def owed(self, connection: sqlite3.Connection, job: JobId, limit: int) -> list[Record]:
        """Return the records that have not been announced yet, oldest first."""
        return [read(*row) for row in connection.execute(OWED, (job, limit))]

    @on_writer(OpKind.SEVERAL)
    def move(self, connection: sqlite3.Connection, old: JobId, new: JobId) -> int:
        """Give a renamed job its records and seen hashes; return how many records.  Doing so twice is harmless."""
        if old == new:
            return 0
        names = {"old": old, "new": new}
        for statement in MOVE_SEEN:
            connection.execute(statement, names)
        return connection.execute("UPDATE record SET job = :new WHERE job = :old", names).rowcount

    @on_questions_after_writes
    def list(
        self, connection: sqlite3.Connection, job: JobId | None = None, *, limit: int = 30, before_ns: int | None = None
    ) -> list[Record]:
        """Return records of one job, or of all, newest first."""
        return [read(*row) for row in select(connection, job, None, before_ns, limit)]

    @on_questions_after_writes
    def search(
        self, connection: sqlite3.Connection, wanted: RecordFilter, *, limit: int, before_ns: int | None = None
    ) -> RecordPage:
        """Return records that match, newest first.

        A page may hold fewer than there are, even none: then a part of the records was searched, and `before_ns`
        leads on.
        """
        found: list[Record] = []
        looked_at, last = 0, None
        for row in select(connection, wanted.job, wanted.since_ns, before_ns, SEARCHED):
            looked_at, last = looked_at + 1, row[0]
            record = read(*row)
            if wanted.matches(record):
                found.append(record)
                if len(found) >= limit:
                    return RecordPage(records=found, before_ns=record.timestamp_ns)
        return RecordPage(records=found, before_ns=LATEST_NS - last if last and looked_at == SEARCHED else None)

    @on_questions_after_writes
    def counts(self, connection: sqlite3.Connection) -> Mapping[JobId, int]:
        """Return how many records each job has that has any."""
        return {JobId(job): number for job, number in connection.execute(COUNTS)}

    async def prune(self, *, keep: int, older_than_ms: int | None, unseen_since_ms: int) -> int:
        """Delete records from before this moment, and announced ones beyond `keep` per job; return how many.

        Hashes stay known unless no item has had them since `unseen_since_ms`.  Works in slices, so that no write waits
        for long.
        """

        def outdated(connection: sqlite3.Connection, job: str, limit: int) -> list[tuple[int]]:
            beyond = connection.execute(FIRST_BEYOND, (job, keep)).fetchone()
            too_many = beyond[0] if beyond else LATEST_NS
            too_old = LATEST_NS if older_than_ms is None else LATEST_NS - older_than_ms * NS_IN_MS + 1
            return connection.execute(OUTDATED, (job, too_many, too_old, limit)).fetchall()

        await self._prune_older(UNSEEN, unseen_since_ms, FORGET)
        return await self._prune_jobs("record", outdated, "DELETE FROM record WHERE rev_ts = ?")


def select(
    connection: sqlite3.Connection, job: JobId | None, since_ns: int | None, before_ns: int | None, limit: int
) -> sqlite3.Cursor:
    """Select records of one job, or of all, newest first."""
    after = -1 if before_ns is None else LATEST_NS - before_ns
    until = LATEST_NS if since_ns is None else LATEST_NS - since_ns
    if job is None:
        return connection.execute(ALL, (after, until, max(limit, 0)))
    return connection.execute(OF_JOB, (job, after, until, max(limit, 0)))


def find_seen(connection: sqlite3.Connection, job: JobId, hashes: Iterable[bytes]) -> dict[bytes, int]:
    """Return those of the hashes that were seen, each with the last time."""
    found: dict[bytes, int] = {}
    left = iter(hashes)
    while asked := list(islice(left, ASKED_AT_ONCE)):
        filled = asked + asked[-1:] * (ASKED_AT_ONCE - len(asked))  # one statement for any number
        found.update(connection.execute(SEEN, (job, *filled)))
    return found


def free_moments(connection: sqlite3.Connection, now_ms: int) -> Iterator[int]:
    """Yield timestamps for new records: now, but always after the newest, even if the clock was set back."""
    newest = connection.execute("SELECT min(rev_ts) FROM record").fetchone()[0]
    moment = now_ms * NS_IN_MS
    if newest is not None:
        moment = max(moment, LATEST_NS - newest + STEP_NS)
    while True:
        yield moment
        moment += STEP_NS


def to_text(value: Mapping[str, str] | Sequence[str]) -> str:
    try:
        return encode(value).decode()
    except UnicodeEncodeError as error:
        raise StoreError("a record holds text that is no Unicode") from error


def read(rev_ts: int, job: str, item_hash: bytes, url: str, fields: str, matches: str) -> Record:
    return Record(
        timestamp_ns=LATEST_NS - rev_ts,
        job=JobId(job),
        hash=item_hash,
        fields=msgspec.json.decode(fields, type=dict[str, str]),
        matches=msgspec.json.decode(matches, type=tuple[str, ...]),
        url=url,
    )
