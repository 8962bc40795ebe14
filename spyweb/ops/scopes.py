"""The table-first forms of `state`, as iii has them: keys in scopes, updates with paths, errors as {code, message}.

Errors are raised at once, except for those of the store, which follow later, as {code, message} too.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from spyweb.errors import OpError, StoreError
from spyweb.model import Value
from spyweb.ops.answer import Results, StoreAnswer
from spyweb.ops.positional import Fields, PositionalCall, as_one
from spyweb.ops.resources import NAMESPACE, SCOPE
from spyweb.ops.rules import updates
from spyweb.ops.rules.payload import Payload
from spyweb.ops.rules.updates import Update, UpdateError
from spyweb.ops.rules.values import Unstorable, result_of, shown
from spyweb.store.model.entries import KEEP, SCOPES, Drop, Entry, Order, Put, Transform, scope_namespace

T = TypeVar("T")


class ScopedCall(Struct, frozen=True):
    """One call of a table-first function."""

    state_call: PositionalCall
    payload: Payload

    @property
    def namespace(self) -> str:
        return scope_namespace(self.payload.scope())

    def ask(self, source: Future[T], results: Callable[[T], Results]) -> StoreAnswer[T]:
        return self.state_call.answer(source, results, self.refuse)

    def refuse(self, error: StoreError) -> Results:
        raise self.payload.refusal(self.payload.code, self.state_call.reason(error))

    def change(self, transform: Transform) -> StoreAnswer[object]:
        call, key = self.state_call.call, self.payload.key()
        source = call.values.transform(self.namespace, key, transform, origin=call.origin)
        return self.ask(source, lambda result: (result,))

    def expiry(self) -> int | None:
        try:
            return self.state_call.expires_at(self.payload.number("ttl"))
        except Unstorable as problem:
            raise self.payload.malformed(str(problem)) from None


def scoped_call(state_call: PositionalCall, code: str, fields: Fields, *, writes: bool = False) -> ScopedCall:
    """Begin a table-first call; `code` is iii's for a failure of this function.

    Raises OpError for a write to a scope that spyweb alone writes.
    """
    limits = state_call.call.world.state
    payload = Payload(
        function=state_call.function,
        code=code,
        fields=fields,
        longest=limits.max_key_bytes,
        largest=limits.max_value_bytes,
    )
    call = ScopedCall(state_call, payload)
    if writes and call.namespace == NAMESPACE:
        raise OpError(f"{state_call.function}: the scope {SCOPE} is written by spyweb alone")
    return call


def put(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = scoped_call(state_call, "SET_ERROR", fields, writes=True)
    value, expires_ms = call.payload.value(), call.expiry()
    return call.change(lambda entry: Put(value, expires_ms, change_of(entry, value)))


def change_of(entry: Entry | None, value: Value) -> dict[str, object]:
    """Return the result of a write; nil stands for no value, and for JSON's null at the top."""
    return {"old_value": result_of(entry.value if entry else None), "new_value": result_of(value)}


def get(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = scoped_call(state_call, "GET_ERROR", fields)
    source = state_call.call.values.get(call.namespace, call.payload.key())
    return call.ask(source, lambda value: (result_of(value),))


def delete(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    """Delete a key; watchers hear of it even if there was none."""
    call = scoped_call(state_call, "DELETE_ERROR", fields, writes=True)
    return call.change(lambda entry: Drop(result_of(entry.value if entry else None), always_tell=True))


def update(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = scoped_call(state_call, "UPDATE_ERROR", fields, writes=True)
    ops = call.payload.updates()

    def change(entry: Entry | None) -> Put:
        return _apply(call.payload, entry, ops)

    return call.change(change)


def _apply(payload: Payload, entry: Entry | None, ops: Sequence[Update]) -> Put:
    """Apply the updates; the result is written even if nothing changed, as in iii: watchers hear of every update."""
    try:
        updated = updates.apply(entry.value if entry else None, ops)
    except Unstorable as problem:
        raise payload.refusal(payload.code, f"key '{shown(payload.key())}': {problem}") from None
    payload.check_size(updated.value)
    result = change_of(entry, updated.value)
    if updated.problems:
        result["errors"] = [_error_of(problem) for problem in updated.problems]
    return Put(updated.value, KEEP, result)


def _error_of(problem: UpdateError) -> dict[str, object]:
    return {"op_index": problem.op_index, "code": problem.code, "message": problem.message}


def list_values(state_call: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    """List the values of a scope in the order of their creation."""
    call, values = scoped_call(state_call, "LIST_ERROR", fields), state_call.call.values
    source: Future[object] = values.gather(
        call.namespace, b"", _array_of, order=Order.CREATED, largest=state_call.largest
    )
    return call.ask(source, as_one)


def _array_of(items: Iterator[tuple[bytes, Entry]]) -> list[object]:
    return [entry.value for _, entry in items]


def keys(state_call: PositionalCall, fields: Fields) -> StoreAnswer[list[bytes]]:
    call = scoped_call(state_call, "LIST_ERROR", fields)
    values = state_call.call.values
    source = values.keys(call.namespace, call.payload.pattern(), largest=state_call.largest)
    return call.ask(source, as_one)


def list_groups(state_call: PositionalCall) -> StoreAnswer[list[str]]:
    call = scoped_call(state_call, "LIST_GROUPS_ERROR", {})
    source = state_call.call.values.namespaces(SCOPES, largest=state_call.largest)
    return call.ask(source, lambda names: ({"groups": [name.removeprefix(SCOPES) for name in names]},))
