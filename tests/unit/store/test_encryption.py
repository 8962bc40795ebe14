"""Encrypted values: bound to where they stand, and never twice the same."""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given

from spyweb.errors import NoAccess, StoreError
from spyweb.model import Value
from spyweb.store.encoding import Cell
from spyweb.store.encryption import BYTES, Place, SealingCodec, find_key, read_key
from tests.fakes.rights import bound_by_file_modes, needs_linux
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


SEALED = CODEC.write(PLACE, 7)


@pytest.mark.parametrize(
    ("codec", "place", "cell"),
    [
        *((CODEC, PLACE, Cell("s", column)) for column in (None, 7, "text", b"", b"x" * 20, b"x" * 60)),
        (CODEC, PLACE._replace(namespace="other"), SEALED),
        (CODEC, PLACE._replace(key=b"k"), SEALED),
        (CODEC, PLACE._replace(version=2), SEALED),
        (CODEC, Place("", b"", 0), SEALED),
        (CODEC, PLACE, Cell("b", SEALED.column)),
        (SealingCodec(bytes(32)), PLACE, SEALED),
    ],
)
def test_nothing_opens_that_was_not_sealed_there_as_this_type_with_this_key(
    codec: SealingCodec, place: Place, cell: Cell
) -> None:
    told = f"the value of {place.key!r} in {place.namespace} can't be decrypted"
    with pytest.raises(StoreError, match=f"^{re.escape(told)}$"):
        codec.read(place, cell)


def test_a_flipped_bit_is_noticed() -> None:
    sealed = CODEC.write(PLACE, b"secret").column
    assert isinstance(sealed, bytes)
    for position in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[position] ^= 1
        with pytest.raises(StoreError, match="can't be decrypted"):
            CODEC.read(PLACE, Cell("s", bytes(damaged)))


@pytest.mark.parametrize("cell", [Cell("i", b"x"), Cell("f", b"1"), Cell("j", b"\xff"), Cell("m", b"\xc1")])
def test_bytes_that_are_damaged_are_told_with_their_place(cell: Cell) -> None:
    with pytest.raises(StoreError, match="can't be read"):
        BYTES.read(PLACE, cell)


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "content",
    [
        KEY,
        KEY.hex().encode(),
        KEY.hex().upper().encode() + b"\n",
        base64.b64encode(KEY) + b"\n",
        base64.urlsafe_b64encode(b"\xff" * 32),
    ],
)
def test_a_key_is_32_bytes_as_they_are_or_written_out(tmp_path: Path, content: bytes) -> None:
    assert read_key(write(tmp_path / "key", content)) in (KEY, b"\xff" * 32)


@pytest.mark.parametrize(
    "content", [b"", b"short", KEY[:31], KEY + b"\n", b"z" * 64, b"\xff" * 64, KEY[:31].hex().encode()]
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "key", content)

    with pytest.raises(StoreError, match=f"^{path}: a key is 32 bytes, as they are or as hex or base64$"):
        read_key(path)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(NoAccess, match="chmod 600"):
        read_key(write(tmp_path / "key", KEY, mode))


def test_a_key_that_is_absent_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no key file"):
        read_key(tmp_path / "key")


@needs_linux
def test_a_key_in_a_folder_that_may_not_be_searched_is_one_clear_line(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    path = write(closed / "key", KEY)
    closed.chmod(0)

    with bound_by_file_modes(), pytest.raises(NoAccess, match=f"^{path}: no access as "):
        read_key(path)


def test_a_path_is_relative_to_the_project(tmp_path: Path) -> None:
    write(tmp_path / "key", KEY)

    assert find_key("key", tmp_path, {}) == KEY
    assert find_key(str(tmp_path / "key"), Path("/elsewhere"), {}) == KEY


def test_a_credential_is_found_where_systemd_puts_it_and_may_be_its_groups_to_read(tmp_path: Path) -> None:
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    write(tmp_path / "spyweb", KEY)
    for mode in (0o400, 0o440):
        (tmp_path / "spyweb").chmod(mode)
        assert find_key("credential:spyweb", Path("/elsewhere"), environment) == KEY
    with pytest.raises(StoreError, match="systemd has given no credentials"):
        find_key("credential:spyweb", tmp_path, {})

    (tmp_path / "spyweb").chmod(0o444)
    with pytest.raises(NoAccess, match="others than its owner"):
        find_key("credential:spyweb", Path("/elsewhere"), environment)


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(StoreError, match="key: not a regular file"):
        read_key(tmp_path / "key")
