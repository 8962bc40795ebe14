from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from spyweb.errors import OpError
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL
from spyweb.ops.positional import PositionalCall
from spyweb.ops.rules.updates import Update, UpdateKind
from spyweb.ops.scopes import ScopedCall
from spyweb.settings import StateSettings
from tests.fakes.ops import make_call, make_world, table

NULL_OF_LUA = Foreign(Ext.NULL, "table")
EMPTY_ARRAY = Foreign(Ext.EMPTY_ARRAY, "table")
A_FUNCTION = Foreign(Ext.FOREIGN, "function")


def make_payload(**fields: object) -> ScopedCall:
    call = make_call(make_world(state=StateSettings(max_key_bytes=10, max_value_bytes=100)))
    return ScopedCall(PositionalCall(call, "state.f", None), "F_ERROR", table(**fields))


def refused(read: Callable[[], object]) -> tuple[str, str]:
    """The code and the message of the error that is raised."""
    with pytest.raises(OpError) as caught:
        read()
    value = caught.value.value
    assert isinstance(value, dict)
    assert value["message"] == str(caught.value)
    return value["code"], value["message"].removeprefix("state.f: ")


def test_fields_are_read_as_lua_would() -> None:
    payload = make_payload(scope="é".encode(), key=12, ttl=b"1.5", pattern=b"a*")
    expires_ms = payload.state_call.now_ms + 1_500
    assert (payload.namespace, payload.key(), payload.expiry()) == ("scope:é", b"12", expires_ms)
    assert payload.pattern() == b"a*"
    assert make_payload().pattern() == b"*"
    assert make_payload().expiry() is None


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({}, "deserialization_error", "missing field 'key'"),
        ({"key": True}, "deserialization_error", "field 'key': string expected, got boolean"),
        ({"key": NULL_OF_LUA}, "deserialization_error", "field 'key': string expected, got null"),
        ({"key": b"x" * 11}, "F_ERROR", "key 'xxxxxxxxxxx': 11 bytes are over the limit of 10"),
    ],
)
def test_a_key_is_a_short_text(fields: dict[str, object], code: str, message: str) -> None:
    assert refused(make_payload(**fields).key) == (code, message)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({}, "deserialization_error", "missing field 'scope'"),
        ({"scope": b"\xff"}, "deserialization_error", "field 'scope': it is not UTF-8"),
        ({"scope": b"x" * 11}, "F_ERROR", "scope 'xxxxxxxxxxx': 11 bytes are over the limit of 10"),
    ],
)
def test_a_scope_is_a_short_readable_text(fields: dict[str, object], code: str, message: str) -> None:
    assert refused(lambda: make_payload(**fields).namespace) == (code, message)


def test_a_value_may_be_called_data() -> None:
    assert make_payload(data=1.0).value() == 1
    assert make_payload(value=2, data=1).value() == 2
    assert make_payload(value=False).value() is False
    assert make_payload(value=NULL_OF_LUA).value() is NULL


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        (None, "deserialization_error", "missing field 'value'; JSON's null is state.null"),
        (A_FUNCTION, "deserialization_error", "key 'k': a function can't be stored"),
        ({b"x": math.nan}, "deserialization_error", "key 'k': NaN can't be stored (at .x)"),
        (b"x" * 101, "VALUE_TOO_LARGE", "key 'k': the value of 101 bytes is over the limit of 100"),
    ],
)
def test_a_value_that_can_not_be_kept_is_refused(value: object, code: str, message: str) -> None:
    assert refused(make_payload(key=b"k", value=value).value) == (code, message)


def test_a_number_must_be_one() -> None:
    assert refused(make_payload(ttl=True).expiry)[1] == "field 'ttl': number expected, got boolean"


@pytest.mark.parametrize(
    ("fields", "update"),
    [
        ({b"type": b"set", b"path": b"a", b"value": 1}, Update(kind=UpdateKind.SET, path=(b"a",), value=1)),
        ({b"type": b"set"}, Update(kind=UpdateKind.SET, path=(), value=NULL)),
        ({b"type": b"set", b"path": b"", b"value": EMPTY_ARRAY}, Update(kind=UpdateKind.SET, path=(), value=[])),
        ({b"type": b"set", b"path": 5, b"value": 1}, Update(kind=UpdateKind.SET, path=(b"5",), value=1)),
        ({b"type": b"merge", b"value": {}}, Update(kind=UpdateKind.MERGE, path=(), value={})),
        (
            {b"type": b"merge", b"path": [b"a.b", b"c"], b"value": 1},
            Update(kind=UpdateKind.MERGE, path=(b"a.b", b"c"), value=1),
        ),
        ({b"type": b"merge", b"path": {}, b"value": {}}, Update(kind=UpdateKind.MERGE, path=(), value={})),
        ({b"type": b"append", b"path": NULL_OF_LUA, b"value": 1}, Update(kind=UpdateKind.APPEND, path=(), value=1)),
        ({b"type": b"append", b"path": EMPTY_ARRAY, b"value": 1}, Update(kind=UpdateKind.APPEND, path=(), value=1)),
        ({b"type": b"append", b"value": NULL_OF_LUA}, Update(kind=UpdateKind.APPEND, path=(), value=NULL)),
        ({b"type": b"increment", b"path": b"n", b"by": 2.0}, Update(kind=UpdateKind.INCREMENT, path=(b"n",), by=2)),
        ({b"type": b"decrement", b"by": -3}, Update(kind=UpdateKind.DECREMENT, path=(), by=-3)),
        ({b"type": b"remove", b"path": b"a"}, Update(kind=UpdateKind.REMOVE, path=(b"a",))),
        ({b"type": b"remove"}, Update(kind=UpdateKind.REMOVE, path=())),
    ],
)
def test_an_op_is_read_and_without_a_path_it_is_the_roots(fields: object, update: Update) -> None:
    assert make_payload(ops=[fields]).updates() == [update]


@pytest.mark.parametrize("ops", [{}, EMPTY_ARRAY])
def test_no_ops_are_an_empty_array(ops: object) -> None:
    assert make_payload(ops=ops).updates() == []


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
    assert refused(make_payload(ops=ops).updates) == ("deserialization_error", message)
