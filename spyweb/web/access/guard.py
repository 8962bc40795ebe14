"""Guard what is served: recognise whoever asks, and refuse what it may not.

With a key, everything under /api/ but /api/public/ needs it.  Without one only loopback is served, and a request
must also be addressed to loopback: else a web page could reach the daemon through a name of its own that it points
to 127.0.0.1 (DNS rebinding).  Nor may a page of another site send what changes something: its browser says where it
comes from.  With a key no page can, since a browser asks before it sends that header; /api/public/ is for everybody.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from spyweb.web.access.hosts import names_loopback
from spyweb.web.access.principal import API_KEY, LOOPBACK, NOBODY, PRINCIPAL, SOCKET, Principal
from spyweb.web.access.rights import Right

KEY_HEADER = "X-SpyWeb-Key"
API = "/api/"
PRIVATE, PUBLIC = "/api/v/", "/api/public/"  # endpoints of the project's server
HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The right that a handler's requests need."""

    right: Right | None
    of_job: bool = False  # the handler itself asks whether this job may be seen, or leaves out those that may not


Recognise = Callable[[web.Request], Principal]  # raises what a request is refused with, whatever it asks for

EVERYBODY = AccessRule(None)
ANY_KEY = AccessRule(Right.READ)  # of an address under /api/ that is none: strangers are not told so


def guarded_by(recognise: Recognise, rules: Mapping[Handler, AccessRule]) -> Middleware:
    """Make the guard of an app: each handler's rule, or for all others one by their address."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[PRINCIPAL] = principal = recognise(request)
        rule = rules.get(request.match_info.handler)
        if rule is None:
            rule = ANY_KEY if _is_guarded(path_of(request)) else EVERYBODY
        if rule.right is not None:
            _check(principal, rule)
        return await handler(request)

    return check


def _check(principal: Principal, rule: AccessRule) -> None:
    if principal.source == "nobody":
        raise web.HTTPUnauthorized
    if rule.right not in principal.rights:
        raise web.HTTPForbidden(text=f"{principal.name} lacks the right {rule.right}")
    if principal.jobs and not rule.of_job:
        raise web.HTTPForbidden(text=f"{principal.name} may ask about its jobs only")


def by_key(key: str) -> Recognise:
    """Recognise whoever knows the key of SPYWEB_API_KEY."""
    expected = key.encode("utf-8", "surrogateescape")

    def recognise(request: web.Request) -> Principal:
        given = request.headers.get(KEY_HEADER, "").encode("utf-8", "surrogateescape")
        return API_KEY if hmac.compare_digest(given, expected) else NOBODY

    return recognise


def by_loopback(request: web.Request) -> Principal:
    headers = request.headers
    if not names_loopback(headers.get("Host", "")):
        raise web.HTTPForbidden(text="without SPYWEB_API_KEY only requests to localhost are answered")
    if "Origin" in headers and _is_sent_by_a_foreign_page(request):
        raise web.HTTPForbidden(text="without SPYWEB_API_KEY a page of another site may change nothing here")
    return LOOPBACK


def by_socket(_: web.Request) -> Principal:
    """Recognise the daemon's own user: nobody else may open its socket."""
    return SOCKET


def _is_sent_by_a_foreign_page(request: web.Request) -> bool:
    if request.method in HARMLESS or path_of(request).startswith(PUBLIC):
        return False
    return not names_loopback(request.headers["Origin"].partition("://")[2])


def _is_guarded(path: str) -> bool:
    return path.startswith(API) and not path.startswith(PUBLIC)


def path_of(request: web.Request) -> str:
    """Return the path of the route that will answer, not as spelt: `/%61pi/jobs` is `/api/jobs`."""
    resource = request.match_info.route.resource
    return resource.canonical if resource and resource.canonical.startswith(API) else request.path
