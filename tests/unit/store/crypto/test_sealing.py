"""Encrypted values: bound to where they stand, and never twice the same."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.crypto.sealing import PLAIN, Place, SealingCodec, codec_for
from spyweb.store.encoding import Cell
from tests.fakes.stores import KEY
from tests.fakes.values import values

PLACE = Place("state", b"k\xff", 3)
CODEC = SealingCodec(KEY)


@given(values)
def test_a_sealed_value_opens_with_its_key_whoever_has_sealed_it(value: Value) -> None:
    sealed = CODEC.write(PLACE, value)

    assert repr(SealingCodec(KEY).read(PLACE, sealed)) == repr(value)


def test_nothing_of_the_value_shows_and_no_two_are_the_same() -> None:
    first, second = (CODEC.write(PLACE, b"secret") for _ in range(2))

    assert b"secret" not in bytes(str(first.column), "ascii")
    assert first.column != second.column
    assert first.column != SealingCodec(KEY).write(PLACE, b"secret").column


def test_threads_that_seal_at_once_never_use_a_nonce_twice() -> None:
    codec = SealingCodec(KEY)
    columns: list[object] = []

    def seal_between_two_lines(frame: FrameType, event: str, _argument: object) -> Any:
        """Stand for another thread that has its turn there."""
        if frame.f_code is not SealingCodec.write.__code__:
            return None
        sys.settrace(None)
        columns.append(codec.write(PLACE, 1).column)
        sys.settrace(seal_between_two_lines)
        return seal_between_two_lines

    before = sys.gettrace()
    sys.settrace(seal_between_two_lines)
    try:
        columns.append(codec.write(PLACE, 1).column)
    finally:
        sys.settrace(before)

    assert len(columns) > 3
    assert len(set(columns)) == len(columns)  # of one value in one place: a nonce used twice gives the same


@pytest.mark.parametrize(
    "place", [Place("other", b"k\xff", 3), Place("state", b"k", 3), Place("state", b"k\xff", 2), Place("", b"", 0)]
)
def test_a_value_does_not_open_in_another_place(place: Place) -> None:
    sealed = CODEC.write(PLACE, 7)

    with pytest.raises(StoreError, match="can't be decrypted"):
        CODEC.read(place, sealed)


def test_a_value_does_not_open_as_another_type() -> None:
    sealed = CODEC.write(PLACE, 1)

    with pytest.raises(StoreError, match="can't be decrypted"):
        CODEC.read(PLACE, Cell("b", sealed.column))


def test_a_value_does_not_open_with_another_key() -> None:
    with pytest.raises(StoreError, match=r"the value of b'k\\xff' in state can't be decrypted"):
        SealingCodec(bytes(32)).read(PLACE, CODEC.write(PLACE, 7))


@pytest.mark.parametrize("column", [None, 7, "text", b"", b"x" * 20, b"x" * 60])
def test_what_was_never_sealed_does_not_open(column: bytes | str | int | None) -> None:
    with pytest.raises(StoreError, match="can't be decrypted"):
        CODEC.read(PLACE, Cell("s", column))


def test_a_flipped_bit_is_noticed() -> None:
    sealed = CODEC.write(PLACE, b"secret").column
    assert isinstance(sealed, bytes)
    for position in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[position] ^= 1
        with pytest.raises(StoreError, match="can't be decrypted"):
            CODEC.read(PLACE, Cell("s", bytes(damaged)))


def test_without_a_key_nothing_is_sealed() -> None:
    assert codec_for(None) is PLAIN
