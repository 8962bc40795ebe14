"""Read the databases of other programs: what sloth-runner, and what SpyWeb kept in SQLite.

The files are only read.  A layout is recognised by its tables and columns, not by a version.  A row that can't be read
raises Refused with its key: an import is everything or nothing.

SpyWeb's layout: `lua_user (key, value)`, `records (job_id, rev_ts, json)`, `seen (hash)`, and the tables that scripts
have made.  The hashes in `seen` are computed in another way than here, so the seen items are taken from the records:
SpyWeb keeps one of each item.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from spyweb.errors import Refused
from spyweb.files import open_regular
from spyweb.model import JobId, Value
from spyweb.store.access import make_private
from spyweb.store.interchange.value_json import decode_json, number_of
from spyweb.store.model.entries import GLOBAL, Entry, PortableEntry, job_namespace
from spyweb.store.model.records import NewRecord
from spyweb.store.sqlite.records import LATEST_NS

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
    live = [each for each in latest.values() if each.entry.expires_ms is None or each.entry.expires_ms > now_ms]
    return ForeignEntries(items=tuple(live), expired=len(latest) - len(live))


# -- sloth-runner


def sloth_entry(path: Path, row: Row, namespace: str, now_ms: int) -> PortableEntry:
    key = row["key"] or b""
    kind = (row.get("type") or b"string").decode("utf-8", "replace")  # without the column everything is text
    try:
        if kind not in SLOTH_TYPES:
            raise ValueError(f"is of an unknown type, {kind[:40]!r}")
        value = SLOTH_TYPES[kind](row["value"] or b"")
        expires_ms, created_ms, updated_ms = (moment_of(row.get(name)) for name in MOMENTS)
    except ValueError as error:
        raise Refused(f"{path}: key {shown(key)}: {error}") from error
    entry = Entry(
        value=value, version=1, created_ms=created_ms or now_ms, updated_ms=updated_ms or now_ms, expires_ms=expires_ms
    )
    return PortableEntry(namespace=namespace, key=key, entry=entry)


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


# -- SpyWeb


DATA_FILE = "data"  # its name in a project, unless SpyWeb was given another
KEYS, RECORDS, SEEN = "lua_user", "records", "seen"
SQLITE_MAGIC, REDB_MAGIC = b"SQLite format 3\0", b"redb\x1a\n\xa9\r\n"
RECORD_KEYS = frozenset({"timestamp", "hash", "match_key", "page_url", "job_id", "date_time", "fields"})  # of the JSON
BUSY_MS = 5_000
TABLES = """
    SELECT name, sql FROM sqlite_master
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql NOT LIKE 'CREATE VIRTUAL%'
    ORDER BY rowid
"""
INDEXES = "SELECT sql FROM old.sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
EXISTS = "SELECT 1 FROM main.sqlite_master WHERE name = ?"


class OldProject(Struct, frozen=True, kw_only=True):
    """Everything in the database of a SpyWeb project that can be imported."""

    items: Sequence[PortableEntry]
    records: Mapping[JobId, Sequence[NewRecord]]  # oldest first, with no hash yet
    unreadable: int  # records that are not a JSON object with a time
    tables: Sequence[str]  # the scripts' own


def read_spyweb(path: Path, now_ms: int) -> OldProject:
    """Read a project: `<job id>:<key>` is a key of that job, a bare one belongs to all.

    Raises Refused if it is not SpyWeb's database.
    """
    with opened(path) as connection:
        if not {"key", "value"} <= columns_of(connection, KEYS):
            raise Refused(f"{path}: has no table {KEYS}, so it is not SpyWeb's SQLite database")
        items = [spyweb_entry(row, now_ms) for row in rows_of(connection, KEYS, ("key", "value"))]
        records, unreadable = read_records(connection)
        tables = [name for name, _ in tables_of(connection)]
    return OldProject(items=live_of(items, now_ms).items, records=records, unreadable=unreadable, tables=tables)


def spyweb_entry(row: Row, now_ms: int) -> PortableEntry:
    whole_key, value = row["key"] or b"", row["value"] or b""
    job, colon, key = whole_key.partition(b":")
    is_of_job = bool(colon) and is_job_id(job)
    return PortableEntry(
        namespace=job_namespace(JobId(job.decode())) if is_of_job else GLOBAL,
        key=key if is_of_job else whole_key,
        entry=Entry(value=value, version=1, created_ms=now_ms, updated_ms=now_ms),
    )


def is_job_id(text: bytes) -> bool:
    """Return whether SpyWeb would make such an id: lower-case letters and digits, with `_` for all else."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        return False
    return bool(name) and name == name.lower() and name.replace("_", "").isalnum()


