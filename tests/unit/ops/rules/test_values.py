from __future__ import annotations

import math

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL, Value
from spyweb.ops.rules.values import (
    SHOWN,
    Unstorable,
    added,
    are_equal,
    expiry_of,
    result_of,
    shown,
    size_of,
    value_from_lua,
)

A_FUNCTION = Foreign(Ext.FOREIGN, "function")


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (True, True),
        (False, False),
        (7, 7),
        (3.0, 3),
        (-0.0, 0),
        (2.5, 2.5),
        (2.0**62, 2**62),
        (-(2.0**63), -(2**63)),
        (2.0**63, 2.0**63),
        (1e300, 1e300),
        ([1.0, [b"x"]], [1, [b"x"]]),
        ({}, {}),
        ({b"a": 1.0, 2: b"x", 2.5: True, True: 0}, {b"a": 1, 2: b"x", 2.5: True, True: 0}),
        ([], []),
        (NULL, NULL),
        ({b"a": [NULL]}, {b"a": [NULL]}),
    ],
)
def test_what_a_script_writes_is_kept_and_an_integral_float_is_the_integer(given: object, value: Value) -> None:
    kept = value_from_lua(given)
    assert kept == value
    assert type(kept) is type(value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "nil can't be stored"),
        (math.nan, "NaN can't be stored"),
        (math.inf, "an infinite number can't be stored"),
        (-math.inf, "an infinite number can't be stored"),
        (A_FUNCTION, "a function can't be stored"),
        (Foreign(Ext.FOREIGN, "thread"), "a thread can't be stored"),
        (Foreign(Ext.CYCLE, "table"), "a table that contains itself can't be stored"),
        (Foreign(Ext.DEEP, "table"), "it is nested too deep"),
        ({b"a": {b"b": [1, A_FUNCTION]}}, "a function can't be stored (at .a.b[2])"),
        ([math.nan], "NaN can't be stored (at [1])"),
        ({Foreign(Ext.FOREIGN, "table"): 1}, "a table can't be a key of what is stored"),
        ({Foreign(Ext.FOREIGN, "function"): 1}, "a function can't be a key of what is stored"),
    ],
)
def test_what_can_not_be_kept_is_refused_with_the_reason_and_the_place(given: object, reason: str) -> None:
    with pytest.raises(Unstorable) as caught:
        value_from_lua(given)
    assert str(caught.value) == reason


def test_null_goes_back_as_the_sentinel_inside_tables_and_as_nil_at_the_top() -> None:
    assert wire.unpack(wire.pack([{b"a": [NULL, 1]}])) == [{b"a": [NULL, 1]}]
    assert result_of(NULL) is None
    assert result_of(None) is None


def test_a_value_goes_to_lua_as_it_is_and_is_not_walked_through() -> None:
    value: Value = {b"a": [NULL, {}, 1.5]}

    assert result_of(value) is value


def test_a_table_with_nothing_to_convert_is_kept_as_it_is() -> None:
    for given in ([1, b"x", True], {b"a": 1, b"b": b"x"}, {}):
        assert value_from_lua(given) is given


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        (b"1", 1, False),
        (None, None, True),
        (None, b"", False),
        (NULL, NULL, True),
        (NULL, None, False),
        ({b"a": [1, {b"b": 2}]}, {b"a": [1.0, {b"b": 2}]}, True),
        ({b"a": [1, {b"b": 2}]}, {b"a": [1, {b"b": True}]}, False),
        ({b"a": 1}, {b"a": 1, b"b": 1}, False),
        ([1, 2], [1], False),
        ([1], {b"a": 1}, False),
        ([], {}, True),
        ({}, [], True),
        ([{}], [[]], True),
        ({1: b"x"}, {True: b"x"}, False),
        ({False: b"x", b"a": 1}, {0: b"x", b"a": 1}, False),
        ({True: b"x", 2: 1}, {True: b"x", 2: 1.0}, True),
    ],
)
def test_equality_is_deep_and_that_of_lua(left: Value, right: Value, equal: bool) -> None:
    assert are_equal(left, right) is equal
    assert are_equal(right, left) is equal


def test_the_size_of_a_text_is_its_length_and_of_a_table_about_what_it_takes() -> None:
    assert size_of(b"x" * 100) == 100
    assert size_of(7) == size_of(True) < 10
    assert 1000 <= size_of([b"x" * 500, b"y" * 500]) < 1010
    assert size_of({b"k" * 300: NULL}) > 300


def test_people_see_keys_that_are_no_text_and_not_too_much_of_long_ones() -> None:
    assert shown(b"a\xff") == r"a\xff"
    assert shown(b"x" * 200) == "x" * SHOWN + "..."


NOW = 1_000_000


@pytest.mark.parametrize(
    ("ttl", "expires_ms"),
    [
        (None, None),
        (0, NOW),
        (-5, NOW),
        (60, NOW + 60_000),
        (0.25, NOW + 250),
        (0.0001, NOW + 1),
        (math.inf, None),
        (-math.inf, NOW),
        (1e300, None),
    ],
)
def test_a_ttl_is_seconds_from_now_and_over_at_once_at_or_below_zero(ttl: float | None, expires_ms: int | None) -> None:
    assert expiry_of(ttl, NOW) == expires_ms


def test_a_ttl_must_be_a_number() -> None:
    with pytest.raises(Unstorable, match="the ttl is NaN"):
        expiry_of(math.nan, NOW)


def test_a_sum_of_an_integer_and_a_float_beyond_all_floats_is_none() -> None:
    assert added(1.5, 10**400) is None
