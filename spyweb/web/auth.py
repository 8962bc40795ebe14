"""Who may come in by TCP.

With a key, everything under /api/ but /api/public/ needs it.  Without one only loopback is served, and a request
must also be addressed to loopback: else a web page could reach the daemon through a name of its own that it points
to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

KEY_HEADER = "X-SpyWeb-Key"


def require_key(key: str) -> Middleware:
    expected = key.encode("utf-8", "surrogateescape")

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get(KEY_HEADER, "").encode("utf-8", "surrogateescape")
        if _is_guarded(request) and not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized
        return await handler(request)

    return check


@web.middleware
async def require_loopback_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not is_loopback(_host_name(request.headers.get("Host", ""))):
        raise web.HTTPForbidden(text="without SPYWEB_API_KEY only requests to localhost are answered")
    return await handler(request)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_guarded(request: web.Request) -> bool:
    """Asks the route that will answer, not the path as spelt: `/%61pi/jobs` is `/api/jobs`."""
    resource = request.match_info.route.resource
    path = resource.canonical if resource else request.path
    return path.startswith("/api/") and not path.startswith("/api/public/")
