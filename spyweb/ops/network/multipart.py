"""Encode multipart/form-data as browsers do, so that no name or value can break out of its part."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from spyweb.errors import FetchError
from spyweb.limits import HEADER_BLOCK, too_large

_ESCAPES = ((b"\r", b"%0D"), (b"\n", b"%0A"), (b'"', b"%22"))  # the HTML standard's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One field: a text, or a file when it has a filename or a type."""

    name: bytes
    content: bytes
    filename: bytes | None = None
    type: bytes | None = None

    @property
    def head_size(self) -> int:
        """Return the size of the part's head in bytes, as the script gave it."""
        return len(self.name) + len(self.filename or b"") + len(self.type or b"")


def encode_parts(parts: Sequence[Part]) -> tuple[bytes, bytes]:
    """Return the content type and the body.  Raises FetchError."""
    boundary = secrets.token_hex(24).encode("ascii")
    lines = []
    for part in parts:
        lines += [b"--" + boundary, *_head(part), b"", part.content]
    lines += [b"--" + boundary + b"--", b""]
    return b"multipart/form-data; boundary=" + boundary, b"\r\n".join(lines)


def _head(part: Part) -> list[bytes]:
    if part.head_size > HEADER_BLOCK:
        raise FetchError("http", too_large("the head of a part", part.head_size, HEADER_BLOCK))
    disposition = b'Content-Disposition: form-data; name="%s"' % _escape(part.name)
    if part.filename is not None:
        disposition += b'; filename="%s"' % _escape(part.filename)
    kind = part.type or (b"application/octet-stream" if part.filename is not None else None)
    if kind is None:
        return [disposition]
    if b"\r" in kind or b"\n" in kind:
        raise FetchError("http", "a part's type has a line break in it")
    return [disposition, b"Content-Type: " + kind]


def _escape(text: bytes) -> bytes:
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text
