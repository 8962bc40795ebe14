"""Decompress the bodies of responses, a piece at a time: gzip, deflate, br, zstd.

aiohttp could do it, but it accepts a truncated gzip, br or zstd stream as complete, and a body in an unknown encoding
as the page itself.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import brotli

from spyweb.errors import FetchError
from spyweb.limits import ENCODINGS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP = 262_144  # bytes, about, that are decompressed at once
MOST_STREAMS = 10_000  # in one body; each takes time to begin, even if it is empty
BAD_INPUT = (zlib.error, brotli.error, zstd.ZstdError)
GZIP = ("gzip", "x-gzip")
GZIP_BEGINS = 0x1F
CM_DEFLATE = 8  # low bits of the first byte, if the zlib header that `deflate` means has not been left out


class Stream(Protocol):
    """One compressed stream, of which a body may hold several in a row."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes:
        """Return the bytes that came after the end of the compressed data."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Decompress at most about `max_length` bytes; the rest waits for the next call, which may bring no data."""


class ZlibStream:
    def __init__(self, bits: int) -> None:
        self._stream = zlib.decompressobj(bits)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


class BrotliStream:
    unused_data = b""  # bytes past the end are bad input

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return bytes(self._stream.process(data, output_buffer_limit=max_length))


# By the name in the header; each begins a stream whose first byte is known.
STREAMS: dict[str, Callable[[int], Stream]] = {
    "gzip": lambda first: ZlibStream(16 + zlib.MAX_WBITS),
    "x-gzip": lambda first: ZlibStream(16 + zlib.MAX_WBITS),
    # With or without the zlib header, as browsers accept it.
    "deflate": lambda first: ZlibStream(zlib.MAX_WBITS if first & 0xF == CM_DEFLATE else -zlib.MAX_WBITS),
    "br": lambda first: BrotliStream(),
    "zstd": lambda first: zstd.ZstdDecompressor(),
}


# Some servers send words that are not compressions, such as utf-8, none or aws-chunked; browsers ignore them.
COMPRESSIONS = frozenset(STREAMS) | {"compress", "x-compress", "bzip2", "x-bzip2", "xz", "lzma", "dcb", "dcz"}


class Decoder:
    """Decodes one body by its Content-Encoding headers; a response without a body may have any."""

    def __init__(self, headers: Sequence[str]) -> None:
        names = [name.strip().lower() for name in ",".join(headers).split(",", ENCODINGS)]
        self._is_too_much = len(names) > ENCODINGS
        self._encoding = ", ".join(name for name in names if name in COMPRESSIONS)
        self._stream: Stream | None = None
        self._begun = 0
        self._over = False  # any further bytes are ignored

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes, step by step.  Raises FetchError."""
        if self._is_too_much:
            raise FetchError("http", f"the body has more than {ENCODINGS} content-encodings")
        if not self._encoding:
            yield data
            return
        try:
            while data and not self._is_over(data[0]):
                stream = self._stream = self._stream_from(data[0])
                yield (step := stream.decompress(data, STEP))
                while len(step) >= STEP and not stream.eof:
                    yield (step := stream.decompress(b"", STEP))
                data = stream.unused_data
        except BAD_INPUT as error:
            raise FetchError("http", f"the body is not {self._encoding}, as its header says") from error

    def finish(self) -> None:
        """Note the end of the body.  Raises FetchError if more should have come."""
        if self._stream is not None and not self._stream.eof:
            raise FetchError("http", f"the body ends before its {self._encoding} stream does")

    def _is_over(self, first: int) -> bool:
        """Return whether to ignore the rest: bytes after a gzip stream that begin no other, as gzip and browsers do."""
        ended = self._stream is not None and self._stream.eof
        self._over = self._over or (ended and self._encoding in GZIP and first != GZIP_BEGINS)
        return self._over

    def _stream_from(self, first: int) -> Stream:
        """Return the stream that goes on with this byte."""
        if self._stream is not None and not self._stream.eof:
            return self._stream
        if self._encoding not in STREAMS:
            raise FetchError("http", f"content-encoding {self._encoding[:80]!r} is not supported")
        if self._begun == MOST_STREAMS:
            raise FetchError("http", f"the body has more than {MOST_STREAMS} {self._encoding} streams")
        self._begun += 1
        return STREAMS[self._encoding](first)