def read_records(connection: sqlite3.Connection) -> tuple[dict[JobId, list[NewRecord]], int]:
    """Return the records of each job, oldest first, and how many could not be read."""
    found, unreadable = dict[JobId, list[NewRecord]](), 0
    if not {"job_id", "rev_ts", "json"} <= columns_of(connection, RECORDS):
        return found, unreadable
    for job, number, text in connection.execute(f"SELECT job_id, rev_ts, json FROM {RECORDS}"):
        record = read_record(number, text)
        if record is None or not isinstance(job, bytes):
            unreadable += 1
        else:
            found.setdefault(JobId(job.decode("utf-8", "replace")), []).append(record)
    for records in found.values():
        records.sort(key=lambda record: record.found_ns or 0)
    return found, unreadable


def read_record(number: object, text: object) -> NewRecord | None:
    """Read a record, whose fields are a nested object or members of the record; None if it can't be read."""
    try:
        plain = msgspec.json.decode(text, type=dict[str, object]) if isinstance(text, bytes) else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # Nanoseconds since 1970, or counted back from the largest number: until 2116 the smaller one is the moment.
    times = (each for each in (plain.get("timestamp"), number) if isinstance(each, int) and 0 < each < LATEST_NS)
    found_ns = next((min(each, LATEST_NS - each) for each in times), None)
    inner = plain.get("fields")
    fields = inner if isinstance(inner, dict) else {key: plain[key] for key in plain if key not in RECORD_KEYS}
    if found_ns is None or not fields:
        return None
    matches, url = plain.get("match_key"), plain.get("page_url")
    return NewRecord(
        hash=b"",
        fields={str(name): text_of(value) for name, value in fields.items()},
        matches=[text_of(word) for word in matches] if isinstance(matches, list) else [],
        url=url if isinstance(url, str) else "",
        found_ns=found_ns,
    )


def text_of(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def tables_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the scripts' own tables, each with the statement that creates it."""
    named = [(name.decode(), sql.decode()) for name, sql in connection.execute(TABLES)]
    return [(name, sql) for name, sql in named if name not in (KEYS, RECORDS, SEEN)]


def copy_tables(path: Path, user_db: Path) -> tuple[list[str], list[str]]:
    """Copy the scripts' own tables, with their indexes, into the scripts' own database here: all or none.

    Return the names of those that were copied, and of those that already exist and were left alone.
    """
    with opened(path) as connection:
        tables = tables_of(connection)
    if not tables:
        return [], []
    make_private(user_db.parent)
    try:
        with closing(sqlite3.connect(user_db, isolation_level=None, timeout=BUSY_MS / 1000)) as target:
            target.execute("PRAGMA journal_mode = WAL")
            target.execute("ATTACH ? AS old", (f"{path.absolute().as_uri()}?mode=ro",))
            return copy_each(target, tables)
    except sqlite3.Error as error:
        raise Refused(f"{path}: its tables can't be copied into {user_db.name}, and none was: {error}") from error


def copy_each(target: sqlite3.Connection, tables: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    copied, kept = [], []
    with target:  # which ends the transaction, by a rollback where an error ends this
        target.execute("BEGIN IMMEDIATE")
        for name, sql in tables:
            if target.execute(EXISTS, (name,)).fetchone():
                kept.append(name)
                continue
            target.execute(sql)
            found = target.execute(f"PRAGMA main.table_xinfo({quoted(name)})")
            columns = ", ".join(quoted(column) for _, column, *_, is_hidden in found if not is_hidden)  # not generated
            target.execute(f"INSERT INTO main.{quoted(name)} ({columns}) SELECT {columns} FROM old.{quoted(name)}")
            for (index,) in target.execute(INDEXES, (name,)).fetchall():
                target.execute(index)
            copied.append(name)
    return copied, kept


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def describe_data_file(path: Path) -> str:
    """Return what to do with the file `data` of a former SpyWeb project; empty if the file is not SpyWeb's."""
    try:
        with open_regular(path) as file:
            head = file.read(len(SQLITE_MAGIC))
    except OSError:
        return ""
    if head == SQLITE_MAGIC:
        with suppress(Refused), opened(path) as connection:
            if columns_of(connection, KEYS):
                return (
                    "SpyWeb's database, which is not used here: "
                    f"`spyweb state import --from spyweb {path.name}` brings what it holds"
                )
    if head.startswith(REDB_MAGIC):
        return (
            "SpyWeb's database of its default build, which only SpyWeb can read: "
            "docs/how-to/move-from-spyweb.md says how to bring its keys"
        )
    return ""
