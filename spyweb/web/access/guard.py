"""The guard of the server: refuses requests that lack a right, and records changes in the audit trail.

Once there is a key, everything under /api/ except /api/public/ needs one.  recognise.py identifies the sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import SpywebError
from spyweb.store.model.access import NewAuditLine
from spyweb.web.access.audit import AuditService
from spyweb.web.access.forward import VOUCHER, Forwarder
from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import NOBODY, PRINCIPAL, Principal, Right, legible
from spyweb.web.access.recognise import HARMLESS, AccessRule, Recognise, WrongKey, address_in
from spyweb.web.answer import status_of, wants_page

API = "/api/"
PRIVATE, PUBLIC = "/api/v/", "/api/public/"  # endpoints of the project's server
TARGETS = ("name", "namespace", "key", "pattern", "id", "version", "old", "new")  # parameters that name something
ABOUT = web.RequestKey("what a request is about, where only its handler can tell", str)
TARGET = 200  # characters of that

SAFE = "/?&=%+-._~:@!$()*,"  # what an address is made of, but for `;`, quotes and all that ends a header's value
EVERYBODY = AccessRule(None, of_project=True)
ANY_KEY = AccessRule(Right.READ, of_project=True)  # unknown ones under /api/, which strangers do not learn


def guarded_by(
    recognise: Recognise,
    rules: Mapping[Handler, AccessRule],
    trail: Trail | None = None,
    underway: OpenRequests | None = None,
    forwarder: Forwarder | None = None,
) -> Middleware:
    """Make the guard of an app: these handlers have their own rules; the rule of others follows from the address."""

    async def admit(request: web.Request, handler: Handler, rule: AccessRule) -> web.StreamResponse:
        request[PRINCIPAL] = principal = _recognised(recognise, forwarder, request, rule)
        if rule.right is not None and _is_linked_from_elsewhere(request, principal):
            # The page reloads itself: the browser sends the cookie with that request.
            address = quote(request.path_qs, safe=SAFE)  # not as it was sent: a request may name another host
            return web.Response(headers={"Refresh": f"0;url={address}", "Cache-Control": "no-store"})
        check_right(principal, rule)
        handler = partial(forwarder.answer, handler, rule.at_owner) if forwarder and rule.right else handler
        if underway and principal.has_key and VOUCHER not in request:
            return await underway.handle(request, principal, handler)
        return await handler(request)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        rule = rules.get(request.match_info.handler) or _other_rule(request)
        try:
            answer = await admit(request, handler, rule)
        except Exception as error:
            if trail:
                trail.note_failure(request, rule, error)
            raise
        if trail:
            trail.note(request, rule, answer.status)
        return answer

    return check


LAST_S = 1.0  # for ending a stream whose client reads nothing


class Underway(Struct):
    given: Principal
    task: asyncio.Task[object]
    answer: web.StreamResponse | None = None  # once its head has been sent
    is_ended: bool = False


class OpenRequests:
    """Knows the open requests of each key, and ends the streams of a key that is revoked.

    A request whose answer has not begun is completed: no change is interrupted half way.
    """

    def __init__(self, access: AccessService) -> None:
        self._access = access
        self._open: dict[int, Underway] = {}  # by the identity of the request
        access.on_ended(self._end)

    async def handle(self, request: web.Request, given: Principal, handler: Handler) -> web.StreamResponse:
        """Answer a request, and count it meanwhile."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in one
        underway = self._open[id(request)] = Underway(given, task)
        try:
            with self._access.held(given):
                return await handler(request)
        except asyncio.CancelledError:
            if not underway.is_ended or underway.answer is None:
                raise
            task.uncancel()
            return await _finish(request, underway.answer)
        finally:
            del self._open[id(request)]

    async def note_begun(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Note that the head of an answer is being sent."""
        if underway := self._open.get(id(request)):
            underway.answer = answer

    def _end(self) -> None:
        for underway in list(self._open.values()):
            if underway.answer and not underway.is_ended and not self._access.is_valid(underway.given):
                underway.is_ended = True
                underway.task.cancel()


OPEN_REQUESTS: web.AppKey[OpenRequests] = web.AppKey("requests that are under way")


async def _finish(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """End a stream properly, so that the browser reports no error; cut it off where the client does not read."""
    try:
        async with asyncio.timeout(LAST_S):
            await answer.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
    answer.force_close()
    return answer


class Trail:
    """Records requests in the audit trail."""

    def __init__(self, audit: AuditService, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock

    def note(self, request: web.Request, rule: AccessRule, status: int) -> None:
        """Record a request of a known sender that may change something, also one that was refused."""
        principal = request.get(PRINCIPAL)
        if principal is None or principal.source == "nobody" or request.method in HARMLESS or VOUCHER in request:
            return  # what another node has sent is on record there
        if rule.right is not None and not rule.of_project:
            self.note_by(request, principal.name, principal.source, status)

    def note_failure(self, request: web.Request, rule: AccessRule, error: Exception) -> None:
        is_unsigned = rule.asks_itself and isinstance(error, web.HTTPUnauthorized)
        if is_unsigned or isinstance(error, WrongKey):
            self.note_wrong_key(request)
        elif isinstance(error, web.HTTPException):
            self.note(request, rule, error.status)
        elif isinstance(error, SpywebError):
            self.note(request, rule, status_of(error)[0])
        else:
            self.note(request, rule, 499 if isinstance(error, ConnectionError) else 500)  # 499: its client hung up

    def note_wrong_key(self, request: web.Request) -> None:
        self._audit.note_failure(self._line(request, "nobody", "nobody", WrongKey.status_code))

    def note_by(self, request: web.Request, who: str, source: str, status: int) -> None:
        """Record a sign-in or sign-out of a "session", or an action by the "link" of a channel."""
        self._audit.note(self._line(request, who, source, status))

    def _line(self, request: web.Request, who: str, source: str, status: int) -> NewAuditLine:
        resource, query = request.match_info.route.resource, request.query
        path = resource.canonical if resource else request.path[:TARGET]
        in_path = [f"{name} {value}" for name, value in request.match_info.items() if name != "job"]
        in_query = [f"{name} {query[name]}" for name in TARGETS if name in query]
        about = request[ABOUT] if ABOUT in request else ", ".join([*in_path, *in_query])
        return NewAuditLine(
            at_ms=self._clock.now_ms(),
            who=who,
            source=source,
            action=f"{request.method} {path}",
            job=legible(request.match_info.get("job") or query.get("job", ""), TARGET),
            target=legible(about, TARGET),
            status=status,
            address="" if source == "socket" else address_in(request),
        )


TRAIL: web.AppKey[Trail] = web.AppKey("what is put on record")


def _is_linked_from_elsewhere(request: web.Request, principal: Principal) -> bool:
    """Return whether a browser followed a link on another site, and therefore did not send its cookie."""
    if principal.source != "nobody" or request.method != "GET" or not wants_page(request):
        return False
    return request.headers.get("Sec-Fetch-Site") == "cross-site"


def _recognised(recognise: Recognise, forwarder: Forwarder | None, request: web.Request, rule: AccessRule) -> Principal:
    if forwarder and rule.right is not None and (vouched := forwarder.recognise(request)):
        return vouched
    try:
        return recognise(request, rule)
    except web.HTTPForbidden:  # it comes from elsewhere
        if rule.asks_itself:
            return NOBODY
        raise


def check_right(principal: Principal, rule: AccessRule) -> None:
    """Refuse who lacks the right.  Raises HTTPUnauthorized and HTTPForbidden."""
    if rule.right is None or rule.asks_itself:
        return
    if principal.source == "nobody":
        raise web.HTTPUnauthorized
    if rule.right not in principal.rights:
        raise web.HTTPForbidden(text=f"{principal.name} lacks the right {rule.right}")
    if principal.jobs and not rule.of_job:
        raise web.HTTPForbidden(text=f"{principal.name} may ask about its jobs only")


def _other_rule(request: web.Request) -> AccessRule:
    """Return the rule of the route that will answer, by its path, not as spelt: `/%61pi/jobs` is `/api/jobs`."""
    resource = request.match_info.route.resource
    path = resource.canonical if resource and resource.canonical.startswith(API) else request.path
    return ANY_KEY if path.startswith(API) and not path.startswith(PUBLIC) else EVERYBODY
