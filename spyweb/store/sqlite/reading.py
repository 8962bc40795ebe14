"""Reading entries: one by one or many in a row.  On a connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from spyweb.store.protocol import Entry
from spyweb.store.sqlite.bulk import SIZES, Bulk, Wide
from spyweb.store.sqlite.changes import EntryContext, Row, entry_of, is_live
from spyweb.store.sqlite.recording import COLUMNS, find_row

FIND_MANY = Wide(
    f"""
    SELECT namespace, key, {COLUMNS} FROM (VALUES {{rows}}) AS wanted CROSS JOIN entry
    ON entry.namespace = wanted.column1 AND entry.key = wanted.column2
    """,
    columns=2,
)


def find_entry(connection: sqlite3.Connection, context: EntryContext) -> Entry | None:
    return live_entry(context, find_row(connection, context.namespace, context.key))


def find_entries(
    connection: sqlite3.Connection, several: Sequence[tuple[EntryContext]]
) -> list[Entry | Exception | None]:
    """In their order."""
    places = list({(context.namespace, context.key): None for (context,) in several})
    rows = {(namespace, key): Row(*cells) for namespace, key, *cells in FIND_MANY.execute(connection, places)}
    return [attempt(context, rows.get((context.namespace, context.key))) for (context,) in several]


def live_entry(context: EntryContext, row: Row | None) -> Entry | None:
    return (
        entry_of(context.codec, context.namespace, context.key, row) if row and is_live(row, context.now_ms) else None
    )


def attempt(context: EntryContext, row: Row | None) -> Entry | Exception | None:
    try:
        return live_entry(context, row)
    except Exception as error:  # noqa: BLE001 - the boundary of one op, as in a batch: its value can't be read
        return error


find = Bulk(find_entry, find_entries, at_once=SIZES[-1])
