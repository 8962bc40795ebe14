"""Read the databases of other programs, and turn what sloth-runner kept in SQLite into entries.

The files are only read.  Their layouts are told apart by their tables and columns, not by a version.  A row that can't
be read raises Refused with its key: what is imported is everything or nothing.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from spyweb.errors import Refused
from spyweb.model import Value
from spyweb.store.interchange.value_json import decode_json, number_of
from spyweb.store.model.entries import Entry, PortableEntry

SLOTH_TABLES = ("state_data", "state")  # of the documented module and of the later one; of both, the later wins
MOMENTS = ("expires_at", "created_at", "updated_at")

Row = Mapping[str, bytes | None]
Plain = object


class ForeignEntries(Struct, frozen=True, kw_only=True):
    """The entries found in another program's database."""

    items: tuple[PortableEntry, ...]
    expired: int  # rows that were left out because their moment had passed


def read_sloth(path: Path, namespace: str, now_ms: int) -> ForeignEntries:
    """Read the keys of sloth-runner into one namespace.  Locks are left out, since their holders do not run here."""
    with opened(path) as connection:
        layouts = [table for table in SLOTH_TABLES if {"key", "value"} <= columns_of(connection, table)]
        if not layouts:
            raise Refused(f"{path}: has no table of sloth-runner's state: neither {' nor '.join(SLOTH_TABLES)}")
        items = [
            sloth_entry(path, row, namespace, now_ms)
            for table in layouts
            for row in rows_of(connection, table, ("key", "value", "type", *MOMENTS))
        ]
    return live_of(items, now_ms)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise Refused(f"{path}: there is no such file")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = bytes
            yield connection
    except sqlite3.Error as error:
        raise Refused(f"{path}: can't be read as a SQLite database: {error}") from error


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Return the names of the table's columns; none if there is no such table."""
    return frozenset(row[1].decode() for row in connection.execute(f"PRAGMA table_info({table})"))


def rows_of(connection: sqlite3.Connection, table: str, wanted: tuple[str, ...]) -> Iterator[Row]:
    """Yield each row as bytes, with those of the wanted columns that the table has."""
    names = [name for name in wanted if name in columns_of(connection, table)]
    for row in connection.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid"):
        yield {name: as_bytes(value) for name, value in zip(names, row, strict=True)}


def as_bytes(value: bytes | int | float | None) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def live_of(items: list[PortableEntry], now_ms: int) -> ForeignEntries:
    """Keep the last entry of each key, unless it has expired."""
    latest = {(portable.namespace, portable.key): portable for portable in items}
    live = [
        portable
        for portable in latest.values()
        if portable.entry.expires_ms is None or portable.entry.expires_ms > now_ms
    ]
    return ForeignEntries(items=tuple(live), expired=len(latest) - len(live))


# -- sloth-runner


def sloth_entry(path: Path, row: Row, namespace: str, now_ms: int) -> PortableEntry:
    key = row["key"] or b""
    try:
        value = sloth_value(row)
        expires_ms, created_ms, updated_ms = (moment_of(row.get(name)) for name in MOMENTS)
    except ValueError as error:
        raise Refused(f"{path}: key {shown(key)}: {error}") from error
    entry = Entry(
        value=value,
        version=1,
        created_ms=created_ms or now_ms,
        updated_ms=updated_ms or now_ms,
        expires_ms=expires_ms,
    )
    return PortableEntry(namespace=namespace, key=key, entry=entry)


def sloth_value(row: Row) -> Value:
    """Return the value of a row; without a type column everything is text, as scripts there saw it."""
    text, kind = row["value"] or b"", (row.get("type") or b"string").decode("utf-8", "replace")
    reader = SLOTH_TYPES.get(kind)
    if reader is None:
        raise ValueError(f"is of an unknown type, {kind[:40]!r}")
    return reader(text)


def sloth_number(text: bytes) -> int | float:
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"is no number: {shown(text)}") from error
    if not math.isfinite(number):
        raise ValueError(f"is no number that can be kept: {shown(text)}")
    # Digits alone are read exactly: a float would round them.
    return number_of(int(text) if text.lstrip(b"+-").isdigit() else number)


def sloth_boolean(text: bytes) -> bool:
    if text not in (b"true", b"false"):
        raise ValueError(f"is neither true nor false: {shown(text)}")
    return text == b"true"


def sloth_table(text: bytes) -> Value:
    return from_json(decode_json(text))


SLOTH_TYPES: dict[str, Callable[[bytes], Value]] = {
    "string": bytes,
    "number": sloth_number,
    "boolean": sloth_boolean,
    "list": sloth_table,
    "table": sloth_table,
}


def from_json(plain: Plain) -> Value:
    """Return the value of plain JSON, in which nothing is escaped as in value_json; a null in a table is left out."""
    match plain:
        case str():
            return plain.encode()
        case bool():
            return plain
        case int() | float():
            return number_of(plain)
        case dict():
            return {key.encode(): from_json(item) for key, item in plain.items() if item is not None}
        case list():
            return [from_json(item) for item in plain if item is not None]
    raise ValueError("is null")


def moment_of(text: bytes | None) -> int | None:
    """Read `2026-01-02T03:04:05+02:00`, or `2026-01-02 03:04:05`, which SQLite means as UTC.

    A moment before 1970 means that it was never set, and becomes 0: Go's zero time is in the year 1.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError as error:
        raise ValueError(f"has a time that can't be read: {shown(text)}") from error
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(zoned.timestamp() * 1000))


def shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace")[:40])
