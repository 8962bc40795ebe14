"""Handlers for access: keys, the audit trail, and the client's own rights."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.store.model.access import AuditLine, Scope
from spyweb.subjects.access.views import KeyRevoked, KeyView, MadeKey, Myself, view_key
from spyweb.web.access.audit import AuditService
from spyweb.web.access.guard import ABOUT
from spyweb.web.access.keys import AccessService, find_problem
from spyweb.web.access.principal import check_may_make_keys, principal_of
from spyweb.web.answer import BadBody, json_answer
from spyweb.web.api.query import Natural, body_of, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of

MAX_LIMIT = 1_000


class KeyBody(Struct, frozen=True):
    """A new key."""

    name: str
    scopes: list[Scope]
    jobs: list[str] = []  # patterns of the jobs that it is limited to; empty: all


class AuditQuery(Struct, frozen=True):
    """How many lines."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 50
    before: Natural = 0  # the id of a line: only older ones


@Route("GET", "/api/me", right=Right.READ, answer=Myself, of_job=True)
async def show_myself(request: web.Request) -> web.Response:
    """Show the client's own name and rights."""
    principal = principal_of(request)
    rights = tuple(right.value for right in Right if right in principal.rights)
    return json_answer(Myself(name=principal.name, source=principal.source, rights=rights, jobs=principal.jobs))


@Route("GET", "/api/keys", right=Right.ADMIN, answer=list[KeyView])
async def list_keys(request: web.Request) -> web.Response:
    """List the keys, by name; never their tokens."""
    return json_answer([view_key(key) for key in service_of(request, AccessService).all_keys()])


@Route("POST", "/api/keys", right=Right.ADMIN, answer=MadeKey, body=KeyBody)
async def add_key(request: web.Request) -> web.Response:
    """Make a key, and return its token, which is never shown again."""
    principal = principal_of(request)
    check_may_make_keys(principal)
    if principal.source == "session":
        raise web.HTTPForbidden(text="a session can't make keys here: use the page Keys, which asks for your key again")
    body = await body_of(request, KeyBody)
    if found := find_problem(body.name, body.scopes, body.jobs):
        raise BadBody(*found)
    request[ABOUT] = body.name
    access = service_of(request, AccessService)
    is_first = access.is_open
    made = await access.add(body.name, body.scopes, body.jobs)
    answer = json_answer(MadeKey(key=view_key(made.key), token=made.token, is_first=is_first))
    answer.headers["Cache-Control"] = "no-store"
    return answer


@Route("DELETE", "/api/keys/{name}", right=Right.ADMIN, answer=KeyRevoked)
async def revoke_key(request: web.Request) -> web.Response:
    """Revoke a key, and end its sessions and event streams."""
    name = request.match_info["name"]
    if not await service_of(request, AccessService).revoke(name):
        raise web.HTTPNotFound(text=f"there is no key {name[:80]!r}: `spyweb keys list` shows them")
    return json_answer(KeyRevoked(name=name))


@Route("GET", "/api/audit", right=Right.ADMIN, answer=list[AuditLine], query=AuditQuery)
async def list_audit(request: web.Request) -> web.Response:
    """List the audit trail, newest first: who did what."""
    query = query_of(request, AuditQuery)
    return json_answer(await service_of(request, AuditService).lines(limit=query.limit, before=query.before or None))
