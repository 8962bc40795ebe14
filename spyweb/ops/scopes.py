"""The table-first forms of `state`, as iii has them: keys in scopes, updates with paths, errors as {code, message}."""

from __future__ import annotations

from asyncio import Future

from spyweb.errors import OpError
from spyweb.lua.session import StoreAnswer
from spyweb.model import NULL, Value
from spyweb.ops.arguments import Mismatch, read_as, read_number, read_text, text_in, type_name, value_in
from spyweb.ops.positional import Fields, StateCall, one
from spyweb.ops.resources import NAMESPACE, SCOPE
from spyweb.ops.rules import updates
from spyweb.ops.rules.updates import MOST_OPS, Path, Update, UpdateKind
from spyweb.ops.rules.values import Unstorable, fits, integral, result_of, shown, value_from_lua
from spyweb.store.model.entries import KEEP, SCOPES, Drop, Entry, Leave, Order, Put, scope_namespace

_DEEP = frozenset({UpdateKind.MERGE, UpdateKind.APPEND})  # their path may be an array of segments; they need a value
_COUNT = frozenset({UpdateKind.INCREMENT, UpdateKind.DECREMENT})
_KINDS = {kind.value.encode(): kind for kind in UpdateKind}


def _begin(state: StateCall, code: str, fields: Fields, *, has_key: bool = True, writes: bool = False) -> None:
    """Let a call be about a scope, and a key in it.  Raises OpError for a scope that spyweb alone writes."""
    state.code = code
    try:
        state.namespace = scope_namespace(state.short("scope", _needed(fields, "scope")).decode())
    except UnicodeDecodeError:
        raise Mismatch("field 'scope': it is not UTF-8") from None
    if writes and state.namespace == NAMESPACE:
        raise OpError(f"{state.function}: the scope {SCOPE} is written by spyweb alone")
    if has_key:
        state.about(_needed(fields, "key"))


def _needed(fields: Fields, name: str) -> bytes:
    text = text_in(fields, name)
    if text is None:
        raise Mismatch(f"missing field '{name}'")
    return text


def put(state: StateCall, fields: Fields) -> StoreAnswer[object]:
    _begin(state, "SET_ERROR", fields, writes=True)
    value, expires_ms = read_value(fields), state.expiry(value_in(fields, "ttl", read_number))
    return state.change(lambda entry: state.put(value, expires_ms, _change_of(entry, value)))


def read_value(fields: Fields) -> Value:
    """Read the value to store.  Raises Unstorable, Mismatch."""
    given = fields.get(b"value")
    if given is None:
        given = fields.get(b"data")
    if given is None:
        raise Mismatch("missing field 'value'; JSON's null is state.null")
    return value_from_lua(given)


def _change_of(entry: Entry | None, value: Value) -> dict[str, object]:
    """Return the result of a write; nil stands for no value, and for JSON's null at the top."""
    return {"old_value": result_of(entry.value if entry else None), "new_value": result_of(value)}


def get(state: StateCall, fields: Fields) -> StoreAnswer[object]:
    _begin(state, "GET_ERROR", fields)
    return state.answer(state.values.get(state.namespace, state.key), lambda value: (result_of(value),))


def delete(state: StateCall, fields: Fields) -> StoreAnswer[object]:
    """Delete a key; watchers hear of it even if there was none."""
    _begin(state, "DELETE_ERROR", fields, writes=True)
    return state.change(lambda entry: Drop((result_of(entry.value if entry else None),), always_tell=True))


def update(state: StateCall, fields: Fields) -> StoreAnswer[object]:
    """Apply updates; the result is written even if nothing changed, as in iii: watchers hear of every update."""
    _begin(state, "UPDATE_ERROR", fields, writes=True)
    ops = read_updates(fields.get(b"ops"))

    def change(entry: Entry | None) -> Put | Leave:
        try:
            updated = updates.apply(entry.value if entry else None, ops)
        except Unstorable as problem:
            return state.leave(str(problem))
        result = _change_of(entry, updated.value)
        if updated.problems:
            result["errors"] = [
                {"op_index": each.op_index, "code": each.code, "message": each.message} for each in updated.problems
            ]
        return state.put(updated.value, KEEP, result)

    return state.change(change)


def list_values(state: StateCall, fields: Fields) -> StoreAnswer[object]:
    """List the values of a scope in the order of their creation."""
    _begin(state, "LIST_ERROR", fields, has_key=False)
    source: Future[object] = state.values.gather(
        state.namespace,
        b"",
        lambda items: [entry.value for _, entry in items],
        order=Order.CREATED,
        largest=state.largest,
    )
    return state.answer(source, one)


def keys(state: StateCall, fields: Fields) -> StoreAnswer[list[bytes]]:
    _begin(state, "LIST_ERROR", fields, has_key=False)
    given = text_in(fields, "pattern")
    pattern = b"*" if given is None else state.pattern(given)
    return state.answer(state.values.keys(state.namespace, pattern, largest=state.largest), one)


def list_groups(state: StateCall) -> StoreAnswer[list[str]]:
    state.code = "LIST_GROUPS_ERROR"
    source = state.values.namespaces(SCOPES, largest=state.largest)
    return state.answer(source, lambda names: ({"groups": [name.removeprefix(SCOPES) for name in names]},))


# The ops of an update


def read_updates(given: object) -> list[Update]:
    """Read the ops of an update.  Raises Mismatch."""
    if given == {}:
        return []
    if not isinstance(given, list):
        raise Mismatch(f"field 'ops': array expected, got {type_name(given)}")
    if len(given) > MOST_OPS:
        raise Mismatch(f"field 'ops': {len(given)} ops; at most {MOST_OPS} in one update")
    read = []
    try:
        for fields in given:
            read.append(_read_update(fields))  # noqa: PERF401 - its length says which one is wrong
    except (Mismatch, Unstorable) as problem:
        raise Mismatch(f"ops[{len(read)}]: {problem}") from None
    return read


def _read_update(fields: object) -> Update:
    if not isinstance(fields, dict):
        raise Mismatch(f"object expected, got {type_name(fields)}")
    kind = _kind(fields.get(b"type"))
    path = _path(kind, fields.get(b"path"))
    given = fields.get(b"value")
    if kind in _COUNT:
        return Update(kind=kind, path=path, by=_by(fields.get(b"by")))
    if given is None and kind in _DEEP:
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
    if isinstance(given, list) and kind in _DEEP:
        return tuple(read_text(segment) for segment in given)
    return (read_as("field 'path'", read_text, given),)


def _by(given: object) -> int:
    if type(given) is int and fits(given):
        return given
    number = integral(given) if isinstance(given, int | float) and not isinstance(given, bool) else None
    if not isinstance(number, int) or not fits(number):
        raise Mismatch(f"field 'by': integer expected, got {given if number is not None else type_name(given)}")
    return number
