"""The table-first forms of `state`, as iii has them: keys in scopes, updates with paths, errors as {code, message}.

Errors are raised at once, except for those of the store, which follow later, as {code, message} too.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from spyweb.errors import OpError, StoreError
from spyweb.lua.session import Results, StoreAnswer
from spyweb.model import NULL, Value
from spyweb.ops.arguments import Mismatch, read_as, read_number, read_text, type_name, value_in
from spyweb.ops.positional import Fields, PositionalCall
from spyweb.ops.resources import NAMESPACE, SCOPE
from spyweb.ops.rules import updates
from spyweb.ops.rules.sloth import one
from spyweb.ops.rules.updates import MOST_OPS, Path, Update, UpdateError, UpdateKind
from spyweb.ops.rules.values import Unstorable, fits, integral, result_of, shown, size_of, value_from_lua
from spyweb.store.model.entries import KEEP, SCOPES, Drop, Entry, Order, Put, Transform, scope_namespace
from spyweb.store.patterns import excess

T = TypeVar("T")

MALFORMED = "deserialization_error"
TOO_LARGE = "VALUE_TOO_LARGE"

_REACH_DEEPER = frozenset({UpdateKind.MERGE, UpdateKind.APPEND})  # their path may be an array of segments
_NEED_A_VALUE = frozenset({UpdateKind.MERGE, UpdateKind.APPEND})
_COUNT = frozenset({UpdateKind.INCREMENT, UpdateKind.DECREMENT})
_KINDS = {kind.value.encode(): kind for kind in UpdateKind}


class ScopedCall(Struct, frozen=True):
    """One call of a table-first function.  Reading a field raises an OpError whose value is iii's {code, message}."""

    state_call: PositionalCall
    code: str  # iii's for a failure of this function
    fields: Fields

    def refusal(self, reason: str, code: str = "") -> OpError:
        message = f"{self.state_call.function}: {reason}"
        return OpError(message, value={"code": code or self.code, "message": message})

    def malformed(self, reason: str) -> OpError:
        return self.refusal(reason, MALFORMED)

    @property
    def namespace(self) -> str:
        scope = self._short("scope")
        try:
            return scope_namespace(scope.decode())
        except UnicodeDecodeError:
            raise self.malformed("field 'scope': it is not UTF-8") from None

    def key(self) -> bytes:
        return self._short("key")

    def _short(self, name: str) -> bytes:
        """Read a required text that is short."""
        text, limit = self._optional(name, read_text), self.state_call.call.world.state.max_key_bytes
        if text is None:
            raise self.malformed(f"missing field '{name}'")
        if len(text) > limit:
            raise self.refusal(f"{name} '{shown(text)}': {len(text)} bytes are over the limit of {limit}")
        return text

    def pattern(self) -> bytes:
        pattern = self._optional("pattern", read_text)
        if pattern is None:
            return b"*"
        if (reason := excess(pattern)) is not None:
            raise self.refusal(reason)
        return pattern

    def _optional(self, name: str, read: Callable[[object], T]) -> T | None:
        try:
            return value_in(self.fields, name, read)
        except Mismatch as mismatch:
            raise self.malformed(str(mismatch)) from None

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
        size, limit = size_of(value), self.state_call.call.world.state.max_value_bytes
        if size > limit:
            reason = f"key '{shown(self.key())}': the value of {size} bytes is over the limit of {limit}"
            raise self.refusal(reason, TOO_LARGE)

    def expiry(self) -> int | None:
        try:
            return self.state_call.expires_at(self._optional("ttl", read_number))
        except Unstorable as problem:
            raise self.malformed(str(problem)) from None

    def updates(self) -> list[Update]:
        try:
            return [_update(number, fields) for number, fields in enumerate(_ops(self.fields.get(b"ops")))]
        except Mismatch as problem:
            raise self.malformed(str(problem)) from None

    def ask(self, source: Future[T], results: Callable[[T], Results]) -> StoreAnswer[T]:
        return self.state_call.answer(source, results, self._refuse)

    def _refuse(self, error: StoreError) -> Results:
        raise self.refusal(self.state_call.reason(error))

    def change(self, transform: Transform) -> StoreAnswer[object]:
        call = self.state_call.call
        return self.ask(call.values.transform(self.namespace, self.key(), transform, origin=call.origin), one)


def _writing(state_call: PositionalCall, code: str, fields: Fields) -> ScopedCall:
    """Begin a call that writes.  Raises OpError for a scope that spyweb alone writes."""
    call = ScopedCall(state_call, code, fields)
    if call.namespace == NAMESPACE:
        raise OpError(f"{state_call.function}: the scope {SCOPE} is written by spyweb alone")
    return call


