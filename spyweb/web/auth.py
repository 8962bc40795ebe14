"""Guard what TCP serves: refuse requests that may not come in.

With a key, everything under /api/ but /api/public/ needs it.  Without one only loopback is served, and a request
must also be addressed to loopback: else a web page could reach the daemon through a name of its own that it points
to 127.0.0.1 (DNS rebinding).  Nor may a page of another site send what changes something: its browser says where it
comes from.  With a key no page can, since a browser asks before it sends that header; /api/public/ is for everybody.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from spyweb.limits import HOST

KEY_HEADER = "X-SpyWeb-Key"
API = "/api/"
PRIVATE, PUBLIC = "/api/v/", "/api/public/"  # endpoints of the project's server
HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


Guard = Callable[[web.Request], None]  # raises what a request is refused with


def require_key(key: str) -> Guard:
    expected = key.encode("utf-8", "surrogateescape")

    def check(request: web.Request) -> None:
        given = request.headers.get(KEY_HEADER, "").encode("utf-8", "surrogateescape")
        if _is_guarded(path_of(request)) and not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized

    return check


def require_loopback_host(request: web.Request) -> None:
    headers = request.headers
    if not _names_loopback(headers.get("Host", "")):
        raise web.HTTPForbidden(text="without SPYWEB_API_KEY only requests to localhost are answered")
    if "Origin" in headers and _is_sent_by_a_foreign_page(request):
        raise web.HTTPForbidden(text="without SPYWEB_API_KEY a page of another site may change nothing here")


def guarded_by(guard: Guard) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        guard(request)
        return await handler(request)

    return check


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _names_loopback(header: str) -> bool:
    return len(header) <= HOST and _is_loopback_name(header)


@lru_cache(maxsize=256)
def _is_loopback_name(header: str) -> bool:
    return is_loopback(_host_name(header))


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_sent_by_a_foreign_page(request: web.Request) -> bool:
    if request.method in HARMLESS or path_of(request).startswith(PUBLIC):
        return False
    return not _names_loopback(request.headers["Origin"].partition("://")[2])


def _is_guarded(path: str) -> bool:
    return path.startswith(API) and not path.startswith(PUBLIC)


def path_of(request: web.Request) -> str:
    """Return the path of the route that will answer, not as spelt: `/%61pi/jobs` is `/api/jobs`."""
    resource = request.match_info.route.resource
    return resource.canonical if resource and resource.canonical.startswith(API) else request.path
