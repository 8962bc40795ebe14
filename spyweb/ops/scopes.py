"""The table-first forms of `state`, as iii has them: keys in scopes, updates with paths, errors as {code, message}.

Errors are raised at once, except for those of the store, which follow later, as {code, message} too.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.ops.answer import Results, StoreAnswer
from spyweb.ops.positional import Fields, PositionalCall, as_one
from spyweb.ops.rules import updates
from spyweb.ops.rules.expiry import expiry_of
from spyweb.ops.rules.payload import Payload
from spyweb.ops.rules.updates import Update, UpdateError
from spyweb.ops.rules.values import Unstorable, result_of, shown
from spyweb.store.values_protocol import KEEP, SCOPES, Drop, Entry, Order, Put, Transform, scope_namespace

T = TypeVar("T")

MOST_AT_ONCE = 500  # ops of an update; more take long


@dataclass(frozen=True, slots=True)
class ScopedCall:
    """One call of a table-first function."""

    here: PositionalCall
    payload: Payload

    @property
    def namespace(self) -> str:
        return scope_namespace(self.payload.scope())

    def ask(self, source: Future[T], results: Callable[[T], Results]) -> StoreAnswer[T]:
        return self.here.answer(source, results, self.refuse)

    def refuse(self, error: StoreError) -> Results:
        raise self.payload.refusal(self.payload.code, self.here.reason(error))

    def change(self, transform: Transform) -> StoreAnswer[object]:
        call, key = self.here.call, self.payload.key()
        source = call.world.store.values.transform(self.namespace, key, transform, origin=call.origin)
        return self.ask(source, lambda result: (result,))

    def expiry(self) -> int | None:
        try:
            return expiry_of(self.payload.number("ttl"), self.here.now_ms)
        except Unstorable as problem:
            raise self.payload.malformed(str(problem)) from None


def scoped_call(here: PositionalCall, code: str, fields: Fields) -> ScopedCall:
    """Begin a table-first call; `code` is iii's for a failure of this function."""
    limits = here.call.world.state
    payload = Payload(
        function=here.function,
        code=code,
        fields=fields,
        longest=limits.max_key_bytes,
        largest=limits.max_value_bytes,
    )
    return ScopedCall(here, payload)


def put(here: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = scoped_call(here, "SET_ERROR", fields)
    value, expires_ms = call.payload.value(), call.expiry()
    return call.change(lambda entry: Put(value, expires_ms, change_of(entry, value)))


def change_of(entry: Entry | None, value: Value) -> dict[str, object]:
    """Return the result of a write; nil stands for no value, and for JSON's null at the top."""
    return {"old_value": result_of(entry.value if entry else None), "new_value": result_of(value)}


def get(here: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = scoped_call(here, "GET_ERROR", fields)
    source = here.call.world.store.values.get(call.namespace, call.payload.key())
    return call.ask(source, lambda value: (result_of(value),))


def delete(here: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    """Delete a key; watchers hear of it even if there was none."""
    call = scoped_call(here, "DELETE_ERROR", fields)
    return call.change(lambda entry: Drop(result_of(entry.value if entry else None), always_tell=True))


def update(here: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    call = scoped_call(here, "UPDATE_ERROR", fields)
    ops = call.payload.updates()

    def change(entry: Entry | None) -> Put:
        return _apply(call.payload, entry, ops)

    values = here.call.world.store.values
    write = values.transform_long if len(ops) > MOST_AT_ONCE else values.transform
    return call.ask(write(call.namespace, call.payload.key(), change, origin=here.call.origin), as_one)


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


def list_values(here: PositionalCall, fields: Fields) -> StoreAnswer[object]:
    """List the values of a scope in the order of their creation."""
    call, values = scoped_call(here, "LIST_ERROR", fields), here.call.world.store.values
    source: Future[object] = values.gather(call.namespace, b"", _array_of, order=Order.CREATED, largest=here.largest)
    return call.ask(source, as_one)


def _array_of(items: Iterator[tuple[bytes, Entry]]) -> list[object]:
    return [entry.value for _, entry in items]


def keys(here: PositionalCall, fields: Fields) -> StoreAnswer[list[bytes]]:
    call = scoped_call(here, "LIST_ERROR", fields)
    values = here.call.world.store.values
    source = values.keys(call.namespace, call.payload.pattern(), largest=here.largest)
    return call.ask(source, as_one)


def list_groups(here: PositionalCall) -> StoreAnswer[list[str]]:
    call = scoped_call(here, "LIST_GROUPS_ERROR", {})
    source = here.call.world.store.values.namespaces(SCOPES, largest=here.largest)
    return call.ask(source, lambda names: ({"groups": [name.removeprefix(SCOPES) for name in names]},))
