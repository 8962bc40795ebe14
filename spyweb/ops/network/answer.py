"""Answers as aiohttp reads them, but for a few things.

A Location with bytes that are no UTF-8 would be left out, and the escapes of any other changed; an answer would be
refused for what comes behind its end, and a body that goes wrong halfway waited for.
"""

from __future__ import annotations

import re

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb.errors import FetchError
from spyweb.ops.network.request import NO_URL, as_written

END_OF_HEAD = b"\r\n\r\n"
REFUSED = "no-url:"  # a scheme that aiohttp does not follow, and does not read what comes after

_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what aiohttp makes of such bytes


class Incoming(ResponseHandler):
    """What a server sends: its head is read before what came together with it.

    Else bytes behind the end of an answer, such as the body of a 204, or more than the Content-Length says, would have
    all of it refused, the status too.  So they just have the connection closed.
    """

    def data_received(self, data: bytes) -> None:
        head, end, rest = data.partition(END_OF_HEAD)
        super().data_received(head + end)
        if rest and self.exception() is None:
            super().data_received(rest)
        self._tell_reader()

    def _tell_reader(self) -> None:
        """What can't be read ends the body: aiohttp would let whoever reads it wait for the rest."""
        error, body = self.exception(), self._payload
        if isinstance(error, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(FetchError("http", in_one_line(error.message)))


def in_one_line(message: str) -> str:
    """The other lines of aiohttp's messages show bytes of the answer."""
    return (message or "bad response").splitlines()[0].rstrip(":")


class Answer(aiohttp.ClientResponse):
    @property
    def headers(self) -> CIMultiDictProxy[str]:  # aiohttp follows what it finds there
        headers = super().headers
        location = headers.get("Location") or headers.get("URI")
        return with_location(headers, led_to(self.url, location)) if location else headers


def with_location(headers: CIMultiDictProxy[str], location: str) -> CIMultiDictProxy[str]:
    changed = CIMultiDict(headers)
    changed["Location"] = location
    return CIMultiDictProxy(changed)


def led_to(base: URL, location: str) -> str:
    """Where a redirect leads, as browsers have it: a byte that is no UTF-8 is escaped, and the query stays as it is."""
    text = _NO_UTF8.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", location)
    try:
        target = URL(text)
        if target.scheme and not target.raw_host:
            return text
        return str(as_written(base.join(target), text))
    except NO_URL:
        return REFUSED + text
