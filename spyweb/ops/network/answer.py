"""Answers as aiohttp reads them, but for a few things.

A Location with bytes that are no UTF-8 would be left out, and the escapes of any other changed; an answer would be
refused for what comes behind its end, and a body that goes wrong halfway waited for.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb.errors import FetchError
from spyweb.limits import FRAMING, HEADER_BLOCK, INTERIM_ANSWERS, LOCATION, too_large, too_many_chunks
from spyweb.ops.network.names import NO_URL, check_authority, read_url
from spyweb.ops.network.request import as_written

END_OF_HEAD = re.compile(rb"\n\r?\n")
SWITCHING = 101  # the one answer 1xx that is none before another
SLICE = 16_384  # bytes of a body that are parsed before its chunks are counted
REFUSED = "no-url:"  # a scheme that aiohttp does not follow, and does not read what comes after

_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what aiohttp makes of such bytes


class Incoming(ResponseHandler):
    """Reads what a server sends, within bounds: of a head, of the answers before the answer, of chunks.

    A head is read before what came together with it.  Else bytes behind the end of an answer, such as the body of a
    204, or more than the Content-Length says, would have all of it refused, the status too.  So they just have the
    connection closed.
    """

    def set_response_params(self, **params: Any) -> None:
        """Begin to wait for the answer to a request."""
        self._is_answered = False
        self._head = 0  # bytes of the head that is under way
        self._end = b""  # the last of them: the blank line may come in two pieces
        self._interim = 0
        self._taken = 0  # bytes of the body and what stands between its chunks
        self._chunks = 0
        super().set_response_params(**params)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Queue the answer; those that come before it are only counted, since nobody waits for them."""
        if 100 <= data[0].code < 200 and data[0].code != SWITCHING:
            return
        if self._is_answered:
            self._close()
            return
        self._is_answered = True
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._upgraded:  # nothing has been asked yet, or no HTTP is spoken any more
            super().data_received(data)
        elif not data:
            self._parse(data)  # what the parser has kept back
        while data and self._parser is not None and not self._upgraded and self.exception() is None:
            data = self._take_body(data) if self._is_answered else self._take_head(data)
        self._tell_reader()

    def _take_head(self, data: bytes) -> bytes:
        """Parse what belongs to one head.  Returns the rest."""
        found = END_OF_HEAD.search(self._end + data)
        size = found.end() - len(self._end) if found else len(data)
        self._head += size
        if self._head > HEADER_BLOCK:
            self._refuse(f"the head of the answer has more than {HEADER_BLOCK} bytes")
            return b""
        self._end = b"" if found else (self._end + data)[-3:]
        self._parse(data[:size])
        if found and not self._is_answered:
            self._head = 0
            self._interim += 1  # a blank line without a head, too
            if self._interim > INTERIM_ANSWERS:
                self._refuse(f"more than {INTERIM_ANSWERS} interim answers before the answer")
        return data[size:]

    def _take_body(self, data: bytes) -> bytes:
        """Parse some of the body.  Returns the rest."""
        if self._payload is None or self._payload.is_eof():
            self._close()
            return b""
        self._taken += len(data[:SLICE])
        self._parse(data[:SLICE])
        return data[SLICE:]

    def _parse(self, data: bytes) -> None:
        before = _chunks_unread(self._payload)
        super().data_received(data)
        body = self._payload
        self._chunks += max(0, _chunks_unread(body) - before)
        if body is None or body.is_eof():
            return
        if too_many_chunks(self._chunks, body.total_bytes):
            self._refuse(f"the body comes in too many chunks: {self._chunks} for {body.total_bytes} bytes")
        if self._taken > FRAMING + 2 * body.total_bytes:
            self._refuse(f"the body has {self._taken - body.total_bytes} bytes beside its content")

    def _refuse(self, reason: str) -> None:
        if self.exception() is None:
            self.set_exception(HttpProcessingError(message=reason))
        self._close()

    def _close(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()

    def _tell_reader(self) -> None:
        """End the body where it can't be read: aiohttp would let whoever reads it wait for the rest."""
        error, body = self.exception(), self._payload
        if isinstance(error, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(FetchError("http", in_one_line(error.message)))


def _chunks_unread(body: StreamReader | None) -> int:
    """Count the chunks that have come and that nobody has read."""
    return len(getattr(body, "_http_chunk_splits", None) or ())


def in_one_line(message: str) -> str:
    """The other lines of aiohttp's messages show bytes of the answer."""
    return (message or "bad response").splitlines()[0].rstrip(":")


class HttpResponse(aiohttp.ClientResponse):
    @cached_property  # aiohttp asks for them often
    def headers(self) -> CIMultiDictProxy[str]:  # aiohttp follows what it finds there
        headers = super().headers
        location = headers.get("Location") or headers.get("URI")
        return with_location(headers, led_to(self.url, location)) if location else headers


def with_location(headers: CIMultiDictProxy[str], location: str) -> CIMultiDictProxy[str]:
    changed = CIMultiDict(headers)
    changed["Location"] = location
    return CIMultiDictProxy(changed)


def led_to(base: URL, location: str) -> str:
    """The address that a redirect leads to, as browsers have it: no UTF-8 is escaped, and the query stays as it is."""
    size = len(location.encode("utf-8", "surrogateescape"))
    if size > LOCATION:
        return REFUSED + too_large("a Location", size, LOCATION)
    text = _NO_UTF8.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", location)
    try:
        check_authority(text)
    except ValueError as error:
        return REFUSED + str(error)
    try:
        target = read_url(text)
        if target.scheme and not target.raw_host:
            return text
        return str(as_written(base.join(target), text))
    except NO_URL:
        return REFUSED + text
