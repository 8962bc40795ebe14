"""Stored values and locks as people and machines are shown them.

Frozen values that cross the socket as JSON and are read back into the same types, so that a command prints the same
whether a daemon answered or the database was read.  Keys, values and names of locks are in the form of
store/interchange/value_json.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from spyweb.model import ChangeKind, JobId, RunId
from spyweb.ops.rules.updates import MOST_OPS, UpdateError, UpdateKind
from spyweb.store.interchange.value_json import TypeName, from_plain, to_plain, type_of
from spyweb.store.model.entries import GLOBAL, ChangeEvent, Entry, Held, job_namespace
from spyweb.views.runs import copied

Plain = object
JOBS = job_namespace(JobId(""))  # the beginning of the namespaces of store_*


class EntryView(Struct, frozen=True, kw_only=True):
    namespace: str
    key: Plain
    value: Plain
    type: TypeName
    version: int
    created_ms: int
    updated_ms: int
    expires_ms: int | None = None


class LockView(Struct, frozen=True, kw_only=True):
    name: Plain
    holder: Plain
    run: RunId | None
    acquired_ms: int
    expires_ms: int
    lease_ms: int


class StateStats(Struct, frozen=True, kw_only=True):
    total_keys: int  # live
    expired_keys: int  # not yet removed
    active_locks: int
    size_bytes: int  # of keys and values
    db_size_bytes: int
    db_path: str
    backend: str
    last_modified_ms: int | None = None


class ChangeView(Struct, frozen=True, kw_only=True):
    """One change of a stored value, as it is watched."""

    namespace: str
    key: Plain
    kind: ChangeKind
    old: Plain  # null: there was none, or JSON null
    new: Plain
    version: int
    at_ms: int
    job: JobId | None = None
    run: RunId | None = None


class Imported(Struct, frozen=True, kw_only=True):
    """The outcome of an import, or of a dry run of it."""

    added: int
    replaced: int
    expired: int  # left out, because their moment has passed


class Moved(Struct, frozen=True, kw_only=True):
    """The entries and records that were moved to a renamed job."""

    moved: int  # entries
    records: int


class EntryFound(Struct, frozen=True, kw_only=True):
    """The entry under a key, if there is one."""

    entry: EntryView | None


class EntryWritten(Struct, frozen=True, kw_only=True):
    """The outcome of writing an entry: whether it is a new one, and its value before and after."""

    created: bool
    old_value: Plain  # null: there was none, or JSON null, or it is damaged
    new_value: Plain


class UpdateOp(Struct, frozen=True, kw_only=True):
    """One op of an update, as `state.update` of a script takes it."""

    type: UpdateKind
    path: str | list[str] = ""  # empty: the value itself; a list of names for merge and append
    value: Plain = None
    by: int = 0


class EntryUpdate(Struct, frozen=True, kw_only=True):
    """The ops of an update, which are done one after another."""

    ops: Annotated[list[UpdateOp], Meta(max_length=MOST_OPS)]


class EntryUpdated(Struct, frozen=True, kw_only=True):
    """A value before and after an update."""

    old_value: Plain  # null: there was none, or JSON null
    new_value: Plain
    errors: Sequence[UpdateError] = ()


class NamespaceView(Struct, frozen=True, kw_only=True):
    """A namespace with entries."""

    namespace: str
    scope: str | None = None  # of `scope:NAME`, the name
    job: JobId | None = None  # of `job:ID`, the id
    keys: int = 0  # live entries


class EntryDeleted(Struct, frozen=True, kw_only=True):
    """The outcome of deleting an entry: whether there was one, and its value."""

    deleted: bool
    old_value: Plain
    new_value: None = None


class EntriesCleared(Struct, frozen=True, kw_only=True):
    """The number of entries that were deleted."""

    deleted: int


class EntriesCounted(Struct, frozen=True, kw_only=True):
    """The number of entries."""

    count: int


class LockBroken(Struct, frozen=True, kw_only=True):
    """The lock that was broken, as it was held; none where nobody held it."""

    broken: LockView | None


class RecordsAdded(Struct, frozen=True, kw_only=True):
    """The number of records that were new."""

    added: int


class StreamEnded(Struct, frozen=True, kw_only=True):
    """The last line of a complete answer of lines: the number of lines before it."""

    end: int


def view_entry(namespace: str, key: bytes, entry: Entry) -> EntryView:
    value = entry.value
    return copied(EntryView, entry, namespace=namespace, key=to_plain(key), value=to_plain(value), type=type_of(value))


def view_lock(held: Held) -> LockView:
    return copied(LockView, held, name=to_plain(held.name), holder=to_plain(held.holder))


def view_change(event: ChangeEvent) -> ChangeView:
    key, old, new = map(to_plain, (event.key, event.old, event.new))
    return copied(ChangeView, event, key=key, old=old, new=new, job=event.origin.job, run=event.origin.run)


def is_text(namespace: str) -> bool:
    """Return whether a namespace belongs to store_* or global_store_*, which store only text."""
    return namespace == GLOBAL or namespace.startswith(JOBS)


def bytes_of(plain: Plain) -> bytes:
    """Return a key, the name of a lock, or a string value as bytes."""
    text = from_plain(plain)
    if not isinstance(text, bytes):
        raise TypeError(f"{plain!r} is not a string")
    return text
