"""Encrypt values at rest: with AES-GCM, each value bound to its namespace, key and version.

A value that was moved to another place, or an older one put back, can't be decrypted.  Namespaces, keys, types, sizes
and times are not hidden.  No nonce is used twice, however many values are written: each opening of the store derives a
key of its own from the file's and a random salt, and counts.
"""

from __future__ import annotations

import hmac
import os
import struct
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.encoding import Cell, Column, Type, decode, encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SALT_BYTES, NONCE_BYTES = 16, 12
SALTS_REMEMBERED = 1024  # one for each opening of the store
FLOAT = struct.Struct(">d")


class Place(NamedTuple):
    """The place of a value, to which its encryption binds it."""

    namespace: str
    key: bytes
    version: int


class Codec(Protocol):
    """Turns values into database columns and back."""

    @property
    def is_plain(self) -> bool: ...

    def write(self, place: Place, value: Value) -> Cell: ...

    def read(self, place: Place, cell: Cell) -> Value: ...


class PlainCodec:
    is_plain = True

    def write(self, place: Place, value: Value) -> Cell:
        return encode(value)

    def read(self, place: Place, cell: Cell) -> Value:
        try:
            return decode(cell.type, cell.column)
        except StoreError as error:
            raise StoreError(f"the value of {place.key!r} in {place.namespace} can't be read: {error}") from error


PLAIN: Final = PlainCodec()


class SealingCodec:
    is_plain = False

    def __init__(self, key: bytes) -> None:
        self._salt = os.urandom(SALT_BYTES)
        self._counted = count(1)
        self._cipher = lru_cache(SALTS_REMEMBERED)(lambda salt: make_cipher(key, salt))

    def write(self, place: Place, value: Value) -> Cell:
        cell = encode(value)
        nonce = next(self._counted).to_bytes(NONCE_BYTES, "big")  # in one step: several threads seal
        sealed = self._cipher(self._salt).encrypt(nonce, to_bytes(cell.column), bind(place, cell.type))
        return Cell(cell.type, self._salt + nonce + sealed)

    def read(self, place: Place, cell: Cell) -> Value:
        return decode(cell.type, from_bytes(cell.type, self._open(place, cell)))

    def _open(self, place: Place, cell: Cell) -> bytes:
        from cryptography.exceptions import InvalidTag  # slow to import, and needed for encryption only

        blob = cell.column if isinstance(cell.column, bytes) else b""
        salt, nonce, sealed = blob[:SALT_BYTES], blob[SALT_BYTES:][:NONCE_BYTES], blob[SALT_BYTES + NONCE_BYTES :]
        try:
            return self._cipher(salt).decrypt(nonce, sealed, bind(place, cell.type))
        except (InvalidTag, ValueError) as error:
            raise StoreError(f"the value of {place.key!r} in {place.namespace} can't be decrypted") from error


def codec_for(key: bytes | None) -> Codec:
    return PLAIN if key is None else SealingCodec(key)


def make_cipher(key: bytes, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import, and needed for encryption only

    return AESGCM(hmac.digest(key, b"spyweb values 1" + salt, "sha256"))


def bind(place: Place, kind: str) -> bytes:
    return msgspec.msgpack.encode((*place, kind))


def to_bytes(column: Column) -> bytes:
    match column:
        case bytes():
            return column
        case str():
            return column.encode()
        case int():
            return b"%d" % column
        case float():
            return FLOAT.pack(column)
    return b""


def from_bytes(kind: str, data: bytes) -> Column:
    match kind:
        case Type.INTEGER | Type.BOOLEAN:
            return int(data)
        case Type.FLOAT:
            unpacked: float = FLOAT.unpack(data)[0]
            return unpacked
        case Type.JSON:
            return data.decode()
        case Type.NULL:
            return None
    return data
