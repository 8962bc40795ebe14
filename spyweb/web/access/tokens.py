"""Make the tokens of keys and the cookies of sessions, and tell what of them is stored.

A token is `spyweb_`, a handle of 8 characters by which its key is found, 43 random characters, and a checksum of 6: so
a mistyped one is known as such without asking anything, and programs that look for secrets in files know it.  Its
random part has 256 bits: nobody can guess it, so one round of SHA-256 hides it as well as a slow hash would.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib

PREFIX = "spyweb_"
HANDLE, RANDOM, CHECKSUM = 8, 43, 6  # characters
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TOKEN = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{HANDLE + RANDOM + CHECKSUM}}}")


def make_token() -> str:
    body = PREFIX + "".join(secrets.choice(ALPHABET) for _ in range(HANDLE + RANDOM))
    return body + _checksum(body)


def find_handle(text: str) -> str | None:
    """Return the handle of a token; None for a text that is none."""
    if not _TOKEN.fullmatch(text) or _checksum(text[:-CHECKSUM]) != text[-CHECKSUM:]:
        return None
    return text[len(PREFIX) : len(PREFIX) + HANDLE]


def make_cookie() -> str:
    return secrets.token_urlsafe(32)


def hash_secret(secret: str, also: str = "") -> bytes:
    """Return what is stored of a token or cookie.

    With `also`, it covers that as well: whoever reads it can't tell anything about `also`, without the cookie.
    """
    if also:
        return hmac.digest(_bytes(secret), _bytes(also), "sha256")
    return hashlib.sha256(_bytes(secret)).digest()


def is_same(first: str, second: str) -> bool:
    """Compare two secrets in a time that depends on neither."""
    return hmac.compare_digest(_bytes(first), _bytes(second))


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode("ascii")), ""
    for _ in range(CHECKSUM):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
