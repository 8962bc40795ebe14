"""Decide what a transform does to an entry, without touching the store.

An expired entry is absent: a write over it makes a new entry, and those who watch for it hear that it expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from spyweb.model import ChangeKind
from spyweb.store.encoding import Cell, Column
from spyweb.store.encryption import Codec, Place
from spyweb.store.model.entries import Blind, Drop, Entry, Keep, Leave, Put, Replacement, Transform


class Row(NamedTuple):
    """An entry as it is stored: in SQLite, the columns of the table in this order."""

    type: str
    column: Column
    expires_ms: int | None
    version: int
    created_ms: int
    updated_ms: int
    rowid: int = 0  # in the order of creation; 0: not given yet


class ChangeNote(NamedTuple):
    """A change that watchers may want to hear of."""

    kind: ChangeKind
    old: Row | None
    new: Row | None


class Effect(Struct, frozen=True):
    """The changes that a decision asks for."""

    result: object
    changes: bool = False
    row: Row | None = None  # the row after the change; None: there is none
    replaced: Row | None = None  # the live row before the change
    notes: Sequence[ChangeNote] = ()


def is_live(row: Row, now_ms: int) -> bool:
    return row.expires_ms is None or row.expires_ms > now_ms


def entry_of(codec: Codec, namespace: str, key: bytes, row: Row) -> Entry:
    return Entry(
        value=codec.read(Place(namespace, key, row.version), Cell(row.type, row.column)),
        version=row.version,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        expires_ms=row.expires_ms,
    )


class EntryContext(NamedTuple):
    """The context of a decision: the entry that it is about, and the time."""

    codec: Codec
    namespace: str
    key: bytes
    now_ms: int


def decide(context: EntryContext, row: Row | None, change: Transform, last_version: int = 0) -> Effect:
    """Decide on a change; `last_version` is that of a deleted entry with a history."""
    live = row if row and is_live(row, context.now_ms) else None
    expired = (ChangeNote(ChangeKind.EXPIRED, row, None),) if row and not live else ()
    decision = decide_on(context, live, change)
    match decision:
        case Put():
            written = row_written(context, live, decision, row.version if row else last_version)
            kind = ChangeKind.UPDATED if live else ChangeKind.CREATED
            return Effect(decision.result, True, written, live, (*expired, ChangeNote(kind, live, written)))
        case Drop():
            is_announced = live or decision.always_tell
            deleted = (ChangeNote(ChangeKind.DELETED, live, None),) if is_announced else ()
            return Effect(decision.result, row is not None, None, live, (*expired, *deleted))
        case Leave():
            return Effect(decision.result)


def decide_on(context: EntryContext, live: Row | None, change: Transform) -> Put | Drop | Leave:
    """Decide without reading more than needed, so that a damaged value can be overwritten or deleted."""
    if isinstance(change, Replacement):
        return change.decide()
    if isinstance(change, Blind):
        return change.decide(live is not None)
    return change(entry_of(context.codec, context.namespace, context.key, live) if live else None)


def row_written(context: EntryContext, live: Row | None, put: Put, version: int) -> Row:
    cell = context.codec.write(Place(context.namespace, context.key, version + 1), put.value)
    kept = live.expires_ms if live else None
    return Row(
        type=cell.type,
        column=cell.column,
        expires_ms=kept if isinstance(put.expires_ms, Keep) else put.expires_ms,
        version=version + 1,
        created_ms=live.created_ms if live else context.now_ms,
        updated_ms=context.now_ms,
        rowid=live.rowid if live else 0,
    )
