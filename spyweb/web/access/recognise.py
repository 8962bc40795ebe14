"""Identify the sender of a request: by the key in a header, by the session of a browser, or as this machine.

Without any key only loopback is served, and a request must also be addressed to loopback: else a web page could reach
the daemon through a host name that points to 127.0.0.1 (DNS rebinding).  With keys, programs may use any host name,
since no such page can have a key; browsers only a known one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from aiohttp import web
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.limits import KEY_TEXT
from spyweb.ops.network.address_check import OwnSockets
from spyweb.web.access import headers
from spyweb.web.access.keys import THE_OWNER, AccessService
from spyweb.web.access.principal import LOOPBACK, NOBODY, Principal, Right
from spyweb.web.connections import address_of

KEY_HEADER, BEARER = "X-SpyWeb-Key", "Bearer "
HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
# The owner of the job that a request names answers; with "rather", where it can't, the node that was asked, with what
# it knows.
AtOwner = Literal["must", "rather"]


class AccessRule(Struct, frozen=True):
    """The right that a handler's requests need."""

    right: Right | None
    of_job: bool = False  # the handler itself checks which jobs the client may see
    at_owner: AtOwner | None = None  # None: any node answers
    of_project: bool = False  # it is an endpoint of the project: what it changes is the project's own affair
    asks_itself: bool = False  # strangers reach the handler, which identifies them in another way


Recognise = Callable[[web.Request, AccessRule], Principal]  # raises what a request is refused with


class WrongKey(web.HTTPUnauthorized):
    """The key of a request is unknown."""


class TooManyTries(web.HTTPTooManyRequests):
    """Too many wrong keys have come, from this address or from all."""

    def __init__(self, wait_s: int) -> None:
        text = f"too many wrong keys came: try again in {wait_s} s"
        super().__init__(text=text, headers={"Retry-After": str(wait_s)})


FREE = 10  # wrong keys without a delay: for a mistyped or outdated key
FREE_OF_ALL = 100  # of all addresses together
LONGEST_S = 60.0
FORGOTTEN_S = 900.0  # after the last wrong one
ADDRESSES = 4_096  # that are known; of more, those are forgotten that have failed longest ago


