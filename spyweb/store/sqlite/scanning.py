"""Query many entries, and past versions.  Runs on the thread of a connection.

A cursor that may not be read to its end is closed explicitly: as long as it is open, everything that this connection
reads is as it was when the cursor was opened, and an error raised meanwhile would keep it open as long as the error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice, starmap
from sys import maxsize
from typing import Any, NamedTuple, TypeVar

import msgspec

from spyweb.errors import TooLarge
from spyweb.model import MIB
from spyweb.store.encryption import Codec
from spyweb.store.model.entries import Entry, Order, PortableEntry
from spyweb.store.patterns import next_prefix
from spyweb.store.sqlite.changes import EntryContext, Row, entry_of, is_live
from spyweb.store.sqlite.entries import COLUMNS, find_entry, find_row

LIVE = "(expires_ms IS NULL OR expires_ms > :now_ms)"
FROM_LEAST = f"FROM entry WHERE namespace = :namespace AND key >= :least AND {LIVE}"
WITHIN_PREFIX = f"{FROM_LEAST} AND key < :beyond"
ROW = f"SELECT key, {COLUMNS} FROM entry WHERE rowid = ?"
PAGE = f"""
    SELECT namespace, key, {COLUMNS} FROM entry
    WHERE rowid > :after AND {LIVE}
        AND (CAST(:namespaces AS text) IS NULL OR namespace IN (SELECT value FROM json_each(:namespaces)))
    ORDER BY rowid LIMIT :limit
"""
PAST_COLUMNS = "type, value, NULL, version, created_ms, updated_ms"
HISTORY = f"SELECT {PAST_COLUMNS} FROM past WHERE namespace = ? AND key = ? ORDER BY version DESC LIMIT ?"
PAST_VERSION = f"SELECT {PAST_COLUMNS} FROM past WHERE namespace = ? AND key = ? AND version = ?"

ITEM_COST = 64  # bytes that an item of an answer takes at least, wherever it is put
PAGE_ROWS = 500
PAGE_BYTES = 4 * MIB  # of values: a page ends with the one that reaches it

T = TypeVar("T")
Keyed = Iterator[tuple[bytes, Entry]]
KeyedCells = tuple[Any, ...]
Found = tuple[str, bytes, Row]  # namespace, key


class KeyRange(NamedTuple):
    """The live entries of a namespace whose keys have this prefix, from the key `least` on."""

    namespace: str
    prefix: bytes
    now_ms: int
    least: bytes = b""


def streaming(connection: sqlite3.Connection) -> Callable[[str, dict[str, Any]], sqlite3.Cursor] | None:
    """Return how many rows are asked for where the answer to `execute` is all of them: on PostgreSQL."""
    return getattr(connection, "stream", None)


def select(connection: sqlite3.Connection, columns: str, key_range: KeyRange, ending: str = "") -> sqlite3.Cursor:
    beyond = next_prefix(key_range.prefix)
    source = FROM_LEAST if beyond is None else WITHIN_PREFIX
    named = key_range._asdict() | {"least": max(key_range.prefix, key_range.least), "beyond": beyond}
    execute = streaming(connection) or connection.execute
    return execute(f"SELECT {columns} {source} {ending}", named)


def gather(
    connection: sqlite3.Connection,
    codec: Codec,
    key_range: KeyRange,
    into: Callable[[Keyed], T],
    order: Order,
    largest: int | None,
) -> T:
    found: sqlite3.Cursor | Generator[KeyedCells]
    if order is Order.CREATED and not streaming(connection):
        found = by_creation(connection, key_range)
    else:
        found = select(connection, f"key, {COLUMNS}", key_range, f"ORDER BY {'key' if order is Order.KEY else 'rowid'}")
    with closing(found) as rows:
        found_rows = ((key, Row(*row)) for key, *row in rows)
        keyed = within(largest, found_rows, lambda each: len(each[0]) + size_of_value(each[1]))
        return into((key, entry_of(codec, key_range.namespace, key, row)) for key, row in keyed)


def by_creation(connection: sqlite3.Connection, key_range: KeyRange) -> Generator[KeyedCells]:
    """Yield rows by creation, sorting row ids only: the values together may not fit into memory.  One snapshot."""
    with closing(select(connection, "rowid", key_range, "ORDER BY rowid")) as numbers:
        for numbered in numbers:
            yield connection.execute(ROW, numbered).fetchone()


def find_page(
    connection: sqlite3.Connection, codec: Codec, namespaces: Sequence[str] | None, after: int, now_ms: int
) -> list[tuple[PortableEntry, int]]:
    """Return the next entries in the order of creation, each with its row's number; none at the end."""
    listed = None if namespaces is None else msgspec.json.encode(namespaces).decode()
    asked = {"namespaces": listed, "after": after, "now_ms": now_ms, "limit": PAGE_ROWS}
    found: list[Found] = []
    size = 0
    with closing((streaming(connection) or connection.execute)(PAGE, asked)) as rows:
        for namespace, key, *row in rows:
            found.append((namespace, key, Row(*row)))
            size += size_of_value(found[-1][2])
            if size >= PAGE_BYTES:
                break
    return [
        (PortableEntry(namespace=name, key=key, entry=entry_of(codec, name, key, row)), row.rowid)
        for name, key, row in found
    ]


def find_history(
    connection: sqlite3.Connection, context: EntryContext, limit: int | None, largest: int | None
) -> list[Entry]:
    """Return the versions of the context's entry, newest first."""
    live = find_row(connection, context.namespace, context.key)
    asked = (context.namespace, context.key, maxsize if limit is None else limit)
    with closing(connection.execute(HISTORY, asked)) as past:
        rows = chain([live] if live and is_live(live, context.now_ms) else [], starmap(Row, past))
        chosen = within(largest, islice(rows, limit), size_of_value)
        return [entry_of(context.codec, context.namespace, context.key, row) for row in chosen]


def find_version(connection: sqlite3.Connection, context: EntryContext, version: int) -> Entry | None:
    live = find_entry(connection, context)
    if live and live.version == version:
        return live
    row = connection.execute(PAST_VERSION, (context.namespace, context.key, version)).fetchone()
    return entry_of(context.codec, context.namespace, context.key, Row(*row)) if row else None


def within(largest: int | None, items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[T]:
    """Yield the items.  Raises TooLarge once their total exceeds `largest`; None is no limit."""
    if largest is None:
        yield from items
        return
    left = largest
    for item in items:
        left -= ITEM_COST + size_of(item)
        if left < 0:
            raise TooLarge(f"the answer would be larger than {largest / MIB:.3g} MB")
        yield item


def size_of_value(row: Row) -> int:
    return len(row.column) if isinstance(row.column, bytes | str) else 0
