"""Store records in SQLite, and the hashes of seen items."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from spyweb.errors import StoreError
from spyweb.model import JobId
from spyweb.store.model.records import FirstCycle, NewRecord, Record, RecordFilter, RecordPage
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import StorePart, on_questions_after_writes, on_writer

LATEST_NS = (1 << 63) - 1  # rev_ts counts down from here
NS_IN_MS = 1_000_000
STEP_NS = 1_000  # between records, so that a reader whose numbers are doubles tells them apart
TOUCH_MS = 24 * 3_600_000  # how old `last_ms` may get, so that a page without anything new rarely causes a write
SEARCHED = 2_000  # records that one page of a search reads, so that other questions get their turn
ASKED_AT_ONCE = 32  # hashes looked up in one statement

COLUMNS = "rev_ts, job, hash, url, fields, matches, is_owed, old"
ALL = f"SELECT {COLUMNS} FROM record WHERE rev_ts > ? AND rev_ts <= ? ORDER BY rev_ts LIMIT ?"
OF_JOB = f"""
    SELECT {COLUMNS} FROM record INDEXED BY record_of_job
    WHERE job = ? AND rev_ts > ? AND rev_ts <= ? ORDER BY rev_ts LIMIT ?
"""
COUNTS = "SELECT job, count(*) FROM record INDEXED BY record_of_job GROUP BY job"
OWED = f"""
    SELECT {COLUMNS} FROM record INDEXED BY record_owed WHERE job = ? AND is_owed ORDER BY rev_ts DESC LIMIT ?
"""
ADD = f"INSERT INTO record ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
NOTE_ANNOUNCED = "UPDATE record SET is_owed = 0 WHERE rev_ts = ?"
SEEN = f"SELECT hash, last_ms, tracked FROM seen WHERE job = ? AND hash IN ({', '.join('?' * ASKED_AT_ONCE)})"
SEE = """
    INSERT INTO seen (job, hash, first_ms, last_ms, tracked) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (job, hash) DO UPDATE SET last_ms = excluded.last_ms, tracked = excluded.tracked
"""
UNDER_WAY = {"first cycle": ""}  # as the tracked fields of an address, until its first cycle is stored

FIRST_BEYOND = "SELECT rev_ts FROM record INDEXED BY record_of_job WHERE job = ? ORDER BY rev_ts LIMIT 1 OFFSET ?"
OUTDATED = """
    SELECT rev_ts FROM record INDEXED BY record_of_job
    WHERE job = ?1 AND rev_ts >= min(?2, ?3) AND (rev_ts >= ?3 OR is_owed = 0) LIMIT ?4
"""
UNSEEN = "SELECT job, hash, CAST(?1 AS bigint) FROM seen WHERE last_ms < ?1 LIMIT ?2"
# Not of an item that has come back meanwhile.
FORGET = "DELETE FROM seen WHERE job = ? AND hash = ? AND last_ms < ?"

# Hashes that both have seen stay with the new job.
MOVE_SEEN = """
    UPDATE seen SET job = :new
    WHERE job = :old AND NOT EXISTS (SELECT 1 FROM seen AS other WHERE other.job = :new AND other.hash = seen.hash)
