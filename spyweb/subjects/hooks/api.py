"""Start jobs by requests of other programs, which prove their right by a signature instead of a key.

A client without the right can't learn which jobs exist: every request gets the same answer, after the same work.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import closing
from typing import Annotated
from urllib.parse import parse_qsl

from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import replace

from spyweb.limits import HOOK_BODY, HOOK_QUERY, HOOK_VALUES, SCRIPT_VALUES, too_large
from spyweb.model import JobId
from spyweb.runs.pings import LONGEST_LOG, Ping
from spyweb.runs.records import FAIL, START, SUCCESS
from spyweb.subjects.hooks.service import Delivery, HookService
from spyweb.subjects.runs.starting import HEADERS, REUSED, key_of, parent_of, read_payload, started_answer
from spyweb.views.jobs import Triggered
from spyweb.web.access.headers import HOSTS, comes_from_elsewhere
from spyweb.web.access.principal import PRINCIPAL, Principal, check_may_see, principal_of
from spyweb.web.access.recognise import HARMLESS
from spyweb.web.answer import BadBody, json_answer
from spyweb.web.api.query import check_loaded, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import SERVICES, service_of
from spyweb.web.body import BODY_MEMORY, Body, media_type_of

ACCEPTED = 202
REFUSED = "expected the signature of this hook, or a key"
OF_BROWSERS = ("session", "loopback")  # sources that a page of another site could misuse
EXIT_CODE = re.compile(r"[0-9]{1,3}", re.ASCII)
MOST_EXIT_CODE = 255
LONGEST_RID = 100


class PingQuery(Struct, frozen=True):
    """The run that a ping reports."""

    rid: Annotated[
        str, Meta(max_length=LONGEST_RID, pattern=r"^[!-~]*$", description="the sender's own id of the run")
    ] = ""


@Route(
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
async def receive_hook(request: web.Request) -> web.StreamResponse:
    """Start a job for another program, which signs its request, or has a key that may run the job.

    The script finds the body in `ctx.trigger.payload`: a table of JSON, or else text.  With the header
    `Idempotency-Key` a request that is repeated within a day starts no second run, and gets the first answer.
    For a job that expects pings, it is a ping: the run succeeded, and the body is its log.
    """
    with closing(Body(request.app[BODY_MEMORY], HOOK_BODY, "what is sent to a hook")) as body:
        content = await body.read(request) if request.can_read_body else b""
        job = _admitted(request, content)
        if answer := await _at_owner(request, job, content):
            return answer
        hooks = service_of(request, HookService)
        if hooks.expects_pings(job):
            return await _hear(request, job, SUCCESS, content)
        raw_query = request.rel_url.raw_query_string
        if len(raw_query) > HOOK_QUERY:
            raise web.HTTPBadRequest(text=too_large("the query", len(raw_query), HOOK_QUERY, "characters"))
        delivery = Delivery(
            body=content,
            payload=await _payload(request, content),
            headers=request.headers,
            query=dict(parse_qsl(raw_query, keep_blank_values=True, encoding="utf-8", errors="replace")),
            key=key_of(request),
            parent=parent_of(request),
        )
    return started_answer(await hooks.receive(job, delivery), ACCEPTED)


PING = Route(
    "GET",
    "/api/hooks/{job}",
    right=Right.RUN,
    answer=Triggered,
    query=PingQuery,
    status=ACCEPTED,
    statuses={web.HTTPMethodNotAllowed.status_code: "The job expects no pings: POST starts it."},
    asks_itself=True,
)
SIGNAL = replace(PING, path="/api/hooks/{job}/{says}", statuses={})


@PING
async def receive_ping(request: web.Request) -> web.StreamResponse:
    """Report a successful run of a job that runs elsewhere and expects pings."""
    return await _receive_ping(request, SUCCESS)


@SIGNAL
async def receive_signal(request: web.Request) -> web.StreamResponse:
    """Report a run of a job that runs elsewhere: it has begun (`start`), has failed (`fail`), or its exit code.

    A `start` and its end belong together by their `rid`, or where both have none.
    """
    return await _receive_ping(request, request.match_info["says"])


@replace(SIGNAL, method="POST", body=str | None, body_media="text/plain")
async def receive_signal_with_log(request: web.Request) -> web.StreamResponse:
    """Report a run of a job that runs elsewhere, as with GET; the body is its log, of which the end is kept."""
    return await _receive_ping(request, request.match_info["says"])


async def _receive_ping(request: web.Request, says: str) -> web.StreamResponse:
    with closing(Body(request.app[BODY_MEMORY], HOOK_BODY, "what is sent to a hook")) as body:
        content = await body.read(request) if request.can_read_body else b""
        job = _admitted(request, content)
        source, site = principal_of(request).source, request.headers.get("Sec-Fetch-Site", "")
        is_unsure = source == "session" and request.method in HARMLESS and site not in ("same-origin", "none")
        if is_unsure or (source in OF_BROWSERS and comes_from_elsewhere(request, request.app[HOSTS])):
            raise web.HTTPForbidden(text="pages of other sites may not send pings")
        if answer := await _at_owner(request, job, content):
            return answer
        if not service_of(request, HookService).expects_pings(job):
            if request.match_info.get("says") is None:
                raise web.HTTPMethodNotAllowed(request.method, ["POST"])
            raise web.HTTPNotFound(text=f"{job} expects no pings: POST to /api/hooks/{job} starts it")
        if says not in (START, SUCCESS, FAIL):
            if not EXIT_CODE.fullmatch(says) or int(says) > MOST_EXIT_CODE:
                raise web.HTTPNotFound(text=f"expected start, fail or an exit code from 0 to 255, not {says[:40]!r}")
            says = str(int(says))
        return await _hear(request, job, says, content)


async def _at_owner(request: web.Request, job: JobId, content: bytes) -> web.StreamResponse | None:
    """Return what the node answers that runs a job; None where this one does."""
    forwarder = request.app[SERVICES].forwarder
    return await forwarder.to_owner(request, job, body=content) if forwarder else None


async def _hear(request: web.Request, job: JobId, says: str, content: bytes) -> web.Response:
    rid = query_of(request, PingQuery).rid
    text = content[-LONGEST_LOG:].decode("utf-8", "replace")
    run = await service_of(request, HookService).hear(job, Ping(says=says, rid=rid, text=text))
    return json_answer(Triggered(run=run), ACCEPTED)


def _admitted(request: web.Request, content: bytes) -> JobId:
    """Return a hook's job.  Raises as `check_loaded`, and where it does not exist or the client may not start it."""
    services, name, principal = request.app[SERVICES], request.match_info["job"], principal_of(request)
    check_loaded(request)
    hooks, job = services[HookService], services.catalogue.find(name)
    if hooks.is_signed(job, request.headers, content) and job is not None:
        request[PRINCIPAL] = Principal(name=f"hook {job}", rights=frozenset({Right.RUN}), source="key", jobs=(job,))
        return job
    is_only_near = principal.source == "loopback" and hooks.needs_signature(job)
    if principal.source == "nobody" or is_only_near:
        raise web.HTTPUnauthorized(text=REFUSED)
    if not principal.may(Right.RUN):
        raise web.HTTPForbidden(text=f"{principal.name} lacks the right {Right.RUN}")
    check_may_see(request, job or name)
    if job is None:
        raise web.HTTPNotFound(text=services.catalogue.no_such_job(name))
    return job


async def _payload(request: web.Request, content: bytes) -> object:
    if not content:
        return None
    kind = media_type_of(request)
    if kind == "application/json" or kind.endswith("+json"):
        if len(content) <= SCRIPT_VALUES:
            return read_payload(content, HOOK_VALUES)
        return await asyncio.to_thread(read_payload, content, HOOK_VALUES)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadBody(None, "the body is neither JSON nor text in UTF-8") from error
