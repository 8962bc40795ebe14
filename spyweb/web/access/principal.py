"""The sender of a request, as the guard has recognised it."""

from __future__ import annotations

from aiohttp import web

from spyweb.web.access.keys import ALL as ALL  # users of this module need all of these
from spyweb.web.access.keys import Principal as Principal
from spyweb.web.access.keys import Right as Right
from spyweb.web.access.keys import rights_of as rights_of

PUBLIC = None  # in place of a right: anybody may ask
SOCKET = Principal(name="local", rights=ALL, source="socket")
LOOPBACK = Principal(name="loopback", rights=ALL, source="loopback")  # where there is no key at all
NOBODY = Principal(name="", rights=frozenset(), source="nobody")  # without a key, where none is needed


def check_may_make_keys(principal: Principal) -> None:
    """Refuse a client without a key that only runs on this machine, as every program here does."""
    if principal.source == "loopback":
        raise web.HTTPForbidden(text="the first key is made in a terminal: `spyweb keys add NAME --scope admin`")


LONGEST_NAME = 100  # characters of a typed name


def legible(text: str, most: int) -> str:
    """Return the beginning of a text, without invisible characters and characters that reverse a line."""
    return "".join(each if each.isprintable() else "?" for each in text[:most])


def typed_name(text: str) -> str:
    return legible(" ".join(text.split()), LONGEST_NAME)


PRINCIPAL = web.RequestKey("principal", Principal)


def key_of(request: web.Request) -> str:
    """Return the name of the key that a request, or its session, has shown; an empty text without a key."""
    principal = request.get(PRINCIPAL)
    return principal.name if principal and principal.has_key else ""


def principal_of(request: web.Request) -> Principal:
    """Return the sender of a request, as the guard has identified it."""
    return request[PRINCIPAL]


def check_may_see(request: web.Request, job: str) -> None:
    """Raise HTTPForbidden where the client may not see this job, whether or not it exists."""
    principal = principal_of(request)
    if not principal.may_see(job):
        raise web.HTTPForbidden(text=f"{principal.name} may not see this job")


def check_may_see_all(request: web.Request) -> None:
    """Raise HTTPForbidden where the client is limited to some jobs."""
    principal = principal_of(request)
    if principal.jobs:
        raise web.HTTPForbidden(text=f"{principal.name} may ask about its jobs only")
