"""Host names are measured before anything encodes or normalizes them: both cost the square of their length."""

from __future__ import annotations

import re

from yarl import URL

from spyweb.limits import AUTHORITY, HOST, too_large

NO_URL = (ValueError, IndexError)  # what yarl raises; the latter for `http://[]@`

# As yarl takes an address apart: it drops these characters first.
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))
_BEFORE = "".join(map(chr, range(0x21)))
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9+.-]*:)?//([^/?#]*)")


def read_url(text: str) -> URL:
    """Parse an address.  Raises one of NO_URL."""
    check_authority(text)
    url = URL(text)
    check_name(url.raw_host or "")  # a name may be longer once it is encoded
    return url


def check_authority(url: str) -> None:
    """Raise ValueError if the host in an address is longer than any name."""
    found = _AUTHORITY.match(url.translate(_DROPPED).lstrip(_BEFORE))
    authority = found[1] if found else ""
    check_name(authority.rpartition("@")[2].partition(":")[0])
    if not authority.isascii() and len(authority) > AUTHORITY:
        raise ValueError(too_large("the authority of a URL", len(authority), AUTHORITY, "characters"))


def check_name(host: str) -> None:
    """Raise ValueError if a host name is longer than any name."""
    if len(host) > HOST:
        raise ValueError(too_large("a host name", len(host), HOST, "characters"))
