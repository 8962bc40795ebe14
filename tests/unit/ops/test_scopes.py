from __future__ import annotations

import math
import re

import pytest

from spyweb.errors import OpError
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL, ChangeKind, RunId
from spyweb.ops.arguments import Mismatch
from spyweb.ops.rules.updates import Update, UpdateKind
from spyweb.ops.scopes import read_updates, read_value
from spyweb.ops.world import Call
from spyweb.settings.sections import StateSettings
from spyweb.store.model.entries import SCOPES, Watch
from tests.fakes.changes import kept
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import PRICES, ask, make_call, make_world, table


def at(key: str = "k", scope: str = "orders", **fields: object) -> dict[object, object]:
    return table(scope=scope.encode(), key=key.encode(), **fields)


def step(kind: str, **fields: object) -> dict[object, object]:
    return table(type=kind.encode(), **fields)


async def code_of(call: Call, name: str, options: object) -> str:
    with pytest.raises(OpError) as caught:
        await ask(call, name, options)
    value = caught.value.value
    assert isinstance(value, dict)
    assert value["message"] == str(caught.value)
    assert value["message"].startswith(f"{name}: ")
    return str(value["code"])


async def test_null_is_kept_and_is_nil_at_the_top() -> None:
    call = make_call()
    assert await ask(call, "state.set", at(value=NULL)) == [{"old_value": None, "new_value": None}]
    assert await ask(call, "state.get", at()) == [None]
    assert await ask(call, "state.keys", table(scope=b"orders")) == [[b"k"]]
    await ask(call, "state.set", at(value={b"a": NULL}))
    assert await ask(call, "state.get", at()) == [{b"a": NULL}]


async def test_a_scope_lists_its_values_in_the_order_of_their_creation_and_its_keys_sorted() -> None:
    call = make_call()
    for key, value in (("z", 1), ("a", [2]), ("m", NULL)):
        await ask(call, "state.set", at(key, value=value))
    await ask(call, "state.set", at("z", value=9))
    assert await ask(call, "state.list", table(scope=b"orders")) == [[9, [2], NULL]]
    assert await ask(call, "state.list", table(scope=b"nothing")) == [[]]
    assert await ask(call, "state.keys", table(scope=b"orders")) == [[b"a", b"m", b"z"]]
    assert await ask(call, "state.keys", table(scope=b"orders", pattern=b"?")) == [[b"a", b"m", b"z"]]
    assert await ask(call, "state.keys", table(scope=b"orders", pattern=b"m*")) == [[b"m"]]


async def test_groups_are_the_scopes_that_hold_something_and_nothing_else() -> None:
    call = make_call()
    assert await ask(call, "state.list_groups") == [{"groups": []}]
    await ask(call, "state.set", b"positional", 1)
    await ask(call, "store_set", b"text", b"1")
    for scope in ("users", "config", "gone"):
        await ask(call, "state.set", at(scope=scope, value=1))
    await ask(call, "state.delete", at(scope="gone"))
    assert await ask(call, "state.list_groups") == [{"groups": ["config", "users"]}]


async def test_a_scope_is_no_way_into_another_namespace() -> None:
    call = make_call()
    await ask(call, "state.set", b"k", 1)
    await ask(call, "store_set", b"k", b"1")
    for scope in ("state", "job:prices", "global", "scope:orders", ""):
        assert await ask(call, "state.get", at(scope=scope)) == [None]


async def test_an_update_applies_its_ops_and_reports_what_it_skipped() -> None:
    call = make_call()
    await ask(call, "state.set", at(value={b"n": 1, b"s": b"x"}))
    ops = [
        step("increment", path=b"n", by=2),
        step("increment", path=b"s", by=1),
        step("append", path=[b"log", b"lines"], value=b"hello"),
    ]
    (result,) = await ask(call, "state.update", at(ops=ops))
    new = {b"n": 3, b"s": b"x", b"log": {b"lines": [b"hello"]}}
    skipped = {"op_index": 1, "code": "increment.not_number", "message": "'s' holds a string, not a number"}
    assert result == {"old_value": {b"n": 1, b"s": b"x"}, "new_value": new, "errors": [skipped]}
    assert await ask(call, "state.get", at()) == [new]


