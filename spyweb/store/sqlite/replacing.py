"""Putting many values in a row, without reading what is there.  On a connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from spyweb.store.encoding import encode
from spyweb.store.protocol import Put, Replacement
from spyweb.store.sqlite.bulk import SIZES, Bulk, Wide
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.recording import change

# Fails, and is undone, where an entry has expired: what is written over it comes last in the order of creation.
PUT_VALUES = Wide(
    """
    INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms)
    SELECT column1, column2, column3, column4, column5, 1, column6, column6 FROM (VALUES {rows})
    WHERE column2 IS NOT NULL
    ON CONFLICT (namespace, key) DO UPDATE SET
        type = excluded.type, value = excluded.value, expires_ms = excluded.expires_ms,
        version = CASE WHEN expires_ms <= excluded.updated_ms THEN NULL ELSE version + 1 END,
        updated_ms = excluded.updated_ms
    """,
    columns=6,
)

Cells = tuple[object, ...]


def replace_many(connection: sqlite3.Connection, several: Sequence[tuple[EntryContext, Replacement]]) -> list[object]:
    """Raises what one of them raises, and sqlite3.IntegrityError where an entry has expired."""
    rows: list[Cells] = []
    results: list[object] = []
    for context, replacement in several:
        decision = replacement.decide()
        results.append(decision.result)
        if isinstance(decision, Put):
            rows.append(cells_of(context, decision))
    PUT_VALUES.write(connection, rows)
    return results


def cells_of(context: EntryContext, put: Put) -> Cells:
    kind, column = encode(put.value)
    return context.namespace, context.key, kind, column, put.expires_ms, context.now_ms


replace = Bulk(change, replace_many, at_once=SIZES[-1])  # one by itself is as quick with a look
