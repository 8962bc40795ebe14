"""The ops state.*: typed values that all jobs share, with expiry, counters, lists and history.

A call whose first argument is a text has sloth-runner's form, in the namespace of the job's agent; with a table it has
iii's form, in a scope.
"""

from __future__ import annotations

from asyncio import Future
from pathlib import PurePath

from spyweb.limits import NUMBER_KEYS
from spyweb.lua.session import Results, StoreAnswer
from spyweb.model import Value as StoredValue
from spyweb.ops import scopes
from spyweb.ops.arguments import Int, Number, Table, Text, Value, parse_number
from spyweb.ops.op import ALL_SCOPES, OpFamily
from spyweb.ops.positional import KeyOrTable, StateCall, one, positional, writing
from spyweb.ops.rules.values import SCALAR_BYTES, added, are_equal, integral, kind_of, remaining
from spyweb.store.encoding import OVER_NUMBER_KEYS, count_number_keys
from spyweb.store.model.entries import KEEP, Addition, Drop, Entry, Leave, Put, Replacement, ValueStats

FAMILY = OpFamily(
    name="state",
    errors="A call that fails returns false, nil, -1 or 0 (for `state.list_length`), and a text with the key and the "
    "reason. With a table first it raises a table `{code, message}`.",
)


@writing(
    "state.set",
    failure=False,
    types="(key: string, value: any, ttl?: number): boolean ok, string? message",
    overloads=("fun(options: {scope: string, key: string, value: any, ttl?: number}): StateChange",),
)
def put(state: StateCall, key: KeyOrTable, value: Value, ttl: Number | None = None) -> StoreAnswer[object]:
    """Store a value, without expiry or for `ttl` seconds; an earlier expiry of the key is replaced.

    With a table `{scope, key, value, ttl?}` it returns `{old_value, new_value}`.
    """
    if not isinstance(key, bytes):
        return scopes.put(state, key)
    return _put(state.about(key), value, ttl)


@writing(
    "state.set_with_ttl", failure=False, types="(key: string, value: any, ttl: number): boolean ok, string? message"
)
def put_with_ttl(state: StateCall, key: Text, value: Value, ttl: Number) -> StoreAnswer[object]:
    """Store a value for `ttl` seconds."""
    return _put(state.about(key), value, ttl)


def _put(state: StateCall, given: object, ttl: float | None) -> StoreAnswer[object]:
    value, expires_ms = state.value(given, 2), state.expiry(ttl)
    return state.change(Replacement(lambda: state.put(value, expires_ms, True)))


@positional(
    "state.get",
    failure=None,
    types="(key: string, default?: any): any value, string? message",
    overloads=("fun(options: {scope: string, key: string}): any",),
)
def get(state: StateCall, key: KeyOrTable, default: Value = None) -> StoreAnswer[object]:
    """Return the value of a key, or the default.

    With a table `{scope, key}` it returns the value or nil.
    """
    if not isinstance(key, bytes):
        return scopes.get(state, key)
    source = state.about(key).values.get(state.namespace, key)
    return state.answer(source, lambda value: (default if value is None else value,))


@positional("state.exists", failure=False, types="(key: string): boolean exists, string? message")
def exists(state: StateCall, key: Text) -> StoreAnswer[Entry | None]:
    """Return whether the key exists."""
    return state.about(key).read(lambda entry: (entry is not None,))


@writing(
    "state.delete",
    failure=False,
    types="(key: string): boolean ok, string? message",
    overloads=("fun(options: {scope: string, key: string}): any",),
)
def delete(state: StateCall, key: KeyOrTable) -> StoreAnswer[object]:
    """Delete a key; true also for a missing key.

    With a table `{scope, key}` it returns the old value.
    """
    if not isinstance(key, bytes):
        return scopes.delete(state, key)
    return state.about(key).change(Replacement(lambda: Drop((True,))))


@writing("state.clear", failure=False, types="(pattern?: string): boolean ok, string? message")
def clear(state: StateCall, pattern: Text = b"*") -> StoreAnswer[int]:
    """Delete every key that matches, or all keys; never locks, and no key of store_* or of scopes.

    More than 200 keys are deleted in steps, so that no other job waits.
    """
    source = state.values.clear(state.namespace, state.pattern(pattern), origin=state.call.origin)
    return state.answer(source, lambda _: (True,))


@positional(
    "state.keys",
    failure=None,
    types="(pattern?: string): string[]? keys, string? message",
    overloads=("fun(options: {scope: string, pattern?: string}): string[]",),
)
def keys(state: StateCall, pattern: KeyOrTable = b"*") -> StoreAnswer[list[bytes]]:
    """Return all keys that match, sorted; `*` is any run of characters, `?` one.

    A pattern has at most 1,024 bytes.

    With a table `{scope, pattern?}` it returns the keys of a scope.
    """
    if not isinstance(pattern, bytes):
        return scopes.keys(state, pattern)
    return state.answer(state.values.keys(state.namespace, state.pattern(pattern), largest=state.largest), one)