def put(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = _writing(state_call, "SET_ERROR", fields)
    value, expires_ms = call.value(), call.expiry()
    return call.change(lambda entry: Put(value, expires_ms, change_of(entry, value)))


def change_of(entry: Entry | None, value: Value) -> dict[str, object]:
    """Return the result of a write; nil stands for no value, and for JSON's null at the top."""
    return {"old_value": result_of(entry.value if entry else None), "new_value": result_of(value)}


def get(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = ScopedCall(state_call, "GET_ERROR", fields)
    return call.ask(state_call.call.values.get(call.namespace, call.key()), lambda value: (result_of(value),))


def delete(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    """Delete a key; watchers hear of it even if there was none."""
    call = _writing(state_call, "DELETE_ERROR", fields)
    return call.change(lambda entry: Drop(result_of(entry.value if entry else None), always_tell=True))


def update(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = _writing(state_call, "UPDATE_ERROR", fields)
    ops = call.updates()
    return call.change(lambda entry: _apply(call, entry, ops))


def _apply(call: ScopedCall, entry: Entry | None, ops: Sequence[Update]) -> Put:
    """Apply the updates; the result is written even if nothing changed, as in iii: watchers hear of every update."""
    try:
        updated = updates.apply(entry.value if entry else None, ops)
    except Unstorable as problem:
        raise call.refusal(f"key '{shown(call.key())}': {problem}") from None
    call.check_size(updated.value)
    result = change_of(entry, updated.value)
    if updated.problems:
        result["errors"] = [_error_of(problem) for problem in updated.problems]
    return Put(updated.value, KEEP, result)


def _error_of(problem: UpdateError) -> dict[str, object]:
    return {"op_index": problem.op_index, "code": problem.code, "message": problem.message}


def list_values(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    """List the values of a scope in the order of their creation."""
    call, values = ScopedCall(state_call, "LIST_ERROR", fields), state_call.call.values
    source: Future[object] = values.gather(
        call.namespace, b"", _array_of, order=Order.CREATED, largest=state_call.largest
    )
    return call.ask(source, one)


def _array_of(items: Iterator[tuple[bytes, Entry]]) -> list[object]:
    return [entry.value for _, entry in items]


def keys(state_call: PositionalCall, fields: Fields) -> StoreAnswer[list[bytes]]:
    call, values = ScopedCall(state_call, "LIST_ERROR", fields), state_call.call.values
    return call.ask(values.keys(call.namespace, call.pattern(), largest=state_call.largest), one)


def list_groups(state_call: PositionalCall) -> StoreAnswer[list[str]]:
    source = state_call.call.values.namespaces(SCOPES, largest=state_call.largest)
    return ScopedCall(state_call, "LIST_GROUPS_ERROR", {}).ask(
        source, lambda names: ({"groups": [name.removeprefix(SCOPES) for name in names]},)
    )


# The ops of an update


def _ops(given: object) -> Sequence[object]:
    if given == {}:
        return []
    if not isinstance(given, list):
        raise Mismatch(f"field 'ops': array expected, got {type_name(given)}")
    if len(given) > MOST_OPS:
        raise Mismatch(f"field 'ops': {len(given)} ops; at most {MOST_OPS} in one update")
    return given


def _update(number: int, fields: object) -> Update:
    try:
        return _read_update(fields)
    except (Mismatch, Unstorable) as problem:
        raise Mismatch(f"ops[{number}]: {problem}") from None


def _read_update(fields: object) -> Update:
    if not isinstance(fields, dict):
        raise Mismatch(f"object expected, got {type_name(fields)}")
    kind = _kind(fields.get(b"type"))
    path = _path(kind, fields.get(b"path"))
    given = fields.get(b"value")
    if kind in _COUNT:
        return Update(kind=kind, path=path, by=_by(fields.get(b"by")))
    if given is None and kind in _NEED_A_VALUE:
        raise Mismatch("missing field 'value'")
    return Update(kind=kind, path=path) if given is None else Update(kind=kind, path=path, value=value_from_lua(given))


def _kind(given: object) -> UpdateKind:
    kind = _KINDS.get(given) if isinstance(given, bytes) else None
    if kind is None:
        name = shown(given) if isinstance(given, bytes) else type_name(given)
        raise Mismatch(f"field 'type': one of {', '.join(UpdateKind)} expected, got {name}")
    return kind


def _path(kind: UpdateKind, given: object) -> Path:
    """Read a path; one that is left out, null, "" or empty is the root, without segments."""
    if type(given) is bytes and given:
        return (given,)
    if given is None or given is NULL or given in (b"", {}, []):
        return ()
    if isinstance(given, list) and kind in _REACH_DEEPER:
        return tuple(read_text(segment) for segment in given)
    return (read_as("field 'path'", read_text, given),)


def _by(given: object) -> int:
    if type(given) is int and fits(given):
        return given
    number = integral(given) if isinstance(given, int | float) and not isinstance(given, bool) else None
    if not isinstance(number, int) or not fits(number):
        raise Mismatch(f"field 'by': integer expected, got {given if number is not None else type_name(given)}")
    return number
