"""Start jobs by requests of other programs, which show that they may by a signature instead of a key.

To whoever may not, every job looks alike, whether there is one or not: same answer, after the same work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import parse_qsl

from aiohttp import web

from spyweb.limits import HOOK_BODY, HOOK_QUERY, HOOK_VALUES, SCRIPT_VALUES, too_large
from spyweb.model import JobId
from spyweb.service.hooks import Delivery, HookService
from spyweb.views.jobs import Triggered
from spyweb.web.access.principal import PRINCIPAL, Principal, principal_of
from spyweb.web.answer import BadBody
from spyweb.web.api.keys import SERVICE
from spyweb.web.api.once import HEADERS, REUSED, key_of, parent_of, started_answer
from spyweb.web.api.payload import read_payload
from spyweb.web.api.query import check_may_see
from spyweb.web.api.route import Right, route
from spyweb.web.body import BODY_MEMORY, Body

ACCEPTED = 202
REFUSED = "expected the signature of this hook, or a key"


@route(
    "POST",
    "/api/hooks/{job}",
    right=Right.RUN,
    answer=Triggered,
    body=object | None,
    status=ACCEPTED,
    statuses=REUSED,
    headers=HEADERS,
    asks_itself=True,
)
async def receive_hook(request: web.Request) -> web.Response:
    """Start a job for another program, which signs its request, or has a key with the right to run the job.

    The script finds the body in `ctx.trigger.payload`: a table of JSON, or else text.  With the header
    `Idempotency-Key` a request that is repeated within a day starts no second run, and gets the first answer.
    """
    service, name = request.app[SERVICE], request.match_info["job"]
    with closing(Body(request.app[BODY_MEMORY], HOOK_BODY, "what is sent to a hook")) as body:
        content = await body.read(request) if request.can_read_body else b""
        job = _let_in(request, service.hooks, service.find(name), content)
        if job is None:
            raise web.HTTPNotFound(text=service.no_such_job(name))
        delivery = Delivery(
            body=content,
            payload=await _payload(request, content),
            headers=request.headers,
            query=_query(request),
            key=key_of(request),
            parent=parent_of(request),
        )
    return started_answer(await service.hooks.receive(job, delivery), ACCEPTED)


def _let_in(request: web.Request, hooks: HookService, job: JobId | None, content: bytes) -> JobId | None:
    """Return the job that may be started, None where there is none.  Raises HTTPUnauthorized or HTTPForbidden."""
    principal = principal_of(request)
    if hooks.is_signed(job, request.headers, content) and job is not None:
        request[PRINCIPAL] = Principal(name=f"hook {job}", rights=frozenset({Right.RUN}), source="key", jobs=(job,))
        return job
    is_only_near = principal.source == "loopback" and hooks.needs_signature(job)
    if principal.source == "nobody" or is_only_near:
        raise web.HTTPUnauthorized(text=REFUSED)
    if not principal.may(Right.RUN):
        raise web.HTTPForbidden(text=f"{principal.name} lacks the right {Right.RUN}")
    check_may_see(request, job or request.match_info["job"])
    return job


async def _payload(request: web.Request, content: bytes) -> object:
    if not content:
        return None
    kind = request.content_type
    if kind == "application/json" or kind.endswith("+json"):
        if len(content) <= SCRIPT_VALUES:
            return read_payload(content, HOOK_VALUES)
        return await asyncio.to_thread(read_payload, content, HOOK_VALUES)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadBody(None, "the body is neither JSON nor text in UTF-8") from error


def _query(request: web.Request) -> Mapping[str, str]:
    raw = request.rel_url.raw_query_string
    if len(raw) > HOOK_QUERY:
        raise web.HTTPBadRequest(text=too_large("the query", len(raw), HOOK_QUERY, "characters"))
    return dict(parse_qsl(raw, keep_blank_values=True, encoding="utf-8", errors="replace"))