@positional(
    "state.list",
    failure=None,
    types="(prefix?: string): table<string, any>? values, string? message",
    overloads=("fun(options: {scope: string}): any[]",),
)
def list_items(state: StateCall, prefix: KeyOrTable = b"") -> StoreAnswer[object]:
    """Return a table of the keys with this prefix, each with its value.

    With a table `{scope}` it returns an array of values, in the order of their creation.
    """
    if not isinstance(prefix, bytes):
        return scopes.list_values(state, prefix)
    source: Future[object] = state.values.gather(
        state.namespace, prefix, lambda items: {key: entry.value for key, entry in items}, largest=state.largest
    )
    return state.answer(source, one)


@positional("state.list_groups", failure=None, needs=ALL_SCOPES, types="(): {groups: string[]} scopes")
def list_groups(state: StateCall) -> StoreAnswer[list[str]]:
    """Return all scopes that are not empty, sorted: `{groups = {...}}`."""
    return scopes.list_groups(state)


@writing("state.update", failure=None, types="(options: StateUpdate): StateChange change")
def update(state: StateCall, options: Table) -> StoreAnswer[object]:
    """Apply `ops` to the value of `key` in `scope`, in one step; returns `{old_value, new_value, errors?}`.

    At most 1,000 ops.
    """
    return scopes.update(state, options)


@writing("state.set_ttl", failure=False, types="(key: string, seconds: number): boolean ok, string? message")
def set_ttl(state: StateCall, key: Text, seconds: Number) -> StoreAnswer[bool]:
    """Let a key expire after so many seconds; zero or less: never."""
    state.about(key)
    expires_ms = None if seconds <= 0 else state.expiry(seconds)
    source = state.values.expire(state.namespace, key, expires_ms)
    refusal = state.refusal(state.of_key("there is no such key"))
    return state.answer(source, lambda is_there: (True,) if is_there else refusal)


@positional("state.get_ttl", failure=-1, types="(key: string): integer seconds, string? message")
def get_ttl(state: StateCall, key: Text) -> StoreAnswer[Entry | None]:
    """Return the seconds until a key expires, rounded up; -1: it never does; -2: there is no such key."""
    return state.about(key).read(lambda entry: (remaining(entry, state.call.world.clock.now_ms()),))


@writing("state.increment", failure=None, types="(key: string, delta?: number): number? sum, string? message")
def increment(state: StateCall, key: Text, delta: Number = 1) -> StoreAnswer[object]:
    """Add to a number, atomically, and return the sum; a missing key counts as 0."""
    return _add(state.about(key), delta)


@writing("state.decrement", failure=None, types="(key: string, delta?: number): number? difference, string? message")
def decrement(state: StateCall, key: Text, delta: Number = 1) -> StoreAnswer[object]:
    """Subtract from a number, atomically, and return the difference; a missing key counts as 0."""
    return _add(state.about(key), -delta)


def _add(state: StateCall, delta: int | float) -> StoreAnswer[object]:
    """Add to a number; a missing key counts as 0, a numeric text as its number."""
    delta = integral(delta)

    def change(entry: Entry | None) -> Put | Leave:
        value = entry.value if entry else 0
        number = parse_number(value) if isinstance(value, bytes) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            return state.leave(f"it holds {kind_of(value)}, not a number")
        number = integral(number)
        total = added(number, delta)
        if total is None:
            return state.leave(f"{number} + {delta} leaves the range of numbers")
        return state.put(total, KEEP, total)

    if isinstance(delta, float) or state.call.world.state.max_value_bytes < SCALAR_BYTES:
        return state.change(change)
    return state.change(Addition(delta, one, change))


@writing("state.append", failure=-1, types="(key: string, value: string|number): integer? length, string? message")
def append(state: StateCall, key: Text, value: Text) -> StoreAnswer[object]:
    """Append to a text, and return its length in bytes; a missing key is an empty text."""

    def change(entry: Entry | None) -> Put | Leave:
        text = entry.value if entry else b""
        if not isinstance(text, bytes):
            return state.leave(f"it holds {kind_of(text)}, not a string")
        return state.put(text + value, KEEP, len(text) + len(value))

    return state.about(key).change(change)


@writing(
    "state.compare_swap", failure=False, types="(key: string, old: any, new: any): boolean swapped, string? message"
)
def compare_swap(state: StateCall, key: Text, old: Value, new: Value) -> StoreAnswer[object]:
    """Replace the value by `new` if it equals `old`; return whether it did.

    A missing key has the value nil; tables are compared deeply.
    """
    kept = state.about(key).value(new, 3)
    expected = None if old is None else state.item(old, 2)

    def change(entry: Entry | None) -> Put | Leave:
        is_so = are_equal(entry.value if entry else None, expected)
        return state.put(kept, None, True) if is_so else Leave((False,))

    return state.change(change)


