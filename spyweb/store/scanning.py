"""Questions about many entries, and about past versions.  Runs on the thread of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from spyweb.store.changes import Desk, Row, entry_of
from spyweb.store.locks import find_all
from spyweb.store.patterns import Pattern, next_prefix
from spyweb.store.protocol import Alive, Entry, Item, Order, ValueStats
from spyweb.store.reading import find_entry
from spyweb.store.recording import COLUMNS
from spyweb.store.sealing import Codec

LIVE = "(expires_ms IS NULL OR expires_ms > :now)"
FROM_PREFIX = f"FROM entry WHERE namespace = :namespace AND key >= :least AND {LIVE}"
WITHIN_PREFIX = f"{FROM_PREFIX} AND key < :beyond"
ORDERS = {Order.KEY: "key", Order.CREATED: "rowid"}
# Leaps from namespace to namespace in the index instead of walking over every row.
NAMESPACES = f"""
    WITH RECURSIVE names (name) AS (
        SELECT min(namespace) FROM entry WHERE namespace >= :least
        UNION ALL SELECT (SELECT min(namespace) FROM entry WHERE namespace > name) FROM names WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL
        AND EXISTS (SELECT 1 FROM entry WHERE namespace = name AND {LIVE})
    ORDER BY name
"""
PAGE = f"""
    SELECT namespace, key, {COLUMNS} FROM entry
    WHERE rowid > :after AND {LIVE}
        AND (:namespaces IS NULL OR namespace IN (SELECT value FROM json_each(:namespaces)))
    ORDER BY rowid LIMIT :limit
"""
STATS = f"""
    SELECT
        count(*) FILTER (WHERE {LIVE}), count(*) FILTER (WHERE NOT {LIVE}),
        coalesce(sum(length(key) + coalesce(length(CAST(value AS BLOB)), 0)), 0),
        max(updated_ms) FILTER (WHERE {LIVE})
    FROM entry
"""
PAST_COLUMNS = "type, value, NULL, version, created_ms, updated_ms"
HISTORY = f"SELECT {PAST_COLUMNS} FROM past WHERE namespace = ? AND key = ? ORDER BY version DESC LIMIT ?"
PAST_VERSION = f"SELECT {PAST_COLUMNS} FROM past WHERE namespace = ? AND key = ? AND version = ?"

PAGE_ROWS = 500
NO_LIMIT = -1


def find_keys(connection: sqlite3.Connection, namespace: str, pattern: Pattern, now_ms: int) -> list[bytes]:
    rows = select_prefix(connection, "key", namespace, pattern.prefix, now_ms, "ORDER BY key")
    return [key for (key,) in rows if pattern.matches(key)]


def find_items(
    connection: sqlite3.Connection, desk: Desk, limit: int | None, order: Order
) -> list[tuple[bytes, Entry]]:
    """The desk's key is the prefix."""
    ending = f"ORDER BY {ORDERS[order]} LIMIT {NO_LIMIT if limit is None else max(limit, 0):d}"
    rows = select_prefix(connection, f"key, {COLUMNS}", desk.namespace, desk.key, desk.now_ms, ending)
    return [(key, entry_of(desk.codec, desk.namespace, key, Row(*row))) for key, *row in rows]


def select_prefix(
    connection: sqlite3.Connection,
    columns: str,
    namespace: str,
    prefix: bytes,
    now_ms: int,
    ending: str = "",
    *,
    least: bytes | None = None,
) -> sqlite3.Cursor:
    """The live entries of a namespace whose keys begin so; with `least`, which must begin so too, from that key on."""
    beyond = next_prefix(prefix)
    source = FROM_PREFIX if beyond is None else WITHIN_PREFIX
    return connection.execute(
        f"SELECT {columns} {source} {ending}",
        {"namespace": namespace, "least": prefix if least is None else least, "beyond": beyond, "now": now_ms},
    )


def find_namespaces(connection: sqlite3.Connection, prefix: str, now_ms: int) -> list[str]:
    rows = connection.execute(NAMESPACES, {"least": prefix, "now": now_ms})
    return [name for (name,) in rows if name.startswith(prefix)]


class Page(NamedTuple):
    items: Sequence[Item]
    after: int  # where the next page begins; 0: this is the last


def find_page(
    connection: sqlite3.Connection, codec: Codec, namespaces: Sequence[str] | None, after: int, now_ms: int
) -> Page:
    listed = None if namespaces is None else msgspec.json.encode(namespaces).decode()
    asked = {"namespaces": listed, "after": after, "now": now_ms, "limit": PAGE_ROWS}
    rows = [(namespace, key, Row(*row)) for namespace, key, *row in connection.execute(PAGE, asked)]
    items = [Item(namespace=name, key=key, entry=entry_of(codec, name, key, row)) for name, key, row in rows]
    return Page(items, rows[-1][2].rowid if len(rows) == PAGE_ROWS else 0)


def measure(connection: sqlite3.Connection, namespace: str | None, now_ms: int, alive: Alive) -> ValueStats:
    which = "" if namespace is None else "WHERE namespace = :namespace"
    counted = connection.execute(f"{STATS} {which}", {"now": now_ms, "namespace": namespace}).fetchone()
    total, expired, size_bytes, last_modified_ms = counted
    return ValueStats(
        total_keys=total,
        expired_keys=expired,
        size_bytes=size_bytes,
        last_modified_ms=last_modified_ms,
        active_locks=len(find_all(connection, now_ms, alive)),
    )


def find_history(connection: sqlite3.Connection, desk: Desk, limit: int | None) -> list[Entry]:
    live = find_entry(connection, desk)
    rows = connection.execute(HISTORY, (desk.namespace, desk.key, NO_LIMIT if limit is None else max(limit, 0)))
    past = [entry_of(desk.codec, desk.namespace, desk.key, Row(*row)) for row in rows]
    return [live, *past][:limit] if live else past


def find_version(connection: sqlite3.Connection, desk: Desk, version: int) -> Entry | None:
    live = find_entry(connection, desk)
    if live and live.version == version:
        return live
    row = connection.execute(PAST_VERSION, (desk.namespace, desk.key, version)).fetchone()
    return entry_of(desk.codec, desk.namespace, desk.key, Row(*row)) if row else None
