"""Values as JSON that people and programs read."""

from __future__ import annotations

import math
import time
from typing import cast

import msgspec
import pytest

from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Value
from spyweb.ops.rules.updates import MOST_SEGMENTS, Update, UpdateKind, apply
from spyweb.store.interchange.value_json import (
    MAX_DEPTH,
    TypeName,
    decode_value,
    encode_value,
    holds_more_than,
    type_of,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"gr\xc3\xb6\xc3\x9fe", '"größe"'),
        (b"\xff\x00", '{"$base64":"/wA="}'),
        (b"\x00", '"\\u0000"'),
        (3, "3"),
        (True, "true"),
        (0.5, "0.5"),
        (1e300, "1e300"),
        (math.inf, '{"$number":"inf"}'),
        (-math.inf, '{"$number":"-inf"}'),
        (NULL, "null"),
        ([], "[]"),
        ({}, "{}"),
        ([1, NULL, [b"a"]], '[1,null,["a"]]'),
        ({b"a": {b"b": NULL}}, '{"a":{"b":null}}'),
        ({1: b"a", b"n": True}, '{"$table":[[1,"a"],["n",true]]}'),
        ({0.5: 1, True: 2}, '{"$table":[[0.5,1],[true,2]]}'),
        ({b"\xff": 1}, '{"$table":[[{"$base64":"/w=="},1]]}'),
        ({b"$base64": b"x"}, '{"$table":[["$base64","x"]]}'),
        ({b"$table": 1}, '{"$table":[["$table",1]]}'),
        ({b"$number": 1}, '{"$table":[["$number",1]]}'),
        ({b"$base64": 1, b"b": 2}, '{"$base64":1,"b":2}'),
        ({b"$other": 1}, '{"$other":1}'),
    ],
)
def test_a_value_has_one_form_and_comes_back_from_it(value: Value, text: str) -> None:
    assert encode_value(value).decode() == text
    back = decode_value(text.encode())
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3.0", 3),
        ("-0.0", 0),
        ("1e5", 100_000),
        ("9223372036854775807", (1 << 63) - 1),
        ("9223372036854775808", 2.0**63),
        ('{"$table":[[1,"a"],[2,"b"]]}', [b"a", b"b"]),
        ('{"$table":[[2.0,"b"],[1,"a"]]}', [b"a", b"b"]),
        ('{"$table":[]}', {}),
        ('{"$table":[[true,"a"]]}', {True: b"a"}),
        (' "a" ', b"a"),
    ],
)
def test_numbers_and_tables_are_read_as_lua_would(text: str, value: Value) -> None:
    back = decode_value(text.encode())
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b'"\xff"', "is not UTF-8"),
        (b'{"$base64":"%"}', "has a $base64 that is not base64: '%'"),
        (b'{"$base64":1}', "has an invalid $base64: 1"),
        (b'{"$base64":"\xc3\xbc"}', "has a $base64 that is not base64"),
        (b'{"$number":"nan"}', 'has an invalid $number: "nan"'),
        (b'{"$table":{}}', "has an invalid $table: {}"),
        (b'{"$table":[1]}', "has a $table that is not a list of pairs"),
        (b'{"$table":[[1]]}', "has a $table that is not a list of pairs"),
        (b'{"$table":[[null,1]]}', "with a key that is neither text nor number nor boolean"),
        (b'{"$table":[[[],1]]}', "with a key that is neither text nor number nor boolean"),
        (b'{"$table":[["a",1],["a",2]]}', 'with the same key twice: "a"'),
        (b"1" + b"0" * 400, "out of range"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), f"is nested deeper than {MAX_DEPTH} tables"),
        (b"[" * 100_000, f"is nested deeper than {MAX_DEPTH} tables"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), f"is nested deeper than {MAX_DEPTH} tables"),
    ],
)
def test_what_is_no_value_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        decode_value(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_as_deep_as_scripts_can_build_comes_out_and_goes_back_in() -> None:
    item: Value = 1
    for _ in range(64):
        item = {b"\xff": item}
    path = tuple(b"%d" % number for number in range(MOST_SEGMENTS))
    deepest = apply(None, [Update(kind=UpdateKind.APPEND, path=path, value=item)])
    assert not deepest.problems
    assert decode_value(encode_value(deepest.value)) == deepest.value


def test_each_value_has_a_type_for_people() -> None:
    values: list[Value] = [b"", 1, 1.5, True, [], {}, NULL]
    assert [type_of(value) for value in values] == [
        TypeName.STRING,
        TypeName.NUMBER,
        TypeName.NUMBER,
        TypeName.BOOLEAN,
        TypeName.LIST,
        TypeName.TABLE,
        TypeName.NULL,
    ]


@pytest.mark.parametrize(
    ("text", "most", "is_more"),
    [
        ("[1,2,3]", 4, False),
        ("[1,2,3]", 3, True),
        ('{"a":{"b":[]}}', 3, True),
        ('{"a":{"b":[]}}', 4, False),
        ('"' + ",[{" * 1_000 + '"', 10, False),
        (r'["a\",\",\",\",", 1]', 3, False),
        (r'["\\",1,2,3]', 4, True),
        ('["' + "x" * 70_000 + r"\"" + "," * 70_000 + '"]', 10, False),
        ('["' + "x" * 65_533 + r"\"" + "," * 70_000 + '"]', 10, False),
        ('["' + ",,,,", 3, False),
        ('"' + ",,,,\\", 3, False),
    ],
)
def test_the_values_in_a_text_are_counted_without_being_built(text: str, most: int, is_more: bool) -> None:
    assert holds_more_than(most, text.encode()) is is_more


def test_counting_takes_time_linear_in_the_length() -> None:
    def seconds(size: int) -> float:
        began = time.thread_time()
        holds_more_than(10 * size, b"[" + b'"\\",",' * size + b"1]")
        return time.thread_time() - began

    assert seconds(200_000) < 8 * seconds(50_000) + 0.05


def test_a_value_of_too_many_is_refused_with_the_reason() -> None:
    assert decode_value(b"[1,2]", 3) == [1, 2]
    with pytest.raises(ValueError, match=r"^holds more than 3 values$"):
        decode_value(b"[1,2,3]", 3)


def test_a_table_of_too_many_number_keys_is_refused_before_it_is_built() -> None:
    pairs = [[number / 2, 1] for number in range(NUMBER_KEYS + 1)]

    assert len(cast("dict[object, object]", decode_value(msgspec.json.encode({"$table": pairs[1:]})))) == NUMBER_KEYS
    with pytest.raises(ValueError, match="has a table over the limit of 5000 number keys in all"):
        decode_value(msgspec.json.encode([{"$table": pairs}]))
    with pytest.raises(ValueError, match="has a table over the limit of 5000 number keys in all"):
        decode_value(msgspec.json.encode([{"$table": pairs[1:]}, {"$table": pairs[:1]}]))