@writing("state.list_push", failure=-1, types="(key: string, item: any): integer? length, string? message")
def list_push(state: StateCall, key: Text, item: Value) -> StoreAnswer[object]:
    """Append to a list, and return its length; a missing key is an empty list."""
    added_item = state.about(key).item(item, 2)

    def change(entry: Entry | None) -> Put | Leave:
        items = _list_in(entry)
        if items is None:
            return state.leave(_no_list(entry))
        new = count_number_keys(added_item)
        if new and new + count_number_keys(items) > NUMBER_KEYS:
            return state.leave(f"{OVER_NUMBER_KEYS} can't be stored")
        return state.put([*items, added_item], KEEP, len(items) + 1)

    return state.change(change)


@writing("state.list_pop", failure=None, types="(key: string): any item, string? message")
def list_pop(state: StateCall, key: Text) -> StoreAnswer[object]:
    """Remove the last item of a list and return it; nil for an empty list."""

    def change(entry: Entry | None) -> Put | Leave:
        items = _list_in(entry)
        if items is None:
            return state.leave(_no_list(entry))
        return Put(items[:-1], KEEP, (items[-1],)) if items else Leave((None,))

    return state.about(key).change(change)


@positional("state.list_length", failure=0, types="(key: string): integer length, string? message")
def list_length(state: StateCall, key: Text) -> StoreAnswer[Entry | None]:
    """Return the number of items in a list; 0 for a missing key."""

    def length_of(entry: Entry | None) -> Results:
        items = _list_in(entry)
        return state.refusal(state.of_key(_no_list(entry))) if items is None else (len(items),)

    return state.about(key).read(length_of)


def _list_in(entry: Entry | None) -> list[StoredValue] | None:
    """Return the list that an entry holds; a missing entry and `{}` are empty lists."""
    value = entry.value if entry else []
    if isinstance(value, dict) and not value:
        return []
    return value if isinstance(value, list) else None


def _no_list(entry: Entry | None) -> str:
    return f"it holds {kind_of(entry.value if entry else None)}, not a list"


@positional(
    "state.history", failure=None, types="(key: string, count?: integer): StateVersion[]? versions, string? message"
)
def history(state: StateCall, key: Text, count: Int | None = None) -> StoreAnswer[list[Entry]]:
    """Return the versions of a key, newest first: an array of `{version, value, updated_at}`.

    Past versions are kept where `[state.history]` is set.
    """

    def results_of(entries: list[Entry]) -> Results:
        return one(
            [{"version": each.version, "value": each.value, "updated_at": each.updated_ms / 1000} for each in entries]
        )

    limit = None if count is None else max(0, count)
    source = state.about(key).values.history(state.namespace, key, limit, largest=state.largest)
    return state.answer(source, results_of)


@positional("state.get_version", failure=None, types="(key: string, version: integer): any value, string? message")
def get_version(state: StateCall, key: Text, version: Int) -> StoreAnswer[Entry | None]:
    """Return the value of a key in that version; nil when the version is not kept."""
    source = state.about(key).values.version(state.namespace, key, version)
    return state.answer(source, lambda entry: (entry.value if entry else None,))


@writing("state.rollback", failure=False, types="(key: string, version: integer): boolean ok, string? message")
async def rollback(state: StateCall, key: Text, version: Int) -> Results:
    """Restore the value of a key in that version, as a newer version without expiry."""
    past = await state.about(key).values.version(state.namespace, key, version)
    if past is None:
        return state.refusal(state.of_key(f"version {version} is not kept"))
    return await state.change(Replacement(lambda: state.put(past.value, None, True)))


@positional("state.stats", failure=None, types="(): StateStats? stats, string? message")
def stats(state: StateCall) -> StoreAnswer[ValueStats]:
    """Return figures of the stored values, and how long the functions of `state` took since start."""

    def results_of(found: ValueStats) -> Results:
        store, metrics = state.call.world.store.stats(), state.call.world.metrics.state
        return one(
            {
                "total_keys": found.total_keys,
                "expired_keys": found.expired_keys,
                "active_locks": found.active_locks,
                "db_size_bytes": store.size_bytes,
                "total_size": store.size_bytes,
                "db_path": PurePath(store.path).name,  # where it lies is no affair of a job
                "backend": store.backend,
                "last_modified": None if found.last_modified_ms is None else found.last_modified_ms / 1000,
                "reads": metrics.reads,
                "writes": metrics.writes,
                "op_ms_p50": round(metrics.times.percentile(50) * 1000, 3),
                "op_ms_p99": round(metrics.times.percentile(99) * 1000, 3),
            }
        )

    return state.answer(state.values.stats(state.namespace), results_of)
