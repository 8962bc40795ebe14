"""Apply iii's update ops (set, merge, increment, decrement, append, remove) to a draft, one after another.

An op that can't be applied is skipped and reported, and the others still apply.  A root of None is a missing key: field
ops begin with an empty object.  The stored value is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Value, ValueKey
from spyweb.ops.rules.values import ALIKE, Unstorable, added, has_key, kind_of, shown
from spyweb.store.encoding import OVER_NUMBER_KEYS, count_number_keys

Path = tuple[bytes, ...]
Object = dict[ValueKey, Value]

MOST_SEGMENTS = 32
LONGEST_SEGMENT = 256  # bytes
FORBIDDEN = frozenset({b"__proto__", b"constructor", b"prototype"})

_INTEGER = re.compile(rb"0|[1-9][0-9]{0,17}")
MOST_OPS = 1_000  # of one update: they are read on the loop, and applied while all other writes wait
MOST_MERGED_KEYS = 1024
DEEPEST_MERGE = 16


Holder = TypeVar("Holder", Object, list[Value])


class UpdateKind(StrEnum):
    SET = "set"
    MERGE = "merge"
    INCREMENT = "increment"
    DECREMENT = "decrement"
    APPEND = "append"
    REMOVE = "remove"


class Update(Struct, frozen=True, kw_only=True):  # made for each op: a dataclass takes longer
    """One op of valid shape; whether it can be applied depends on the value."""

    kind: UpdateKind
    path: Path = ()
    value: Value = NULL
    by: int = 0


class UpdateError(Struct, frozen=True, kw_only=True):
    """An op that could not be done; the others were."""

    op_index: int  # from 0
    code: str
    message: str


class Updated(Struct, frozen=True, kw_only=True):
    value: Value
    problems: Sequence[UpdateError]


class Rejected(Exception):
    """An update op is skipped, for the reason that its code names."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class EditedValue:
    """A value that update ops edit: each table is copied before its first change, and no other.

    So the stored value stays as it was, and many ops on a large table take no longer than on a small one.
    """

    def __init__(self) -> None:
        self._own: dict[int, Object | list[Value]] = {}  # copies made here, by id(), which is unique as they are kept
        self._numbers = 0  # keys that merges have added

    def own(self, holder: Holder) -> Holder:
        """Return the table, or a copy of it that may be changed."""
        if id(holder) in self._own:
            return holder
        copy = holder.copy()
        self._own[id(copy)] = copy
        return copy

    def merge(self, table: Object, more: Object) -> None:
        """Merge these into an own table.  Raises Unstorable before that would take long."""
        self._numbers += sum(not isinstance(key, bytes) and key not in table for key in more)
        check_count(self._numbers)
        table.update(more)


def check_count(numbers: int) -> None:
    if numbers > NUMBER_KEYS:
        raise Unstorable(f"{OVER_NUMBER_KEYS} can't be stored")


def apply(root: Value, updates: Sequence[Update]) -> Updated:
    """Return the updated value; a missing one becomes at least `{}`.  Raises Unstorable."""
    draft, problems = EditedValue(), []
    for index, update in enumerate(updates):
        try:
            check_path(update.kind, update.path)
            root = _applied(draft, root, update)
        except Rejected as rejected:
            problems.append(UpdateError(op_index=index, code=rejected.code, message=str(rejected)))
    value = {} if root is None else root
    if any(count_number_keys(update.value) for update in updates):
        check_count(count_number_keys(value))
    return Updated(value=value, problems=problems)


def _applied(draft: EditedValue, root: Value, update: Update) -> Value:
    match update.kind:
        case UpdateKind.SET:
            return _changed(draft, root, update, lambda _: update.value)
        case UpdateKind.MERGE:
            return _merge(draft, root, update)
        case UpdateKind.INCREMENT:
            return _changed(draft, root, update, lambda number: _sum(number, update.by, update))
        case UpdateKind.DECREMENT:
            return _changed(draft, root, update, lambda number: _sum(number, -update.by, update))
        case UpdateKind.APPEND:
            return _changed(draft, root, update, lambda target: _appended(draft, target, update))
        case UpdateKind.REMOVE:
            return _remove(draft, root, update)


def _changed(draft: EditedValue, root: Value, update: Update, change: Callable[[Value], Value]) -> Value:
    """Change the value that a path leads to."""
    if not update.path:
        return change(root)
    return _changed_below(draft, object_at_root(update.kind, root), update.path, change)


def _changed_below(draft: EditedValue, target: Object, path: Path, change: Callable[[Value], Value]) -> Object:
    """Change the value at the end of a path; if that is rejected, nothing on the way has changed."""
    inner = target.get(key_of(target, path[0]))
    if path[1:]:
        below: Value = _changed_below(draft, inner if isinstance(inner, dict) else {}, path[1:], change)
    else:
        below = change(inner)
    target = draft.own(target)
    target[key_of(target, path[0])] = below
    return target


