"""The sender of a request, as the guard has recognised it, and the rights that it has."""

from __future__ import annotations

from typing import Literal

from aiohttp import web
from msgspec import Struct

from spyweb.store.model.access import Scope
from spyweb.store.patterns import is_within
from spyweb.web.access.keys import Pass

Right = Scope  # what a key permits is what a request needs
ALL = frozenset(Right)
PUBLIC = None  # in place of a right: anybody may ask


def rights_of(*scopes: Right) -> frozenset[Right]:
    """Return all rights that come with these: reading comes with each, and everything with `admin`."""
    return ALL if Right.ADMIN in scopes else frozenset({Right.READ, *scopes}) if scopes else frozenset()


class Principal(Struct, frozen=True, kw_only=True):
    """The sender of a request, and what it may do."""

    name: str
    rights: frozenset[Right]
    source: Literal["key", "session", "socket", "loopback", "nobody"]
    jobs: tuple[str, ...] = ()  # patterns of the ids that it may see; none: all jobs, and what is of no job
    given: Pass | None = None  # the key, or the session, that it has shown

    def may(self, right: Right | None) -> bool:
        return right is None or right in self.rights

    @property
    def may_do(self) -> frozenset[str]:
        """The names of the rights, as pages ask for them."""
        return frozenset(right.value for right in self.rights)

    def may_see(self, job: str) -> bool:
        return is_within(self.jobs, job)


SOCKET = Principal(name="local", rights=ALL, source="socket")
LOOPBACK = Principal(name="loopback", rights=ALL, source="loopback")  # where there is no key at all
NOBODY = Principal(name="", rights=frozenset(), source="nobody")  # has shown no key, and needs none


def check_may_make_keys(principal: Principal) -> None:
    """Refuse whoever has shown nothing but that it runs on this machine, as every program here does."""
    if principal.source == "loopback":
        raise web.HTTPForbidden(text="the first key is made in a terminal: `spyweb keys add NAME --scope admin`")


LONGEST_NAME = 100  # characters of a name that somebody has typed


def legible(text: str, most: int) -> str:
    """Return the beginning of what others have written, without marks that nobody sees or that turn a line around."""
    return "".join(each if each.isprintable() else "?" for each in text[:most])


def typed_name(text: str) -> str:
    return legible(" ".join(text.split()), LONGEST_NAME)


PRINCIPAL = web.RequestKey("principal", Principal)


def key_of(request: web.Request) -> str:
    """Return the name of the key that a request, or its session, has shown; an empty text where it is none."""
    principal = request.get(PRINCIPAL)
    return principal.given.name if principal and principal.given else ""


def principal_of(request: web.Request) -> Principal:
    """Return whoever sent this request; the guard has put it there."""
    return request[PRINCIPAL]