async def test_an_update_with_too_many_number_keys_says_so_and_changes_nothing() -> None:
    call = make_call()
    merges = [step("merge", value=dict.fromkeys(range(at, at + 1_000), 1)) for at in range(0, 6_000, 1_000)]
    with pytest.raises(OpError, match=r"key 'k': a table over the limit of 5000 number keys in all can't be stored"):
        await ask(call, "state.update", at(ops=merges))
    assert await ask(call, "state.get", at()) == [None]


async def test_an_update_without_ops_or_a_path_and_on_a_missing_key() -> None:
    call = make_call()
    assert await ask(call, "state.update", at(ops={})) == [{"old_value": None, "new_value": {}}]
    assert await ask(call, "state.get", at()) == [{}]
    counted = {"old_value": None, "new_value": 5}
    assert await ask(call, "state.update", at("n", ops=[step("increment", by=5)])) == [counted]
    removed = {"old_value": 5, "new_value": None}
    assert await ask(call, "state.update", at("n", ops=[step("remove")])) == [removed]
    assert await ask(call, "state.keys", table(scope=b"orders")) == [[b"k", b"n"]]


async def test_a_set_replaces_the_expiry_and_an_update_keeps_it() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    call = make_call(make_world(store=store, clock=clock))
    now = clock.now_ms()

    async def expiry() -> int | None:
        entry = await store.values.read("scope:orders", b"k")
        assert entry is not None
        return entry.expires_ms

    await ask(call, "state.set", at(value={}, ttl=60))
    assert await expiry() == now + 60_000
    await ask(call, "state.update", at(ops=[step("set", path=b"a", value=1)]))
    assert await expiry() == now + 60_000
    await ask(call, "state.set", at(value=1))
    assert await expiry() is None


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("state.set", table(scope=b"s", key=b"k"), "deserialization_error"),
        ("state.set", table(scope=b"s", value=1), "deserialization_error"),
        ("state.set", table(key=b"k", value=1), "deserialization_error"),
        ("state.set", [b"s", b"k", 1], "deserialization_error"),
        ("state.set", {}, "deserialization_error"),
        ("state.set", [], "deserialization_error"),
        ("state.set", at(value=1, ttl=float("nan")), "deserialization_error"),
        ("state.set", at("x" * 513, value=1), "SET_ERROR"),
        ("state.set", at(value=b"x" * 101), "VALUE_TOO_LARGE"),
        ("state.get", at("x" * 513), "GET_ERROR"),
        ("state.delete", at("x" * 513), "DELETE_ERROR"),
        ("state.update", at("x" * 513, ops={}), "UPDATE_ERROR"),
        ("state.update", at(), "deserialization_error"),
        ("state.update", at(ops=[step("increment", by=1.5)]), "deserialization_error"),
        ("state.update", at(ops=[step("append", value=b"x" * 101)]), "VALUE_TOO_LARGE"),
        ("state.list", table(scope=b"x" * 513), "LIST_ERROR"),
        ("state.list", table(), "deserialization_error"),
        ("state.keys", table(scope=b"s", pattern={}), "deserialization_error"),
        ("state.keys", table(scope=b"s", pattern=b"*" * 1025), "LIST_ERROR"),
    ],
)
async def test_what_is_wrong_raises_a_table_with_a_code_and_writes_nothing(
    name: str, options: object, code: str
) -> None:
    call = make_call(make_world(state=StateSettings(max_value_bytes=100)))
    assert await code_of(call, name, options) == code
    assert await ask(call, "state.list_groups") == [{"groups": []}]


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("state.set", at(value=1), "SET_ERROR"),
        ("state.get", at(), "GET_ERROR"),
        ("state.delete", at(), "DELETE_ERROR"),
        ("state.update", at(ops={}), "UPDATE_ERROR"),
        ("state.list", table(scope=b"s"), "LIST_ERROR"),
        ("state.keys", table(scope=b"s"), "LIST_ERROR"),
        ("state.list_groups", None, "LIST_GROUPS_ERROR"),
    ],
)
async def test_a_failing_store_raises_a_table_too(name: str, options: object, code: str) -> None:
    store = MemoryStore(FakeClock())
    await store.close()
    call = make_call(make_world(store=store))
    assert await code_of(call, name, options) == code
    assert call.tally.storage_errors == 1