"""

encode = msgspec.json.encode
decode_texts = msgspec.json.Decoder(dict[str, str]).decode


class Records(StorePart):
    """The records of every job, and the hashes of all items that it has seen, even if their records are pruned."""

    @on_writer(OpKind.SEVERAL)
    def add(
        self,
        connection: sqlite3.Connection,
        job: JobId,
        items: Sequence[NewRecord],
        *,
        owed: bool = False,
        first: FirstCycle | None = None,
    ) -> list[Record | None]:
        """Record the items that are new or have changed, in one transaction and in this order.

        Return the record of each item, or None if its hash was seen before, in the store or among the items before it,
        and its tracked fields are those seen last.  With `owed` the records are to be announced: they stay pending,
        even over a crash, until Outbox.add settles them; `first` names an address whose first cycle leaves none
        pending.  Raises StoreError, and records nothing, for text that is not valid Unicode.
        """
        now_ms = self._clock.now_ms()
        known = find_seen(connection, job, [item.hash for item in items])
        former = (item.former_hash for item in items if item.former_hash and item.hash not in known)
        known |= find_seen(connection, job, former)
        stale = [(now_ms, job, item_hash) for item_hash, seen in known.items() if seen.last_ms <= now_ms - TOUCH_MS]
        connection.executemany("UPDATE seen SET last_ms = ? WHERE job = ? AND hash = ?", stale)
        number_known = sum(item.hash in known or item.former_hash in known for item in items)
        if first is not None and is_first(connection, job, first, now_ms, is_known=0 < len(items) <= 2 * number_known):
            owed = False
        moments: Iterator[int] | None = None
        added: list[Record | None] = []
        for item in items:
            old = learn(connection, job, item, known, now_ms)
            if old is None:
                added.append(None)
                continue
            if item.found_ns is None:
                moments = moments or free_moments(connection, now_ms)
                moment = next(moments)
            else:
                moment, moments = free_moment(connection, item.found_ns), None
            added.append(insert(connection, job, item, moment, old=old, is_pending=owed))
        return added

    @on_questions_after_writes
    def owed(self, connection: sqlite3.Connection, job: JobId, limit: int) -> list[Record]:
        """Return the records that have not been announced yet, oldest first."""
        return [read(row) for row in connection.execute(OWED, (job, limit))]

    @on_writer(OpKind.SEVERAL)
    def move(self, connection: sqlite3.Connection, old: JobId, new: JobId) -> int:
        """Give a renamed job its records and seen hashes; return how many records.  Doing so twice is harmless."""
        if old == new:
            return 0
        names = {"old": old, "new": new}
        connection.execute(MOVE_SEEN, names)
        connection.execute("DELETE FROM seen WHERE job = :old", names)
        return connection.execute("UPDATE record SET job = :new WHERE job = :old", names).rowcount

    @on_questions_after_writes
    def list(
        self, connection: sqlite3.Connection, job: JobId | None = None, *, limit: int = 30, before_ns: int | None = None
    ) -> list[Record]:
        """Return records of one job, or of all, newest first."""
        return [read(row) for row in select(connection, job, None, before_ns, limit)]

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
            record = read(row)
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


class SeenItem(NamedTuple):
    """When an item was seen last, and its tracked fields."""

    last_ms: int
    tracked: Mapping[str, str] | None


def find_seen(connection: sqlite3.Connection, job: JobId, hashes: Iterable[bytes]) -> dict[bytes, SeenItem]:
    """Return those of the hashes that were seen."""
    found: dict[bytes, SeenItem] = {}
    left = iter(hashes)
    while asked := list(islice(left, ASKED_AT_ONCE)):
        filled = asked + asked[-1:] * (ASKED_AT_ONCE - len(asked))  # one statement for any number
        for item_hash, last_ms, tracked in connection.execute(SEEN, (job, *filled)):
            found[item_hash] = SeenItem(last_ms, tracked and decode_texts(tracked))
    return found


def learn(
    connection: sqlite3.Connection, job: JobId, item: NewRecord, known: dict[bytes, SeenItem], now_ms: int
) -> Mapping[str, str] | None:
    """Note that an item was seen; return its tracked fields before they changed, empty if it is new, None otherwise."""
    seen = known.get(item.hash) or known.get(item.former_hash)
    if seen is not None and item.hash in known and item.tracked in (None, seen.tracked):
        return None
    first_ms = now_ms if item.found_ns is None else min(now_ms, item.found_ns // NS_IN_MS)
    tracked = None if item.tracked is None else to_text(dict(item.tracked))
    connection.execute(SEE, (job, item.hash, first_ms, now_ms, tracked))
    known[item.hash] = SeenItem(now_ms, item.tracked)
    if seen is None:
        return {}
    before, after = seen.tracked or {}, item.tracked or {}
    return {name: before[name] for name, text in after.items() if before.get(name, text) != text} or None


def is_first(connection: sqlite3.Connection, job: JobId, first: FirstCycle, now_ms: int, *, is_known: bool) -> bool:
    """Return whether this is an address's first cycle, which may take several calls of `add`, and note it.

    An address of which most items are known was not silent before; a few may be on the pages of other addresses too.
    """
    seen = find_seen(connection, job, [first.hash]).get(first.hash)
    is_silent = not is_known if seen is None else seen.tracked == UNDER_WAY
    if seen is None or is_silent or seen.last_ms <= now_ms - TOUCH_MS:
        state = to_text(UNDER_WAY) if is_silent and not first.is_last else None
        connection.execute(SEE, (job, first.hash, now_ms, now_ms, state))
    return is_silent


def insert(
    connection: sqlite3.Connection,
    job: JobId,
    item: NewRecord,
    moment: int,
    *,
    old: Mapping[str, str],
    is_pending: bool,
) -> Record:
    fields, matches = to_text(dict(item.fields)), to_text(list(item.matches))
    before = to_text(old) if old else None
    row = (LATEST_NS - moment, job, item.hash, item.url, fields, matches, is_pending, before)
    connection.execute(ADD, row)
    return read(row)


def free_moment(connection: sqlite3.Connection, moment: int) -> int:
    """Return this timestamp, or the next that no record has."""
    while connection.execute("SELECT 1 FROM record WHERE rev_ts = ?", (LATEST_NS - moment,)).fetchone():
        moment += STEP_NS
    return moment


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


def read(row: Sequence[Any]) -> Record:
    rev_ts, job, item_hash, url, fields, matches, is_pending, old = row
    return Record(
        timestamp_ns=LATEST_NS - rev_ts,
        job=JobId(job),
        hash=item_hash,
        fields=decode_texts(fields),
        matches=msgspec.json.decode(matches, type=tuple[str, ...]),
        url=url,
        old=decode_texts(old) if old else {},
        is_pending=bool(is_pending),
    )
