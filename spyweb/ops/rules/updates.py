"""iii's update ops: set, merge, increment, decrement, append, remove, one after another on a working copy.

An op that can't be done is skipped and reported, and the others still apply.  A root of None is a missing key: field
ops begin it as an empty object.  Nothing is changed in place: what was read stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spyweb.model import NULL, Value
from spyweb.ops.rules.paths import (
    FORBIDDEN,
    Object,
    Path,
    Rejected,
    check_path,
    field_of,
    key_of,
    object_at_root,
    object_in,
    spelled,
    with_field,
)
from spyweb.ops.rules.sloth import added
from spyweb.ops.rules.values import kind_of, shown

MOST_MERGED_KEYS = 1024
DEEPEST_MERGE = 16


class Kind(StrEnum):
    SET = "set"
    MERGE = "merge"
    INCREMENT = "increment"
    DECREMENT = "decrement"
    APPEND = "append"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One op, of the right shape; whether it can be done is seen when it meets a value."""

    kind: Kind
    path: Path = ()
    value: Value = NULL
    by: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    op_index: int  # from 0
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    value: Value
    problems: Sequence[Problem]


def apply(root: Value, updates: Sequence[Update]) -> Updated:
    """What a value becomes; a missing one at least `{}`."""
    problems = []
    for index, update in enumerate(updates):
        try:
            check_path(update.kind, update.path)
            root = _STEPS[update.kind](root, update)
        except Rejected as rejected:
            problems.append(Problem(op_index=index, code=rejected.code, message=str(rejected)))
    return Updated(value={} if root is None else root, problems=problems)


def _set(root: Value, update: Update) -> Value:
    if not update.path:
        return update.value
    return with_field(object_at_root("set", root), update.path[0], update.value)


def _merge(root: Value, update: Update) -> Value:
    value = update.value
    if not isinstance(value, dict):
        raise Rejected("merge.value.not_an_object", f"only an object can be merged, not {kind_of(value)}")
    _check_merged(value)
    if update.path:
        return _merge_below(root if isinstance(root, dict) else {}, update.path, value)
    if root is None:
        return value
    return {**root, **value} if isinstance(root, dict) else root  # as in iii: nothing happens, and nothing is said


def _merge_below(target: Object, path: Path, value: Object) -> Object:
    inner = object_in(target, path[0])
    merged = _merge_below(inner, path[1:], value) if path[1:] else {**inner, **value}
    return with_field(target, path[0], merged)


def _check_merged(value: Object) -> None:
    if len(value) > MOST_MERGED_KEYS:
        raise Rejected("merge.value.too_many_keys", f"an object of {len(value)} keys; at most {MOST_MERGED_KEYS}")
    _check_levels(value, 1)


def _check_levels(value: Value, level: int) -> None:
    if not isinstance(value, dict | list):
        return
    if level > DEEPEST_MERGE:
        raise Rejected("merge.value.too_deep", f"an object of more than {DEEPEST_MERGE} levels")
    if isinstance(value, dict):
        _check_names(value)
    for item in value.values() if isinstance(value, dict) else value:
        _check_levels(item, level + 1)


def _check_names(value: Object) -> None:
    for key in value:
        if key in FORBIDDEN:
            raise Rejected("merge.value.proto_polluted", f"a key can't be '{shown(key)}'")


def _add(root: Value, update: Update) -> Value:
    by = update.by if update.kind is Kind.INCREMENT else -update.by
    if not update.path:
        return _sum(root, by, update)
    target = object_at_root(update.kind, root)
    return with_field(target, update.path[0], _sum(field_of(target, update.path[0]), by, update))


def _sum(number: Value, by: int, update: Update) -> Value:
    if number is None:
        number = 0
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise Rejected(f"{update.kind}.not_number", f"{spelled(update.path)} holds {kind_of(number)}, not a number")
    total = added(number, by)
    if total is None:
        raise Rejected(f"{update.kind}.not_number", f"{spelled(update.path)}: the sum does not fit into 64 bits")
    return total


def _append(root: Value, update: Update) -> Value:
    if not update.path:
        return _appended(root, update)
    return _append_below(object_at_root("append", root), update.path, update)


def _append_below(target: Object, path: Path, update: Update) -> Object:
    if path[1:]:
        return with_field(target, path[0], _append_below(object_in(target, path[0]), path[1:], update))
    return with_field(target, path[0], _appended(field_of(target, path[0]), update))


def _appended(target: Value, update: Update) -> Value:
    """A string begins a string, anything else a list; but below a longer path what is missing begins as a list."""
    value = update.value
    if target is None or target is NULL:
        keeps_text = target is NULL or len(update.path) < 2
        return value if isinstance(value, bytes) and keeps_text else [value]
    if isinstance(target, list):
        return [*target, value]
    if isinstance(target, bytes) and isinstance(value, bytes):
        return target + value
    reason = f"{kind_of(value)} can't be appended to {kind_of(target)}"
    raise Rejected("append.type_mismatch", f"{spelled(update.path)}: {reason}")


def _remove(root: Value, update: Update) -> Value:
    if not update.path:
        return NULL
    target = object_at_root("remove", root)
    gone = key_of(target, update.path[0])
    return {key: value for key, value in target.items() if key != gone} if gone in target else root


_STEPS: Mapping[Kind, Callable[[Value, Update], Value]] = {
    Kind.SET: _set,
    Kind.MERGE: _merge,
    Kind.INCREMENT: _add,
    Kind.DECREMENT: _add,
    Kind.APPEND: _append,
    Kind.REMOVE: _remove,
}
