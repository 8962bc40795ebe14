"""Handlers for incidents: list them, look at one, and take care of one."""

from __future__ import annotations

from typing import Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct, field

from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.settings.values import duration
from spyweb.views.incidents import IncidentAcked, IncidentView, JobSilenced, without_others
from spyweb.web.access.principal import LONGEST_NAME, principal_of, typed_name
from spyweb.web.answer import BadBody, json_answer, page_answer
from spyweb.web.api.query import LONGEST_NUMBER, MOST, body_of, check_may_see, job_in_path, query_of, visible
from spyweb.web.api.route import SERVICE, Right, Route

MAX_LIMIT = 1_000
SILENCE = duration(MINUTE_MS, 365 * DAY_MS)


class IncidentsQuery(Struct, frozen=True):
    """Which incidents, of which job."""

    state: Literal["open", "closed"] | None = None
    job: str | None = None
    since: (
        Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds: those that were open then or later")] | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 30
    before: Annotated[int, Meta(ge=0, le=MOST, description="the number of an incident: only older ones")] = 0


class AckQuery(Struct, frozen=True):
    """The name of whoever takes care; it counts on the socket alone, elsewhere that of the key does."""

    by: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""


class SilenceQuery(Struct, frozen=True):
    """The name of whoever does it; it counts on the socket alone, elsewhere that of the key does."""

    by: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""


class SilenceBody(Struct, frozen=True):
    """For how long, as "2h"."""

    for_: str = field(name="for")


@Route(
    "GET",
    "/api/incidents",
    right=Right.READ,
    answer=list[IncidentView],
    query=IncidentsQuery,
    of_job=True,
    is_paged=True,
)
async def list_incidents(request: web.Request) -> web.Response:
    """List incidents, newest first: what is wrong, and what was."""
    service, query = request.app[SERVICE], query_of(request, IncidentsQuery)
    is_open, before = None if query.state is None else query.state == "open", query.before or None
    job = None if query.job is None else service.find(query.job) or JobId(query.job)  # one that is gone may have some
    if job is not None:
        check_may_see(request, job)
    found = await visible(
        request,
        lambda most, older: service.incidents.list(
            is_open=is_open, job=job, before=older, limit=most, since_ms=query.since
        ),
        lambda each: (each.job_id or "", each.id),
        limit=query.limit,
        before=before,
    )
    shown = [without_others(each) for each in found] if principal_of(request).jobs else found
    return page_answer(request, shown, before=found[-1].id if len(found) == query.limit else None)


@Route("GET", "/api/incidents/{incident}", right=Right.READ, answer=IncidentView, of_job=True)
async def show_incident(request: web.Request) -> web.Response:
    """Show one incident with its history, and what each channel was told."""
    return json_answer(await _find(request))


@Route("POST", "/api/incidents/{incident}/ack", right=Right.RUN, answer=IncidentAcked, query=AckQuery, of_job=True)
async def acknowledge_incident(request: web.Request) -> web.Response:
    """Take care of an open incident: no reminders and no escalation any more; its end is still told."""
    incident = await _find(request)
    by = _named(request, query_of(request, AckQuery).by)
    await request.app[SERVICE].incidents.acknowledge(incident.id, by)
    return json_answer(IncidentAcked(acked=incident.id, by=by))


@Route("POST", "/api/jobs/{job}/silence", right=Right.RUN, answer=JobSilenced, query=SilenceQuery, body=SilenceBody)
async def silence_job(request: web.Request) -> web.Response:
    """Tell nothing of a job for a while: what is over by then is not told at all."""
    job, by = job_in_path(request), _named(request, query_of(request, SilenceQuery).by)
    body = await body_of(request, SilenceBody)
    try:
        for_ms = SILENCE(body.for_)
    except ValueError as error:
        raise BadBody("for", str(error)) from error
    await request.app[SERVICE].incidents.silence(job, for_ms, by)
    return json_answer(JobSilenced(job=job, for_ms=for_ms))


@Route("DELETE", "/api/jobs/{job}/silence", right=Right.RUN, answer=JobSilenced, query=SilenceQuery)
async def unsilence_job(request: web.Request) -> web.Response:
    """Tell of a job again that was silent."""
    job, by = job_in_path(request), _named(request, query_of(request, SilenceQuery).by)
    await request.app[SERVICE].incidents.silence(job, None, by)
    return json_answer(JobSilenced(job=job, for_ms=0))


def _named(request: web.Request, by: str) -> str:
    principal = principal_of(request)
    return (typed_name(by) if principal.source == "socket" else "") or principal.name


async def _find(request: web.Request) -> IncidentView:
    """Return the incident in the path.  Raises HTTPNotFound, or HTTPForbidden where its job may not be seen."""
    text = request.match_info["incident"]
    if not (text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER and int(text) <= MOST):
        raise web.HTTPBadRequest(text="expected the number of an incident")
    try:
        found = await request.app[SERVICE].incidents.get(int(text))
    except Refused as refused:
        check_may_see(request, "")
        raise web.HTTPNotFound(text=str(refused)) from refused
    check_may_see(request, found.job_id or "")
    return without_others(found) if principal_of(request).jobs else found
