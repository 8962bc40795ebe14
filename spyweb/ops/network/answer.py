"""Read the headers of an HTTP response as aiohttp does, except for Location.

aiohttp would drop a Location with bytes that are not UTF-8, and change the escapes of any other.
"""

from __future__ import annotations

import re
from functools import cached_property

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb.limits import LOCATION, too_large
from spyweb.ops.network.request import NO_URL, as_written, check_authority, read_url

REFUSED = "no-url:"  # a scheme that aiohttp does not follow, without parsing the rest

_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what aiohttp makes of such bytes


def in_one_line(message: str) -> str:
    """Return the first line of one of aiohttp's messages; the others show bytes of the response."""
    return (message or "bad response").splitlines()[0].rstrip(":")


class HttpResponse(aiohttp.ClientResponse):
    @cached_property  # aiohttp reads them often
    def headers(self) -> CIMultiDictProxy[str]:  # aiohttp follows the Location in it
        headers = super().headers
        location = headers.get("Location") or headers.get("URI")
        return with_location(headers, led_to(self.url, location)) if location else headers


def with_location(headers: CIMultiDictProxy[str], location: str) -> CIMultiDictProxy[str]:
    changed = CIMultiDict(headers)
    changed["Location"] = location
    return CIMultiDictProxy(changed)


def led_to(base: URL, location: str) -> str:
    """Return the address that a redirect leads to, as browsers do: non-UTF-8 is escaped, the query stays as it is."""
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
