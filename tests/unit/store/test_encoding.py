"""How values stand in the columns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from spyweb.errors import StoreError
from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Value
from spyweb.store.encoding import Cell, Column, count_number_keys, decode, encode
from tests.fakes.values import values


@given(values)
def test_every_value_is_read_as_it_was_written(value: Value) -> None:
    found = decode(*encode(value))

    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (b"x\xff", Cell("s", b"x\xff")),
        (7, Cell("i", 7)),
        (1.5, Cell("f", 1.5)),
        (True, Cell("b", 1)),
        (NULL, Cell("n", None)),
        ([1, b"\xc3\xbc", NULL], Cell("j", '[1,"ü",null]')),
        ({b"a": {b"b": 1.0}}, Cell("j", '{"a":{"b":1.0}}')),
        ([b"\xff"], Cell("m", b"\x91\xc4\x01\xff")),
        ({1: True}, Cell("m", b"\x81\x01\xc3")),
        ([math.inf], Cell("m", b"\x91\xcb\x7f\xf0\0\0\0\0\0\0")),
    ],
)
def test_scalars_are_sqlites_own_and_tables_json_where_that_loses_nothing(value: Value, cell: Cell) -> None:
    assert encode(value) == cell


@pytest.mark.parametrize(
    "cell", [Cell("j", '{"a":'), Cell("j", "\x00"), Cell("j", "[" * 100_000), Cell("m", b"\x91"), Cell("m", b"\xc1")]
)
def test_a_table_that_is_damaged_is_one_clear_line(cell: Cell) -> None:
    with pytest.raises(StoreError, match=f"the type '{cell.type}' is damaged: [^\n]*$"):
        decode(*cell)


@pytest.mark.parametrize("cell", [Cell("x", b""), Cell("j", b"[]"), Cell("i", "7"), Cell("m", None)])
def test_a_row_that_nobody_wrote_is_one_clear_line(cell: Cell) -> None:
    with pytest.raises(StoreError, match=f"the type '{cell.type}' can't be read"):
        decode(*cell)


def test_a_table_inside_itself_is_refused() -> None:
    table: list[Value] = []
    table.append(table)

    with pytest.raises(StoreError, match="inside itself"):
        encode(table)


@pytest.mark.parametrize("key", [math.nan, 1 << 63, None, (1,)])
def test_what_can_be_no_key_is_refused(key: object) -> None:
    with pytest.raises(StoreError):
        encode({key: 1})  # type: ignore[dict-item]


def test_number_keys_are_counted_wherever_they_are_and_what_is_stored_may_have_more_than_may_come() -> None:
    value: Value = [dict.fromkeys(range(NUMBER_KEYS), 1), b"x", {b"a": {1.5: 1}, b"b": [1, 2]}]
    assert count_number_keys(value) == NUMBER_KEYS + 1
    assert decode(*encode(value)) == value


@pytest.mark.parametrize(("kind", "column"), [("i", b"7"), ("i", 7.0), ("f", 7), ("f", None), ("s", 7), ("s", "text")])
def test_a_column_of_another_type_than_it_says_is_refused(kind: str, column: Column) -> None:
    with pytest.raises(StoreError, match="can't be read"):
        decode(kind, column)
