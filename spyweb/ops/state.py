"""The ops state.*: typed values that all jobs share, with expiry, counters, lists and history.

A call whose first argument is a text has sloth-runner's form, in the namespace of the job's agent; with a table it has
iii's form, in a scope.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from spyweb.lua.session import Results, StoreAnswer
from spyweb.ops import scopes
from spyweb.ops.arguments import Int, Number, Table, Text, Value
from spyweb.ops.op import ALL_SCOPES, WRITE_STATE, OpFamily
from spyweb.ops.positional import KeyOrTable, PositionalCall, positional
from spyweb.ops.rules import sloth
from spyweb.ops.rules.sloth import one
from spyweb.ops.rules.values import remaining
from spyweb.store.model.entries import Entry, ValueStats

FAMILY = OpFamily(
    name="state",
    errors="What can't be done gives false, nil, -1 or 0 (for `state.list_length`), and a text with the key and the "
    "reason. With a table first it raises a table `{code, message}`.",
)

IN_MEMORY = ":memory:"  # the path of a store without a file


@positional(
    "state.set",
    failure=False,
    needs=WRITE_STATE,
    types="(key: string, value: any, ttl?: number): boolean ok, string? message",
    overloads=("fun(options: {scope: string, key: string, value: any, ttl?: number}): StateChange",),
)
def put(state_call: PositionalCall, key: KeyOrTable, value: Value, ttl: Number | None = None) -> StoreAnswer[object]:
    """Keep a value, for good or for `ttl` seconds; whatever expiry the key had is replaced.

    With a table `{scope, key, value, ttl?}` it gives `{old_value, new_value}`.
    """
    if not isinstance(key, bytes):
        return scopes.put(state_call, key)
    return _put(state_call, key, value, ttl)


@positional(
    "state.set_with_ttl",
    failure=False,
    needs=WRITE_STATE,
    types="(key: string, value: any, ttl: number): boolean ok, string? message",
)
def put_with_ttl(state_call: PositionalCall, key: Text, value: Value, ttl: Number) -> StoreAnswer[object]:
    """Keep a value for `ttl` seconds."""
    return _put(state_call, key, value, ttl)


def _put(state_call: PositionalCall, key: bytes, value: object, ttl: float | None) -> StoreAnswer[object]:
    subject = state_call.subject(key)
    kept = state_call.value(subject, value, 2)
    return state_call.change(key, sloth.put(subject, kept, state_call.expiry(subject, ttl)))


@positional(
    "state.get",
    failure=None,
    types="(key: string, default?: any): any value, string? message",
    overloads=("fun(options: {scope: string, key: string}): any",),
)
def get(state_call: PositionalCall, key: KeyOrTable, default: Value = None) -> StoreAnswer[object]:
    """The value of a key, or the default.

    With a table `{scope, key}` the value or nil.
    """
    if not isinstance(key, bytes):
        return scopes.get(state_call, key)
    state_call.subject(key)
    source = state_call.call.values.get(state_call.namespace, key)
    return state_call.answer(source, lambda value: (default if value is None else value,))


@positional("state.exists", failure=False, types="(key: string): boolean exists, string? message")
def exists(state_call: PositionalCall, key: Text) -> StoreAnswer[Entry | None]:
    """Whether there is such a key."""
    state_call.subject(key)
    return state_call.read(key, lambda entry: (entry is not None,))


@positional(
    "state.delete",
    failure=False,
    needs=WRITE_STATE,
    types="(key: string): boolean ok, string? message",
    overloads=("fun(options: {scope: string, key: string}): any",),
)
def delete(state_call: PositionalCall, key: KeyOrTable) -> StoreAnswer[object]:
    """Forget a key; true even when there was none.

    With a table `{scope, key}` it gives the old value.
    """
    if not isinstance(key, bytes):
        return scopes.delete(state_call, key)
    state_call.subject(key)
    return state_call.change(key, sloth.delete())


@positional("state.clear", failure=False, needs=WRITE_STATE, types="(pattern?: string): boolean ok, string? message")
def clear(state_call: PositionalCall, pattern: Text = b"*") -> StoreAnswer[int]:
    """Forget every key that matches, or all of them; never locks, and nothing of store_* or of scopes.

    More than 200 go bit by bit, so that no other job waits.
    """
    values = state_call.call.values
    return state_call.answer(
        values.clear(state_call.namespace, state_call.pattern(pattern), origin=state_call.call.origin),
        lambda _: (True,),
    )


@positional(
    "state.keys",
    failure=None,
    types="(pattern?: string): string[]? keys, string? message",
    overloads=("fun(options: {scope: string, pattern?: string}): string[]",),
)
def keys(state_call: PositionalCall, pattern: KeyOrTable = b"*") -> StoreAnswer[list[bytes]]:
    """All keys that match, sorted; `*` is any run of characters, `?` one.

    A pattern has at most 1,024 bytes.

    With a table `{scope, pattern?}` those of a scope.
    """
    if not isinstance(pattern, bytes):
        return scopes.keys(state_call, pattern)
    values = state_call.call.values
    return state_call.answer(
        values.keys(state_call.namespace, state_call.pattern(pattern), largest=state_call.largest), one
    )


@positional(
    "state.list",
    failure=None,
    types="(prefix?: string): table<string, any>? values, string? message",
    overloads=("fun(options: {scope: string}): any[]",),
)
def list_items(state_call: PositionalCall, prefix: KeyOrTable = b"") -> StoreAnswer[object]:
    """A table of the keys that begin so, each with its value.

    With a table `{scope}` an array of values, in the order of their creation.
    """
    if not isinstance(prefix, bytes):
        return scopes.list_values(state_call, prefix)
    return state_call.answer(
        state_call.call.values.gather(state_call.namespace, prefix, _map_of, largest=state_call.largest),
        one,
    )


def _map_of(items: Iterator[tuple[bytes, Entry]]) -> dict[bytes, object]:
    return {key: entry.value for key, entry in items}


@positional("state.list_groups", failure=None, needs=ALL_SCOPES, types="(): {groups: string[]} scopes")
def list_groups(state_call: PositionalCall) -> StoreAnswer[list[str]]:
    """All scopes that hold something: `{groups = {...}}`, sorted."""
    return scopes.list_groups(state_call)


@positional("state.update", failure=None, needs=WRITE_STATE, types="(options: StateUpdate): StateChange change")
def update(state_call: PositionalCall, options: Table) -> StoreAnswer[object]:
    """Apply `ops` to the value of `key` in `scope`, all in one step; gives `{old_value, new_value, errors?}`.

    At most 1,000 ops.
    """
    return scopes.update(state_call, options)


@positional(
    "state.set_ttl",
    failure=False,
    needs=WRITE_STATE,
    types="(key: string, seconds: number): boolean ok, string? message",
)
def set_ttl(state_call: PositionalCall, key: Text, seconds: Number) -> StoreAnswer[bool]:
    """Let a key end in so many seconds; never, for zero and less."""
    subject = state_call.subject(key)
    expires_ms = None if seconds <= 0 else state_call.expiry(subject, seconds)
    source = state_call.call.values.expire(state_call.namespace, key, expires_ms)
    return state_call.answer(source, lambda is_there: (True,) if is_there else subject.refusal("there is no such key"))


@positional("state.get_ttl", failure=-1, types="(key: string): integer seconds, string? message")
def get_ttl(state_call: PositionalCall, key: Text) -> StoreAnswer[Entry | None]:
    """Seconds that a key has left, rounded up; -1 when it never ends, -2 when it is not there."""
    state_call.subject(key)
    return state_call.read(key, lambda entry: (remaining(entry, state_call.now_ms),))


@positional(
    "state.increment",
    failure=None,
    needs=WRITE_STATE,
    types="(key: string, delta?: number): number? sum, string? message",
)
def increment(state_call: PositionalCall, key: Text, delta: Number = 1) -> StoreAnswer[object]:
    """Add to a number, atomically, and give the sum; a missing key counts as 0."""
    subject = state_call.subject(key)
    return state_call.change(key, sloth.increment(subject, delta))


@positional(
    "state.decrement",
    failure=None,
    needs=WRITE_STATE,
    types="(key: string, delta?: number): number? difference, string? message",
)
def decrement(state_call: PositionalCall, key: Text, delta: Number = 1) -> StoreAnswer[object]:
    """Subtract from a number, atomically, and give the difference; a missing key counts as 0."""
    subject = state_call.subject(key)
    return state_call.change(key, sloth.increment(subject, -delta))


@positional(
    "state.append",
    failure=-1,
    needs=WRITE_STATE,
    types="(key: string, value: string|number): integer? length, string? message",
)
def append(state_call: PositionalCall, key: Text, value: Text) -> StoreAnswer[object]:
    """Add to the end of a text, and give its length in bytes; a missing key is an empty text."""
    return state_call.change(key, sloth.append(state_call.subject(key), value))


@positional(
    "state.compare_swap",
    failure=False,
    needs=WRITE_STATE,
    types="(key: string, old: any, new: any): boolean swapped, string? message",
)
def compare_swap(state_call: PositionalCall, key: Text, old: Value, new: Value) -> StoreAnswer[object]:
    """Put `new` in the place of `old`, if that is what is there, and say whether it was.

    nil is what a missing key holds; tables are compared deeply.
    """
    subject = state_call.subject(key)
    kept = state_call.value(subject, new, 3)
    expected = None if old is None else state_call.item(subject, old, 2)
    return state_call.change(key, sloth.compare_swap(subject, expected, kept))


@positional(
    "state.list_push", failure=-1, needs=WRITE_STATE, types="(key: string, item: any): integer? length, string? message"
)
def list_push(state_call: PositionalCall, key: Text, item: Value) -> StoreAnswer[object]:
    """Add to the end of a list, and give its length; a missing key is an empty list."""
    subject = state_call.subject(key)
    return state_call.change(key, sloth.list_push(subject, state_call.item(subject, item, 2)))


@positional("state.list_pop", failure=None, needs=WRITE_STATE, types="(key: string): any item, string? message")
def list_pop(state_call: PositionalCall, key: Text) -> StoreAnswer[object]:
    """Take the last item of a list away and give it; nil when there is none."""
    return state_call.change(key, sloth.list_pop(state_call.subject(key)))


@positional("state.list_length", failure=0, types="(key: string): integer length, string? message")
def list_length(state_call: PositionalCall, key: Text) -> StoreAnswer[Entry | None]:
    """How many items a list has; none for a missing key."""
    subject = state_call.subject(key)
    return state_call.read(key, lambda entry: sloth.list_length(subject, entry))


@positional(
    "state.history", failure=None, types="(key: string, count?: integer): StateVersion[]? versions, string? message"
)
def history(state_call: PositionalCall, key: Text, count: Int | None = None) -> StoreAnswer[list[Entry]]:
    """The versions of a key, newest first: an array of `{version, value, updated_at}`.

    Past ones are kept where `[state.history]` in the settings says so.
    """
    state_call.subject(key)
    limit = None if count is None else max(0, count)
    source = state_call.call.values.history(state_call.namespace, key, limit, largest=state_call.largest)
    return state_call.answer(source, lambda entries: ([_version(entry) for entry in entries],))


def _version(entry: Entry) -> dict[str, object]:
    return {"version": entry.version, "value": entry.value, "updated_at": entry.updated_ms / 1000}


@positional("state.get_version", failure=None, types="(key: string, version: integer): any value, string? message")
def get_version(state_call: PositionalCall, key: Text, version: Int) -> StoreAnswer[Entry | None]:
    """The value that a key had in that version; nil when it is not kept."""
    state_call.subject(key)
    source = state_call.call.values.version(state_call.namespace, key, version)
    return state_call.answer(source, lambda entry: (entry.value if entry else None,))


@positional(
    "state.rollback",
    failure=False,
    needs=WRITE_STATE,
    types="(key: string, version: integer): boolean ok, string? message",
)
async def rollback(state_call: PositionalCall, key: Text, version: Int) -> Results:
    """Put the value back that a key had in that version, as a newer version and without an expiry."""
    subject = state_call.subject(key)
    past = await state_call.call.values.version(state_call.namespace, key, version)
    if past is None:
        return subject.refusal(f"version {version} is not kept")
    return await state_call.change(key, sloth.put(subject, past.value, None))


@positional("state.stats", failure=None, types="(): StateStats? stats, string? message")
def stats(state_call: PositionalCall) -> StoreAnswer[ValueStats]:
    """What there is of stored values, and how long the functions of `state` took since start."""
    return state_call.answer(
        state_call.call.values.stats(state_call.namespace), lambda found: (_stats(state_call, found),)
    )


def _stats(state_call: PositionalCall, found: ValueStats) -> dict[str, object]:
    store, metrics = state_call.call.world.store.stats(), state_call.call.world.metrics.state
    return {
        "total_keys": found.total_keys,
        "expired_keys": found.expired_keys,
        "active_locks": found.active_locks,
        "db_size_bytes": store.size_bytes,
        "total_size": store.size_bytes,
        "db_path": PurePath(store.path).name,  # where it lies is no affair of a job
        "backend": "memory" if store.path == IN_MEMORY else "sqlite",
        "last_modified": None if found.last_modified_ms is None else found.last_modified_ms / 1000,
        "reads": metrics.reads,
        "writes": metrics.writes,
        "op_ms_p50": round(metrics.times.percentile(50) * 1000, 3),
        "op_ms_p99": round(metrics.times.percentile(99) * 1000, 3),
    }
