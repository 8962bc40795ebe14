"""Encrypt values at rest: with AES-GCM, each value bound to its namespace, key and version.

A value that was moved to another place, or an older one put back, can't be decrypted.  Namespaces, keys, types, sizes
and times are not hidden.  No nonce is used twice, however many values are written: each opening of the store derives a
key of its own from the file's and a random salt, and counts.  The key is in a file or a systemd credential, never in
the database.
"""

from __future__ import annotations

import base64
import hmac
import os
import struct
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from spyweb.errors import NoAccess, StoreError
from spyweb.files import open_regular
from spyweb.model import Value
from spyweb.store.access import explain
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


class PlainCodec:
    def __init__(self, *, is_plain: bool = True) -> None:
        """Take whether columns hold a value as it is; else they hold nothing but bytes."""
        self.is_plain = is_plain

    def write(self, place: Place, value: Value) -> Cell:
        cell = encode(value)
        return cell if self.is_plain else Cell(cell.type, to_bytes(cell.column))

    def read(self, place: Place, cell: Cell) -> Value:
        column = cell.column
        try:
            if not self.is_plain and isinstance(column, bytes):
                column = from_bytes(cell.type, column)
            return decode(cell.type, column)
        except (StoreError, ValueError, struct.error) as error:
            raise StoreError(f"the value of {place.key!r} in {place.namespace} can't be read: {error}") from error


PLAIN: Final = PlainCodec()
BYTES: Final = PlainCodec(is_plain=False)


class SealingCodec:
    is_plain = False

    def __init__(self, key: bytes) -> None:
        self._salt = os.urandom(SALT_BYTES)
        self._counted = count(1)

        @lru_cache(SALTS_REMEMBERED)
        def cipher(salt: bytes) -> AESGCM:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import, needed for encryption only

            return AESGCM(hmac.digest(key, b"spyweb values 1" + salt, "sha256"))

        self._cipher = cipher

    def write(self, place: Place, value: Value) -> Cell:
        cell = encode(value)
        nonce = next(self._counted).to_bytes(NONCE_BYTES, "big")  # in one step: several threads seal
        sealed = self._cipher(self._salt).encrypt(nonce, to_bytes(cell.column), bind(place, cell.type))
        return Cell(cell.type, self._salt + nonce + sealed)

    def read(self, place: Place, cell: Cell) -> Value:
        from cryptography.exceptions import InvalidTag

        blob = cell.column if isinstance(cell.column, bytes) else b""
        salt, nonce, sealed = blob[:SALT_BYTES], blob[SALT_BYTES:][:NONCE_BYTES], blob[SALT_BYTES + NONCE_BYTES :]
        try:
            opened = self._cipher(salt).decrypt(nonce, sealed, bind(place, cell.type))
        except (InvalidTag, ValueError) as error:
            raise StoreError(f"the value of {place.key!r} in {place.namespace} can't be decrypted") from error
        return decode(cell.type, from_bytes(cell.type, opened))


Codec = PlainCodec | SealingCodec  # turns values into database columns and back


def codec_for(key: bytes | None) -> Codec:
    return PLAIN if key is None else SealingCodec(key)


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


KEY_BYTES, FINGERPRINT_BYTES = 32, 8
CREDENTIAL = "credential:"  # and the name that LoadCredential= gives it
NOT_THE_OWNER = 0o077
# systemd lets the service's user read a credential by an access list, which shows as a right of the group; its folder
# is that service's alone.
NEITHER_OWNER_NOR_GROUP = 0o007


def fingerprint_of(key: bytes) -> str:
    """Return what tells this key from others, and from which it can't be found."""
    return hmac.digest(key, b"spyweb fingerprint 1", "sha256")[:FINGERPRINT_BYTES].hex()


def find_key(setting: str, root: Path, environment: Mapping[str, str]) -> bytes:
    """Return the key that `[store] key_file` names.  Raises a StoreError or NoAccess with one clear line."""
    if not setting.startswith(CREDENTIAL):
        return read_key(root / setting)
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if not directory:
        raise StoreError(f"key_file = {setting!r}: systemd has given no credentials to this process")
    return read_key(Path(directory) / setting.removeprefix(CREDENTIAL), others=NEITHER_OWNER_NOR_GROUP)


def read_key(path: Path, *, others: int = NOT_THE_OWNER) -> bytes:
    """Read a key file: 32 bytes, hex or base64.  `others`, given as bits of its mode, must have no rights to it."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_mode & others:
                raise NoAccess(f"{path}: others than its owner may use this key: `chmod 600 {path}`")
            content = file.read(4096)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(f"{path}: there is no key file") from error
    except OSError as error:
        raise explain(error, path) from error
    if len(content) == KEY_BYTES:
        return content
    for read in (bytes.fromhex, base64.b64decode, base64.urlsafe_b64decode):
        try:
            key = read(content.strip().decode("ascii"))
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    raise StoreError(f"{path}: a key is {KEY_BYTES} bytes, as they are or as hex or base64")
