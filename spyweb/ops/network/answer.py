"""A response as aiohttp reads it, but for a Location with bytes that are no UTF-8, which would be left out."""

from __future__ import annotations

import re

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy

_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what aiohttp makes of such bytes


class Answer(aiohttp.ClientResponse):
    @property
    def headers(self) -> CIMultiDictProxy[str]:  # aiohttp follows what it finds there
        return with_quoted_location(super().headers)


def with_quoted_location(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """As browsers have it: such a byte is percent-encoded."""
    location = headers.get("Location", "")
    if not _NO_UTF8.search(location):
        return headers
    changed = CIMultiDict(headers)
    changed["Location"] = _NO_UTF8.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", location)
    return CIMultiDictProxy(changed)
