"""Tell whether a request is addressed to this machine, and whether a page of another site has sent it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from spyweb.limits import HOST


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def names_loopback(header: str) -> bool:
    """Return whether a Host header, or what follows the scheme of an Origin, is an address of loopback."""
    return len(header) <= HOST and _is_loopback_name(header)


@lru_cache(maxsize=256)
def _is_loopback_name(header: str) -> bool:
    return is_loopback(_host_name(header))


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
