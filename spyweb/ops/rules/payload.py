"""Read the table of a table-first function of state, field by field, with iii's codes for errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from spyweb.errors import OpError
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import Value
from spyweb.ops.arguments import Mismatch, read_number, read_text, type_name, value_in
from spyweb.ops.rules.paths import Path
from spyweb.ops.rules.updates import Update, UpdateKind
from spyweb.ops.rules.values import Unstorable, fits, integral, prepared, shown, size_of, value_from_lua
from spyweb.store.patterns import excess

T = TypeVar("T")

MALFORMED = "deserialization_error"
TOO_LARGE = "VALUE_TOO_LARGE"
MOST_OPS = 1_000  # of one update: they are read on the loop, and applied while all other writes wait

_VALUES = frozenset({b"value", b"data"})
_REACH_DEEPER = frozenset({UpdateKind.MERGE, UpdateKind.APPEND})  # their path may be an array of segments
_NEED_A_VALUE = frozenset({UpdateKind.MERGE, UpdateKind.APPEND})
_COUNT = frozenset({UpdateKind.INCREMENT, UpdateKind.DECREMENT})
_KINDS = {kind.value.encode(): kind for kind in UpdateKind}


class Malformed(Exception):
    """The table does not have the shape that the function expects."""


class Payload(Struct, frozen=True, kw_only=True):
    """Reads the fields; every method raises an OpError whose value is iii's {code, message}."""

    function: str
    code: str  # of this function's failures
    fields: Mapping[object, object]
    longest: int  # bytes of a key
    largest: int  # bytes of a value

    def refusal(self, code: str, reason: str) -> OpError:
        message = f"{self.function}: {reason}"
        return OpError(message, value={"code": code, "message": message})

    def malformed(self, reason: str) -> OpError:
        return self.refusal(MALFORMED, reason)

    def text(self, name: str) -> bytes:
        """Read a required text."""
        text = self.optional_text(name)
        if text is None:
            raise self.malformed(f"missing field '{name}'")
        return text

    def optional_text(self, name: str) -> bytes | None:
        return self._optional(name, read_text)

    def number(self, name: str) -> int | float | None:
        return self._optional(name, read_number)

    def _optional(self, name: str, read: Callable[[object], T]) -> T | None:
        try:
            return value_in(self.fields, name, read)
        except Mismatch as mismatch:
            raise self.malformed(str(mismatch)) from None

    def scope(self) -> str:
        scope = self._short("scope")
        try:
            return scope.decode()
        except UnicodeDecodeError:
            raise self.malformed("field 'scope': it is not UTF-8") from None

    def key(self) -> bytes:
        return self._short("key")

    def pattern(self) -> bytes:
        pattern = self.optional_text("pattern")
        if pattern is None:
            return b"*"
        if (reason := excess(pattern)) is not None:
            raise self.refusal(self.code, reason)
        return pattern

    def _short(self, name: str) -> bytes:
        text = self.text(name)
        if len(text) > self.longest:
            reason = f"{name} '{shown(text)}': {len(text)} bytes are over the limit of {self.longest}"
            raise self.refusal(self.code, reason)
        return text

    def value(self) -> Value:
        given = self.fields.get(b"value")
        if given is None:
            given = self.fields.get(b"data")
        if given is None:
            raise self.malformed("missing field 'value'; JSON's null is state.null")
        try:
            value = value_from_lua(given)
        except Unstorable as problem:
            raise self.malformed(f"key '{shown(self.key())}': {problem}") from None
        self.check_size(value)
        return value

    def check_size(self, value: Value) -> None:
        size = size_of(value)
        if size > self.largest:
            reason = f"key '{shown(self.key())}': the value of {size} bytes is over the limit of {self.largest}"
            raise self.refusal(TOO_LARGE, reason)

    def updates(self) -> list[Update]:
        given = self.fields.get(b"ops")
        try:
            return [_update(number, fields) for number, fields in enumerate(_few(_array(given)))]
        except Malformed as problem:
            raise self.malformed(str(problem)) from None


def prepare_fields(fields: Mapping[object, object]) -> dict[object, object]:
    """Return the table's fields with the values in them converted.  Never raises: errors show when they are read."""
    made = {name: prepared(given) if name in _VALUES else given for name, given in fields.items()}
    ops = made.get(b"ops")
    if isinstance(ops, list) and len(ops) <= MOST_OPS:
        made[b"ops"] = [_prepare_op(each) if type(each) is dict else each for each in ops]
    return made


def _prepare_op(fields: dict[object, object]) -> dict[object, object]:
    return {**fields, b"value": prepared(fields[b"value"])} if b"value" in fields else fields


def _array(given: object) -> Sequence[object]:
    if isinstance(given, list):
        return given
    if given == {} or _is_empty_array(given):
        return []
    raise Malformed(f"field 'ops': array expected, got {type_name(given)}")


def _few(ops: Sequence[object]) -> Sequence[object]:
    if len(ops) > MOST_OPS:
        raise Malformed(f"field 'ops': {len(ops)} ops; at most {MOST_OPS} in one update")
    return ops


def _is_empty_array(given: object) -> bool:
    return isinstance(given, Foreign) and given.kind is Ext.EMPTY_ARRAY


def _update(number: int, fields: object) -> Update:
    try:
        return _read_update(fields)
    except (Malformed, Mismatch, Unstorable) as problem:
        raise Malformed(f"ops[{number}]: {problem}") from None


def _read_update(fields: object) -> Update:
    if not isinstance(fields, dict):
        raise Malformed(f"object expected, got {type_name(fields)}")
    kind = _kind(fields.get(b"type"))
    path = _path(kind, fields.get(b"path"))
    given = fields.get(b"value")
    if kind in _COUNT:
        return Update(kind=kind, path=path, by=_by(fields.get(b"by")))
    if given is None and kind in _NEED_A_VALUE:
        raise Malformed("missing field 'value'")
    return Update(kind=kind, path=path) if given is None else Update(kind=kind, path=path, value=value_from_lua(given))


def _kind(given: object) -> UpdateKind:
    kind = _KINDS.get(given) if isinstance(given, bytes) else None
    if kind is None:
        name = shown(given) if isinstance(given, bytes) else type_name(given)
        raise Malformed(f"field 'type': one of {', '.join(UpdateKind)} expected, got {name}")
    return kind


def _is_nothing(given: object) -> bool:
    is_sentinel = isinstance(given, Foreign) and given.kind in (Ext.NULL, Ext.EMPTY_ARRAY)
    return is_sentinel or given is None or given in (b"", {})


def _path(kind: UpdateKind, given: object) -> Path:
    """Read a path; one that is left out, null, "" or empty is the root, without segments."""
    if type(given) is bytes and given:
        return (given,)
    if _is_nothing(given):
        return ()
    if isinstance(given, list) and kind in _REACH_DEEPER:
        return tuple(read_text(segment) for segment in given)
    try:
        return (read_text(given),)
    except Mismatch as mismatch:
        raise Malformed(f"field 'path': {mismatch}") from None


def _by(given: object) -> int:
    if type(given) is int and fits(given):
        return given
    number = integral(given) if isinstance(given, int | float) and not isinstance(given, bool) else None
    if not isinstance(number, int) or not fits(number):
        raise Malformed(f"field 'by': integer expected, got {given if number is not None else type_name(given)}")
    return number
