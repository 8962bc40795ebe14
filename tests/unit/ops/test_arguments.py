from __future__ import annotations

import math
from typing import Annotated

import pytest

from spyweb.lua.wire import Ext, Foreign
from spyweb.ops.arguments import (
    Int,
    Mismatch,
    Text,
    parse_number,
    read_integer,
    read_number,
    read_table,
    read_text,
    reader_of,
    texts_in,
    type_name,
)

FUNCTION = Foreign(Ext.FOREIGN, "function")
LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (b"", b""),
        (3, b"3"),
        (-(2**63), b"-9223372036854775808"),
        (3.0, b"3"),
        (-0.0, b"0"),
        (1e15, b"1000000000000000"),
        (0.1, b"0.1"),
        (1 / 3, b"0.33333333333333"),
        (1e300, b"1e+300"),
        (math.inf, b"inf"),
        (-math.inf, b"-inf"),
    ],
)
def test_a_text_is_a_string_or_a_number_as_lua_shows_it(value: object, text: bytes) -> None:
    assert read_text(value) == text


@pytest.mark.parametrize(
    ("value", "got"), [(None, "nil"), (True, "boolean"), ([], "table"), ({b"a": 1}, "table"), (FUNCTION, "function")]
)
def test_nothing_else_is_a_text(value: object, got: str) -> None:
    with pytest.raises(Mismatch, match=f"^string expected, got {got}$"):
        read_text(value)


@pytest.mark.parametrize(
    ("value", "integer"),
    [
        (7, 7),
        (7.0, 7),
        (2.9, 2),
        (-2.9, -2),
        (b"12", 12),
        (b" -12 ", -12),
        (b"+5", 5),
        (b"1.9", 1),
        (b"1e3", 1000),
        (b"0x10", 16),
        (b"0xffffffffffffffff", -1),
        (b"9223372036854775807", LARGEST),
        (-(2.0**63), -(2**63)),
    ],
)
def test_an_integer_is_a_number_cut_off_or_a_text_that_reads_as_one(value: object, integer: int) -> None:
    assert read_integer(value) == integer


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "number has no integer representation"),
        (math.inf, "number has no integer representation"),
        (2.0**63, "number out of range"),
        (b"9223372036854775808", "number out of range"),
        (b"abc", "number expected, got string"),
        (b"", "number expected, got string"),
        (b"nan", "number expected, got string"),
        (b"1_000", "number expected, got string"),
        (True, "number expected, got boolean"),
        (None, "number expected, got nil"),
    ],
)
def test_what_no_integer_can_be_made_of_says_why(value: object, reason: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        read_integer(value)
    assert str(mismatch.value) == reason


@pytest.mark.parametrize("digits", [b"1", b"0", b" "])
def test_a_text_of_more_than_200_bytes_is_no_number_and_says_why(digits: bytes) -> None:
    with pytest.raises(Mismatch, match=r"^the text of a number has 201 bytes, at most 200 are allowed$"):
        read_number(digits * 200 + b"1")
    assert parse_number(digits * 200 + b"1") is None


def test_a_number_keeps_its_fraction() -> None:
    assert read_number(2.5) == 2.5
    assert read_number(b"2.5") == 2.5


@pytest.mark.parametrize(
    ("value", "table"), [({b"a": 1}, {b"a": 1}), ([b"x", b"y"], {1: b"x", 2: b"y"}), ([], {}), ({}, {})]
)
def test_a_table_is_a_dict_a_sequence_counts_from_one(value: object, table: dict[object, object]) -> None:
    assert read_table(value) == table


@pytest.mark.parametrize(("kind", "name"), [(Ext.FOREIGN, "thread"), (Ext.CYCLE, "table"), (Ext.DEEP, "table")])
def test_what_only_lua_has_is_named_by_its_type(kind: Ext, name: str) -> None:
    assert type_name(Foreign(kind, "thread")) == name


@pytest.mark.parametrize("annotation", [int, Text | Int, Annotated[int, "x"], "Text"])
def test_an_annotation_that_is_no_argument_is_refused_when_the_op_is_made(annotation: object) -> None:
    with pytest.raises(TypeError, match="an op's parameter can't be"):
        reader_of(annotation)


def test_a_table_of_texts_may_have_numbers_too() -> None:
    assert texts_in({b"headers": {b"X": 3.0, 1: b"y"}}, "headers") == {b"X": b"3", b"1": b"y"}
