"""The messages between the daemon and an extractor process, over one stream socket.

A frame is a 4-byte little-endian length and one msgpack array.  The daemon sends an Extract, followed by the page's
body as it is, or a Check, and waits for Done before it sends the next one.  ParseYaml and FindLines are followed by a
text in the same way.  The process sends ExtractorReady first, once, and Rows, or parts of a packed value, as it has
them, so that neither side ever holds, or handles at once, more than a part of a large result.
"""

from __future__ import annotations

import msgspec

from spyweb.confined.frames import framed


class Extract(msgspec.Struct, frozen=True, array_like=True, tag=0):
    size: int  # bytes of the body, which follows
    content_type: str
    url: str
    selector: str
    fields: tuple[tuple[str, str | None], ...]  # selector ("": the item itself) and attribute (None: its text)


class Check(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Ask whether a text is a valid selector."""

    selector: str
    of_field: bool


class ParseYaml(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Ask for the value of a YAML text."""

    size: int  # bytes of the text, which follows


class FindLines(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Ask for the numbers, from 0, of the lines that a regular expression matches."""

    size: int  # bytes of the text, which follows
    pattern: str


class ExtractorReady(msgspec.Struct, frozen=True, array_like=True, tag=0):
    rights: list[str]  # descriptions of what it has given up, and of what could not be done


class Rows(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The values of the fields of some items."""

    rows: list[list[str]]


class PackedPart(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A part of a value that is packed as msgpack."""

    data: bytes


class Done(msgspec.Struct, frozen=True, array_like=True, tag=2):
    problem: str | None = None  # why there is no result
    is_spent: bool = False  # it has used so much memory, or lived so long, that it should be replaced


Ask = Extract | Check | ParseYaml | FindLines
Answer = ExtractorReady | Rows | PackedPart | Done

_encoder = msgspec.msgpack.Encoder()
ask_decoder = msgspec.msgpack.Decoder(Ask)
_answer_decoder = msgspec.msgpack.Decoder(Answer)


def frame(message: msgspec.Struct) -> bytes:
    return framed(_encoder.encode(message))


def decode_answer(body: memoryview) -> list[Answer]:
    return [_answer_decoder.decode(body)]


def plain(text: str) -> str:
    """Return a text that can be encoded: headers may hold bytes that are not text."""
    return text if text.isascii() else text.encode(errors="replace").decode()
