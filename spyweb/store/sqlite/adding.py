"""Counting: additions to entries that hold integers, one by one or many in a row.  On a connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from spyweb.store.encoding import LARGEST, SMALLEST, Type
from spyweb.store.protocol import Addition
from spyweb.store.sqlite.bulk import Bulk, Wide
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.pending_writes import Count, Place
from spyweb.store.sqlite.recording import change

INTEGER = Type.INTEGER.value
FIND_VALUE = "SELECT type, value, expires_ms, rowid FROM entry WHERE namespace = ? AND key = ?"
SET_VALUE = "UPDATE entry SET value = ?, version = version + 1, updated_ms = ? WHERE rowid = ?"
FIND_INTEGERS = Wide(
    f"""
    SELECT entry.namespace, entry.key, entry.rowid, entry.value, entry.version, entry.expires_ms
    FROM (VALUES {{rows}}) AS wanted CROSS JOIN entry
    ON entry.namespace = wanted.column1 AND entry.key = wanted.column2 AND entry.type = '{INTEGER}'
    """,
    columns=2,
)
# OR FAIL, since a batch that fails is rolled back anyway: to undo the statement alone, SQLite would first copy each
# page that it writes, and above 64 kB, as where 32 counters lie far apart, to a temporary file made for it.
SET_VALUES = Wide(
    """
    UPDATE OR FAIL entry SET value = new.column2, version = new.column3, updated_ms = new.column4
    FROM (VALUES {rows}) AS new WHERE entry.rowid = new.column1 AND entry.version = new.column5
    """,
    columns=5,
)

Asked = tuple[EntryContext, Addition, Count]


class Outdated(Exception):
    """An entry is not as it was known: a batch that had counted it was rolled back."""


def add_one(connection: sqlite3.Connection, context: EntryContext, addition: Addition, count: Count) -> object:
    """As a transform that leaves no trail; with two statements and nothing else where an integer stays one.

    One with RETURNING takes three times as long as both.
    """
    count.rowid = 0
    _, namespace, key, now_ms = context
    found = connection.execute(FIND_VALUE, (namespace, key)).fetchone()
    if found:
        kind, value, expires_ms, rowid = found
        if kind == INTEGER and (expires_ms is None or expires_ms > now_ms):
            total = value + addition.delta
            if SMALLEST <= total <= LARGEST:
                connection.execute(SET_VALUE, (total, now_ms, rowid))
                return addition.result(total)
    return change(connection, context, addition)


def add_many(connection: sqlite3.Connection, several: Sequence[Asked]) -> list[object]:
    """What is known of an entry is not read again.  Raises Outdated where it should have been."""
    counts = counts_of(several)
    read_counts(connection, counts)
    results: list[object] = []
    for context, addition, _ in several:
        _, namespace, key, now_ms = context
        count = counts[(namespace, key)]
        total = add_to(count, addition.delta, now_ms) if count.rowid else None
        if total is not None:
            results.append(addition.result(total))
        else:
            write_counts(connection, [count])
            results.append(attempt(connection, context, addition, count))
    write_counts(connection, counts.values())
    return results


def counts_of(several: Sequence[Asked]) -> dict[Place, Count]:
    """One for each entry: the older one, where a write was cancelled between two additions."""
    counts: dict[Place, Count] = {}
    for (_, namespace, key, _), _, count in several:
        counts.setdefault((namespace, key), count).times = 0
    return counts


def read_counts(connection: sqlite3.Connection, counts: Mapping[Place, Count]) -> None:
    unknown = [place for place, count in counts.items() if not count.rowid]
    if not unknown:
        return
    for namespace, key, *cells in FIND_INTEGERS.execute(connection, unknown):
        count = counts[(namespace, key)]
        count.rowid, count.value, count.version, count.expires_ms = cells


def add_to(count: Count, delta: int, now_ms: int) -> int | None:
    """The sum; None where the entry is no longer alive, or that would not fit."""
    total = count.value + delta
    if (count.expires_ms is not None and count.expires_ms <= now_ms) or not SMALLEST <= total <= LARGEST:
        return None
    count.value, count.updated_ms = total, now_ms
    count.version += 1
    count.times += 1
    return total


def attempt(connection: sqlite3.Connection, context: EntryContext, addition: Addition, count: Count) -> object:
    """What a rule raises is its own op's affair.  What SQLite raises is the batch's: it may be rolled back by now."""
    try:
        return add_one(connection, context, addition, count)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary of one op, as in a batch
        return error


def write_counts(connection: sqlite3.Connection, counts: Iterable[Count]) -> None:
    """Those with an expiry are known no more: whoever sweeps does not say which."""
    added = [count for count in counts if count.rowid and count.times]
    if not added:
        return
    rows = [(count.rowid, count.value, count.version, count.updated_ms, count.version - count.times) for count in added]
    if SET_VALUES.write(connection, rows) < len(rows):
        raise Outdated
    for count in added:
        count.times = 0
        if count.expires_ms is not None:
            count.rowid = 0


add = Bulk(add_one, add_many)
