"""Computes what `crypto.*` asks for, inside the worker: no op, so callbacks can use it too.

It takes Python's own implementations of the hashes: hashlib would load OpenSSL into every worker.  Where Python was
built without one, hashlib's is taken.
"""

from __future__ import annotations

import binascii
import os
from _operator import _compare_digest
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import cast

Compute = Callable[..., bytes | int]

TRUE, FALSE = 1, 2  # results that are not texts; FALSE also for a text that makes no sense
_BLOCK = 64  # bytes, of SHA-256: what HMAC pads its key to
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_EVEN = 256 // len(_LETTERS) * len(_LETTERS)  # a byte from here on would make the first letters likelier
_TO_LETTERS = bytes(_LETTERS[byte % len(_LETTERS)] for byte in range(256))
_UNEVEN = bytes(range(_EVEN, 256))


def _hash_function(name: str, *modules: str) -> Callable[[bytes], str]:
    """Return the function that gives a hash in hexadecimal, of the first of these modules that is there."""
    for module in (*modules, "hashlib"):
        with suppress(ImportError):
            made = getattr(import_module(module), name)
            return lambda data: cast(str, made(data, usedforsecurity=False).hexdigest())
    raise ImportError(f"this Python has no {name}")


_sha256 = _hash_function("sha256", "_sha2", "_sha256")


def _hash(function: Callable[[bytes], str], data: bytes) -> bytes:
    return function(data).encode()


def _hmac_sha256(key: bytes, data: bytes) -> bytes:
    if len(key) > _BLOCK:
        key = bytes.fromhex(_sha256(key))
    key = key.ljust(_BLOCK, b"\0")
    inner = bytes.fromhex(_sha256(key.translate(_INNER) + data))
    return _sha256(key.translate(_OUTER) + inner).encode()


def _decode(text: bytes) -> bytes | int:
    try:
        return binascii.a2b_base64(text.translate(None, b"\r\n"), strict_mode=True)
    except binascii.Error:
        return FALSE


def _uuid() -> bytes:
    """Return a random UUID, version 4."""
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    return b"-".join(
        binascii.b2a_hex(part) for part in (number[:4], number[4:6], number[6:8], number[8:10], number[10:])
    )


def _random_string(length: int) -> bytes:
    made = b""
    while len(made) < length:
        made += os.urandom(length - len(made)).translate(_TO_LETTERS, _UNEVEN)
    return made


_FUNCTIONS: Mapping[bytes, Compute] = {
    b"sha256": partial(_hash, _sha256),
    b"sha512": partial(_hash, _hash_function("sha512", "_sha2", "_sha512")),
    b"sha1": partial(_hash, _hash_function("sha1", "_sha1")),
    b"md5": partial(_hash, _hash_function("md5", "_md5")),
    b"hmac_sha256": _hmac_sha256,
    b"base64_encode": partial(binascii.b2a_base64, newline=False),
    b"base64_decode": _decode,
    b"equal": lambda left, right: TRUE if _compare_digest(left, right) else FALSE,
    b"uuid": _uuid,
    b"random_string": _random_string,
}


def compute(name: bytes, *given: bytes | int) -> bytes | int:
    """Return the result of a function of `crypto`; library/crypto.lua has checked its arguments."""
    return _FUNCTIONS[name](*given)
