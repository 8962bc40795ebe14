"""What scripts give to ops: numbers, forms, names of modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st
from lupa.lua54 import LuaRuntime

from spyweb.errors import OpError
from spyweb.ops.arguments import INTEGER_LIMIT, Mismatch, parse_number, read_integer, read_text
from spyweb.ops.http import Part, encode_parts
from spyweb.ops.sources import candidates_of

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


PARTS = st.lists(
    st.builds(
        Part, name=st.binary(max_size=20), content=st.binary(max_size=100), filename=st.none() | st.binary(max_size=20)
    ),
    max_size=5,
)


@given(PARTS)
def test_a_form_splits_into_just_the_contents_that_were_put_in(parts: list[Part]) -> None:
    kind, body = encode_parts(parts)
    boundary = b"--" + kind.partition(b"boundary=")[2]
    assert body.endswith(boundary + b"--\r\n")
    pieces = (b"\r\n" + body).split(b"\r\n" + boundary)[1:-1]
    heads, contents = (
        zip(*(piece.removeprefix(b"\r\n").split(b"\r\n\r\n", 1) for piece in pieces), strict=True)
        if pieces
        else ((), ())
    )
    assert list(contents) == [part.content for part in parts]
    for head, part in zip(heads, parts, strict=True):
        assert head.count(b"\r\n") == (part.filename is not None)
        assert head.count(b'"') == (2 if part.filename is None else 4)


NASTY = st.lists(
    st.sampled_from([b"..", b".", b"/", b"\\", b"a", b"etc", b"\x00", b"~", b" ", b"%2e", b"\xe2\x80\xa4", b"\xff"]),
    max_size=8,
).map(b"".join)


@given(st.one_of(st.binary(max_size=40), NASTY))
def test_no_name_climbs_out_of_its_folder(name: bytes) -> None:
    try:
        candidates = list(candidates_of("jobs/prices", name))
    except OpError:
        return
    for path in candidates:
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert path.suffix == ".lua"
        assert PurePosixPath("jobs/prices") in path.parents or len(path.parts) >= 1
    assert all(PurePosixPath("jobs/prices") in path.parents for path in candidates[:2])