def _merge(draft: EditedValue, root: Value, update: Update) -> Value:
    value = update.value
    if not isinstance(value, dict):
        raise Rejected("merge.value.not_an_object", f"only an object can be merged, not {kind_of(value)}")
    if len(value) > MOST_MERGED_KEYS:
        raise Rejected("merge.value.too_many_keys", f"an object of {len(value)} keys; at most {MOST_MERGED_KEYS}")
    _check_levels(value, 1)
    if update.path:
        return _changed_below(
            draft,
            root if isinstance(root, dict) else {},
            update.path,
            lambda inner: _merged(draft, inner if isinstance(inner, dict) else {}, value),
        )
    if root is None:
        return value
    return _merged(draft, root, value) if isinstance(root, dict) else root  # as in iii: nothing happens or is said


def _merged(draft: EditedValue, target: Object, value: Object) -> Object:
    if any(key in target and not has_key(target, key) for key in value if key in ALIKE):
        raise Rejected("merge.value.mixed_keys", "a table can't have the keys 1 and true, or 0 and false, at once")
    target = draft.own(target)
    draft.merge(target, value)
    return target


def _check_levels(value: Value, level: int) -> None:
    if not isinstance(value, dict | list):
        return
    if level > DEEPEST_MERGE:
        raise Rejected("merge.value.too_deep", f"an object of more than {DEEPEST_MERGE} levels")
    if isinstance(value, dict) and (bad := [key for key in value if key in FORBIDDEN]):
        raise Rejected("merge.value.proto_polluted", f"a key can't be '{shown(bad[0])}'")
    for item in value.values() if isinstance(value, dict) else value:
        _check_levels(item, level + 1)


def _sum(number: Value, by: int, update: Update) -> Value:
    if number is None:
        number = 0
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise Rejected(f"{update.kind}.not_number", f"{spelled(update.path)} holds {kind_of(number)}, not a number")
    total = added(number, by)
    if total is None:
        raise Rejected(f"{update.kind}.not_number", f"{spelled(update.path)}: the sum does not fit into 64 bits")
    return total


def _appended(draft: EditedValue, target: Value, update: Update) -> Value:
    """Append to a value; a missing one begins as a string for a string, otherwise, or below a long path, as a list."""
    value = update.value
    if target is None or target is NULL:
        keeps_text = target is NULL or len(update.path) < 2
        return value if isinstance(value, bytes) and keeps_text else [value]
    if isinstance(target, list):
        target = draft.own(target)
        target.append(value)
        return target
    if isinstance(target, bytes) and isinstance(value, bytes):
        return target + value
    reason = f"{kind_of(value)} can't be appended to {kind_of(target)}"
    raise Rejected("append.type_mismatch", f"{spelled(update.path)}: {reason}")


def _remove(draft: EditedValue, root: Value, update: Update) -> Value:
    if not update.path:
        return NULL
    target = object_at_root("remove", root)
    gone = key_of(target, update.path[0])
    if gone not in target:
        return root
    target = draft.own(target)
    del target[gone]
    return target


# Paths: literal field names, in which dots do not separate


def check_path(op: str, path: Path) -> None:
    """Check the depth and the segments of a path.  Raises Rejected."""
    if len(path) > MOST_SEGMENTS:
        raise Rejected(f"{op}.path.too_deep", f"a path of {len(path)} segments; at most {MOST_SEGMENTS}")
    for segment in path:
        if not segment:
            raise Rejected(f"{op}.path.empty_segment", "a segment of the path is empty")
        if len(segment) > LONGEST_SEGMENT:
            reason = f"a segment of {len(segment)} bytes; at most {LONGEST_SEGMENT}"
            raise Rejected(f"{op}.path.segment_too_long", reason)
        if segment in FORBIDDEN:
            raise Rejected(f"{op}.path.proto_polluted", f"a path can't go through '{shown(segment)}'")


def object_at_root(op: str, root: Value) -> Object:
    """Return the object that a field op works on; a missing root is an empty one.  Raises Rejected."""
    if root is None:
        return {}
    if not isinstance(root, dict):
        raise Rejected(f"{op}.target_not_object", "the value is not an object, so it has no fields")
    return root


def key_of(target: Object, segment: bytes) -> ValueKey:
    """Return the key for a segment: a Lua table may have an integer where a path can only have text."""
    if segment not in target and _INTEGER.fullmatch(segment) and has_key(target, int(segment)):
        return int(segment)
    return segment


def spelled(path: Sequence[bytes]) -> str:
    """Return a path as text for errors."""
    return "the value" if not path else "'" + ".".join(map(shown, path)) + "'"