async def test_watchers_hear_of_every_write_even_of_a_delete_of_nothing() -> None:
    store = MemoryStore(FakeClock())
    store.events.watch([Watch(job=PRICES, namespace=SCOPES, is_prefix=True)])
    call = make_call(make_world(store=store), depth=2)
    await ask(call, "state.delete", at())
    await ask(call, "state.set", at(value=1))
    await ask(call, "state.set", at(value=1))
    await ask(call, "state.update", at(ops={}))
    await ask(call, "state.delete", at())
    events = await kept(store)
    created, updated, deleted = ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED
    assert [(event.kind, event.old, event.new) for event in events] == [
        (deleted, None, None),
        (created, None, 1),
        (updated, 1, 1),
        (updated, 1, 1),
        (deleted, 1, None),
    ]
    origin = events[0].origin
    assert (origin.job, origin.run, origin.depth) == (PRICES, RunId(1), 2)


A_FUNCTION = Foreign(Ext.FOREIGN, "function")


async def test_fields_are_read_as_lua_would() -> None:
    clock = FakeClock()
    call = make_call(make_world(clock=clock))
    await ask(call, "state.set", table(scope="é".encode(), key=12, value=1, ttl=b"1.5"))
    entry = await call.world.store.values.read("scope:é", b"12")
    assert entry is not None
    assert entry.expires_ms == clock.now_ms() + 1_500


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"key": None}, "deserialization_error", "missing field 'key'"),
        ({"key": True}, "deserialization_error", "field 'key': string expected, got boolean"),
        ({"key": NULL}, "deserialization_error", "field 'key': string expected, got null"),
        ({"key": b"x" * 11}, "SET_ERROR", "key 'xxxxxxxxxxx': 11 bytes are over the limit of 10"),
        ({"scope": None}, "deserialization_error", "missing field 'scope'"),
        ({"scope": b"\xff"}, "deserialization_error", "field 'scope': it is not UTF-8"),
        ({"scope": b"x" * 11}, "SET_ERROR", "scope 'xxxxxxxxxxx': 11 bytes are over the limit of 10"),
        ({"value": None}, "deserialization_error", "missing field 'value'; JSON's null is state.null"),
        ({"value": A_FUNCTION}, "deserialization_error", "key 'k': a function can't be stored"),
        ({"value": {b"x": math.nan}}, "deserialization_error", "key 'k': NaN can't be stored (at .x)"),
        ({"value": b"x" * 101}, "VALUE_TOO_LARGE", "key 'k': the value of 101 bytes is over the limit of 100"),
        ({"ttl": True}, "deserialization_error", "field 'ttl': number expected, got boolean"),
    ],
)
async def test_a_field_of_another_kind_is_refused(fields: dict[str, object], code: str, message: str) -> None:
    call = make_call(make_world(state=StateSettings(max_key_bytes=10, max_value_bytes=100)))
    with pytest.raises(OpError) as caught:
        await ask(call, "state.set", table(**{"scope": b"s", "key": b"k", "value": 1} | fields))
    assert caught.value.value == {"code": code, "message": f"state.set: {message}"}
    assert str(caught.value) == f"state.set: {message}"


def test_a_value_may_be_called_data() -> None:
    assert read_value(table(data=1.0)) == 1
    assert read_value(table(value=2, data=1)) == 2
    assert read_value(table(value=False)) is False
    assert read_value(table(value=NULL)) is NULL


