"""Follow the path of an update op into a value: literal field names, in which dots do not separate."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spyweb.model import Value, ValueKey
from spyweb.ops.rules.values import has_key, shown

Path = tuple[bytes, ...]
Object = dict[ValueKey, Value]

MOST_SEGMENTS = 32
LONGEST_SEGMENT = 256  # bytes
FORBIDDEN = frozenset({b"__proto__", b"constructor", b"prototype"})

_INTEGER = re.compile(rb"0|[1-9][0-9]{0,17}")


class Rejected(Exception):
    """An update op is skipped, for the reason that its code names."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


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


def put_field(target: Object, segment: bytes, value: Value) -> None:
    target[key_of(target, segment)] = value


def field_of(target: Object, segment: bytes) -> Value:
    """Return the field of an object, or None if there is none."""
    return target.get(key_of(target, segment))


def object_in(target: Object, segment: bytes) -> Object:
    """Return the object in a field, or an empty one in place of anything else."""
    inner = field_of(target, segment)
    return inner if isinstance(inner, dict) else {}


def spelled(path: Sequence[bytes]) -> str:
    """Return a path as text for errors."""
    return "the value" if not path else "'" + ".".join(map(shown, path)) + "'"