class WrongKeys(Struct):
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class Throttle:
    """Slows down guessing of keys: per address of a connection, and for all addresses together.

    The address is never taken from a header, which a client can forge.  An address that has sent a right key is
    delayed only by its own wrong keys.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, WrongKeys] = OrderedDict()
        self._of_all = WrongKeys()
        self._right: OrderedDict[str, None] = OrderedDict()  # addresses from which the right key has come

    def wait_s(self, address: str) -> int:
        """Return for how many seconds keys from an address are not checked; 0: they are."""
        until = self._known[address].until if address in self._known else 0.0
        if address not in self._right:
            until = max(until, self._of_all.until)
        return max(0, math.ceil(until - self._clock.monotonic()))

    def succeed(self, address: str) -> None:
        self._right[address] = None
        self._right.move_to_end(address)
        _keep_newest(self._right)

    def fail(self, address: str) -> None:
        """Count a wrong key: each further one waits twice as long."""
        self._known[address] = self._one_more(self._known.pop(address, WrongKeys()), FREE)
        self._of_all = self._one_more(self._of_all, FREE_OF_ALL)
        _keep_newest(self._known)

    def _one_more(self, known: WrongKeys, free: int) -> WrongKeys:
        now = self._clock.monotonic()
        if now - known.last > FORGOTTEN_S:
            known = WrongKeys()
        known.count, known.last = known.count + 1, now
        if known.count > free:
            known.until = now + min(2.0 ** min(known.count - free - 1, 10), LONGEST_S)
        return known


def _keep_newest(addresses: OrderedDict[str, Any]) -> None:
    while len(addresses) > ADDRESSES:
        addresses.popitem(last=False)


class Recogniser:
    """Recognises the senders of TCP's requests."""

    def __init__(
        self, access: AccessService, throttle: Throttle, own: OwnSockets, *, is_of_content: bool = False
    ) -> None:
        self._access = access
        self._own = own
        self._throttle = throttle
        self._is_of_content = is_of_content

    def of_content(self) -> Recogniser:
        """Return one for the project's content, where pages of anybody may ask: without a key nobody is known."""
        return Recogniser(self._access, self._throttle, self._own, is_of_content=True)

    def __call__(self, request: web.Request, rule: AccessRule) -> Principal:
        if self._access.is_open:
            if self._own.has_opened(request.get_extra_info("peername")):
                return NOBODY  # a request of a job is not one of this machine's user
            if headers.is_proxied(request):
                raise web.HTTPForbidden(
                    text="without any key nothing is answered through a proxy: `spyweb keys add` makes one"
                )
            local = by_loopback(request, rule)
            if rule.of_project or not self._is_of_content:
                return local
            if rule.right is None:
                return NOBODY
            port = request.app[headers.DASHBOARD_PORT]
            raise web.HTTPForbidden(text=f"without a key this is answered on the dashboard's port alone, {port}")
        given = request.headers.get(KEY_HEADER) or bearer_of(request.headers.get("Authorization", ""))
        if given and rule.right is not None:
            return self.admit(given, address_in(request))
        cookie = "" if given or self._is_of_content else headers.session_cookie(request)
        found = self._access.admit_session(cookie) if cookie else None
        if found and rule.right is not None:
            check_page(request)
        return found or NOBODY

    def admit(self, given: str, address: str) -> Principal:
        """Return the principal of a key.  Raises WrongKey, or TooManyTries where the key is not even checked.

        A token is always checked: it cannot be guessed, so its owner is never delayed.
        """
        found = self._access.admit_token(given) if len(given) <= KEY_TEXT else None
        if found:
            return found
        if wait_s := self._throttle.wait_s(address):
            raise TooManyTries(wait_s)
        if len(given) <= KEY_TEXT and self._access.is_owner(given):
            self._throttle.succeed(address)
            return THE_OWNER
        self._throttle.fail(address)
        raise WrongKey

    def knows(self, given: str) -> bool:
        """Return whether a text is a key."""
        return len(given) <= KEY_TEXT and self._access.admit_key(given) is not None


def check_page(request: web.Request) -> None:
    """Refuse a browser that asks under an unknown name, or for a page of another site."""
    names = request.app[headers.HOSTS]
    if not headers.is_known(request.headers.get("Host", ""), names):
        raise web.HTTPForbidden(text="browsers are answered only under a name that [server] hosts lists")
    if request.method not in HARMLESS and headers.comes_from_elsewhere(request, names):
        raise web.HTTPForbidden(text="a page of another site may change nothing here")


RECOGNISER: web.AppKey[Recogniser] = web.AppKey("what recognises keys")


def by_loopback(request: web.Request, rule: AccessRule) -> Principal:
    """Recognise this machine, where there is no key."""
    sent = request.headers
    if not headers.names_loopback(sent.get("Host", "")):
        raise web.HTTPForbidden(
            text="without any key only requests to localhost are answered: `spyweb keys add` makes one"
        )
    if request.remote and not headers.names_loopback(headers.bracketed(request.remote)):
        raise web.HTTPForbidden(text="without any key only this machine is answered: `spyweb keys add` makes one")
    if request.method in HARMLESS or rule.right is None:
        return LOOPBACK
    if rule.of_project:  # its pages may come from a server of their own on this machine
        is_foreign = "Origin" in sent and not headers.names_loopback(sent["Origin"].partition("://")[2])
    else:
        is_foreign = headers.comes_from_elsewhere(request, ())
    if is_foreign:
        raise web.HTTPForbidden(text="without any key a page of another site may change nothing here")
    return LOOPBACK


def bearer_of(authorization: str) -> str:
    is_bearer = authorization[: len(BEARER)].lower() == BEARER.lower()
    return authorization[len(BEARER) :].strip() if is_bearer else ""


def address_in(request: web.Request) -> str:
    """Return the address of the connection of a request; its headers are ignored."""
    return address_of(request.get_extra_info("peername"))
