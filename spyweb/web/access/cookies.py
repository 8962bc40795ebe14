"""Read and write the cookie of a browser's session.

Its name has the port in it: cookies don't know ports, and two daemons of one machine would sign each other's users out.
Behind TLS it is a `__Host-` cookie, which no other host can set.
"""

from __future__ import annotations

from collections.abc import Collection

from aiohttp import web

from spyweb.limits import KEY_TEXT
from spyweb.web.access.hosts import is_named
from spyweb.web.access.keys import LONGEST_MS

COOKIE_NAME = "spyweb_"
HEADER = 8_192  # characters of all cookies of a request that are looked through
PORT: web.AppKey[int] = web.AppKey("port that the server listens on")
DASHBOARD_PORT: web.AppKey[int] = web.AppKey("port of the dashboard, where it has one to itself")
HOSTS: web.AppKey[Collection[str]] = web.AppKey("names under which a reverse proxy is asked")


def session_cookie(request: web.Request) -> str:
    """Return the cookie of a session, or an empty text; whatever else a browser sends is passed over."""
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
    is_proxied = request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    return request.secure or (is_proxied and is_named(request.headers.get("Host", ""), request.app[HOSTS]))


def _name(request: web.Request) -> str:
    return f"{'__Host-' if is_secure(request) else ''}{COOKIE_NAME}{request.app[PORT]}"
