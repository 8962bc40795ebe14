from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st
from lupa.lua54 import LuaRuntime

from spyweb.ops.arguments import INTEGER_LIMIT, Mismatch, parse_number, read_integer, read_text

lua = LuaRuntime(encoding=None)  # type: ignore[call-arg] # the stubs know no None
lua_number = cast(
    Callable[[bytes], tuple[object, bytes | None]],
    lua.eval("function(text) local n = tonumber(text) return n or false, n and math.type(n) end"),
)

NUMBERLIKE = st.text("0123456789.eExXpPaAfF+- \t\n_nN", max_size=24).map(str.encode)
NUMBERS = st.one_of(st.integers(), st.floats()).map(lambda number: str(number).encode())
HEX = st.tuples(st.sampled_from(["0x", "-0X", "+0x", " 0x"]), st.text("0123456789abcdefABCDEF.p-", max_size=40)).map(
    lambda parts: "".join(parts).encode()
)


@given(st.one_of(NUMBERLIKE, NUMBERS, HEX))
@example(b"9223372036854775808")
@example(b"-9223372036854775808")
@example(b"0x8000000000000000")
@example(b"-0xffffffffffffffffffff")
@example(b"0x1p99999")
@example(b"-0x1.8p1")
@example(b"\t\n 1 \r\v\f")
@example(b"1e999")
@example(b"1" + b"0" * 199)
@example(b"0x" + b"f" * 99 + b"g")
@example(b"1\x00")
@example(b"\xb2")
def test_a_text_reads_as_the_number_that_lua_reads(text: bytes) -> None:
    expected, kind = lua_number(text)
    number = parse_number(text)
    if kind is None:
        assert number is None
    else:
        assert number == expected
        assert isinstance(number, int) == (kind == b"integer")


@given(st.binary())
def test_no_bytes_make_the_reader_fall_over(text: bytes) -> None:
    parse_number(text)


@given(st.one_of(st.integers(-INTEGER_LIMIT, INTEGER_LIMIT - 1), st.floats(-1e18, 1e18)))
def test_a_number_in_range_is_an_integer_cut_off_towards_zero(number: float) -> None:
    assert read_integer(number) == math.trunc(number)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.binary(), st.lists(st.integers())))
def test_whatever_a_script_passes_is_a_64_bit_integer_or_a_mismatch(value: object) -> None:
    try:
        number = read_integer(value)
    except Mismatch:
        return
    assert -INTEGER_LIMIT <= number < INTEGER_LIMIT


@given(st.integers(-INTEGER_LIMIT, INTEGER_LIMIT - 1))
def test_an_integer_survives_its_text(number: int) -> None:
    assert parse_number(read_text(number)) == number


@given(st.integers(-(2**53), 2**53))
def test_an_integral_float_has_the_text_of_the_integer(number: int) -> None:
    assert read_text(float(number)) == read_text(number)