@pytest.mark.parametrize(
    ("fields", "update"),
    [
        ({b"type": b"set", b"path": b"a", b"value": 1}, Update(kind=UpdateKind.SET, path=(b"a",), value=1)),
        ({b"type": b"set"}, Update(kind=UpdateKind.SET, path=(), value=NULL)),
        ({b"type": b"set", b"path": b"", b"value": []}, Update(kind=UpdateKind.SET, path=(), value=[])),
        ({b"type": b"set", b"path": 5, b"value": 1}, Update(kind=UpdateKind.SET, path=(b"5",), value=1)),
        ({b"type": b"merge", b"value": {}}, Update(kind=UpdateKind.MERGE, path=(), value={})),
        (
            {b"type": b"merge", b"path": [b"a.b", b"c"], b"value": 1},
            Update(kind=UpdateKind.MERGE, path=(b"a.b", b"c"), value=1),
        ),
        ({b"type": b"merge", b"path": {}, b"value": {}}, Update(kind=UpdateKind.MERGE, path=(), value={})),
        ({b"type": b"append", b"path": NULL, b"value": 1}, Update(kind=UpdateKind.APPEND, path=(), value=1)),
        ({b"type": b"append", b"path": [], b"value": 1}, Update(kind=UpdateKind.APPEND, path=(), value=1)),
        ({b"type": b"append", b"value": NULL}, Update(kind=UpdateKind.APPEND, path=(), value=NULL)),
        ({b"type": b"increment", b"path": b"n", b"by": 2.0}, Update(kind=UpdateKind.INCREMENT, path=(b"n",), by=2)),
        ({b"type": b"decrement", b"by": -3}, Update(kind=UpdateKind.DECREMENT, path=(), by=-3)),
        ({b"type": b"remove", b"path": b"a"}, Update(kind=UpdateKind.REMOVE, path=(b"a",))),
        ({b"type": b"remove"}, Update(kind=UpdateKind.REMOVE, path=())),
    ],
)
def test_an_op_is_read_and_without_a_path_it_is_the_roots(fields: object, update: Update) -> None:
    assert read_updates([fields]) == [update]


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (None, "field 'ops': array expected, got nil"),
        ({b"type": b"set"}, "field 'ops': array expected, got table"),
        ([{b"type": b"remove"}] * 1_001, "field 'ops': 1001 ops; at most 1000 in one update"),
        ([5], "ops[0]: object expected, got number"),
        ([{b"type": b"set"}, {}], "ops[1]: field 'type': one of set, merge, increment, decrement, append, remove "
         "expected, got nil"),
        ([{b"type": b"Set"}], "ops[0]: field 'type': one of set, merge, increment, decrement, append, remove "
         "expected, got Set"),
        ([{b"type": b"set", b"path": [b"a"]}], "ops[0]: field 'path': string expected, got table"),
        ([{b"type": b"remove", b"path": True}], "ops[0]: field 'path': string expected, got boolean"),
        ([{b"type": b"append", b"path": [True], b"value": 1}], "ops[0]: string expected, got boolean"),
        ([{b"type": b"merge"}], "ops[0]: missing field 'value'"),
        ([{b"type": b"append"}], "ops[0]: missing field 'value'"),
        ([{b"type": b"set", b"value": A_FUNCTION}], "ops[0]: a function can't be stored"),
        ([{b"type": b"increment"}], "ops[0]: field 'by': integer expected, got nil"),
        ([{b"type": b"increment", b"by": 1.5}], "ops[0]: field 'by': integer expected, got 1.5"),
        ([{b"type": b"increment", b"by": b"1"}], "ops[0]: field 'by': integer expected, got string"),
        ([{b"type": b"increment", b"by": True}], "ops[0]: field 'by': integer expected, got boolean"),
        ([{b"type": b"increment", b"by": 2.0**70}], f"ops[0]: field 'by': integer expected, got {2.0**70}"),
    ],
)  # fmt: skip
def test_ops_of_another_shape_fail_the_whole_call(ops: object, message: str) -> None:
    with pytest.raises(Mismatch, match=f"^{re.escape(message)}$"):
        read_updates(ops)
