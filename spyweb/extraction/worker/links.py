"""Make links absolute, as a browser would follow them."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

urlsplit("//ö")  # imports now what it needs for such a host: a confined process can't

_AROUND = "".join(map(chr, range(33)))  # control characters and the space
_INSIDE = str.maketrans("", "", "\t\n\r")
_SIMPLE_PATH = re.compile(r"/(?!/)[^\s\\.]*\Z")
_BASE_SCHEMES = ("http", "https")


class Links:
    """Resolves the links of one page."""

    def __init__(self, url: str, base: str | None) -> None:
        """Set the page's address; `base` is what its base element says, if there is one."""
        self._base = _resolve_base(url, base)
        self._origin = _origin_of(self._base)

    def absolute(self, link: str) -> str:
        """Return the absolute link; an empty one stays empty, and one that can't be resolved stays as it is."""
        link = link.strip(_AROUND).translate(_INSIDE)
        if self._origin and _SIMPLE_PATH.match(link):  # urljoin is much slower
            return self._origin + link
        return _join(self._base, link) if link else ""


def _resolve_base(url: str, base: str | None) -> str:
    if base is None:
        return url
    resolved = _join(url, base.strip(_AROUND).translate(_INSIDE))
    return resolved if _scheme_of(resolved) in _BASE_SCHEMES else url


def _join(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:
        return link


def _scheme_of(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def _origin_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in _BASE_SCHEMES and parts.netloc else ""
