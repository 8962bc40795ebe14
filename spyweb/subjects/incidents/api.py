"""Handlers for incidents and notification channels: list and show incidents, acknowledge one, test a channel."""

from __future__ import annotations

from typing import Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct, field

from spyweb.errors import Absent
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.settings.values import duration
from spyweb.subjects.incidents.service import ChannelService, IncidentService
from spyweb.subjects.incidents.views import (
    ChannelTried,
    ChannelView,
    IncidentAcked,
    IncidentView,
    JobSilenced,
    incident_seen_by,
)
from spyweb.web.access.principal import LONGEST_NAME, check_may_see, principal_of, typed_name
from spyweb.web.answer import BadBody, json_answer
from spyweb.web.api.query import MOST, PageQuery, body_of, job_in_path, job_of, list_answer, number_in_path, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of

OPEN_SINCE = "epoch milliseconds: those that were open then or later"
NOTES = "/api/incidents/{incident}/notes"
SILENCE = duration(MINUTE_MS, 365 * DAY_MS)


class IncidentsQuery(PageQuery, frozen=True):
    """Which incidents, of which job."""

    state: Literal["open", "closed"] | None = None
    since: Annotated[int, Meta(ge=0, le=MOST, description=OPEN_SINCE)] | None = None


class SenderQuery(Struct, frozen=True):
    """The user's name, which is read on the private socket only: elsewhere the key names the client."""

    by: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""


class NoteBody(Struct, frozen=True):
    """The text of a note, and who may see it."""

    text: str
    public: bool = False  # the status page shows it


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
    """List incidents, newest first: open and closed ones."""
    query, incidents = query_of(request, IncidentsQuery), service_of(request, IncidentService)
    may_see = principal_of(request).may_see
    is_open = None if query.state is None else query.state == "open"
    job = job_of(request, query.job)
    return await list_answer(
        request,
        query,
        lambda most, older: incidents.list(is_open=is_open, job=job, before=older, limit=most, since_ms=query.since),
        lambda each: (each.job_id or "", each.id),
        lambda each: incident_seen_by(each, may_see),
    )


@Route("GET", "/api/incidents/{incident}", right=Right.READ, answer=IncidentView, of_job=True)
async def show_incident(request: web.Request) -> web.Response:
    """Show one incident with its history, and what each channel was sent."""
    return json_answer(await _find(request))


@Route("POST", "/api/incidents/{incident}/ack", right=Right.RUN, answer=IncidentAcked, query=SenderQuery, of_job=True)
async def acknowledge_incident(request: web.Request) -> web.Response:
    """Acknowledge an open incident: reminders and escalation stop; its end is still notified."""
    return await _acknowledge(request)


@Route("DELETE", "/api/incidents/{incident}/ack", right=Right.RUN, answer=IncidentAcked, query=SenderQuery, of_job=True)
async def unacknowledge_incident(request: web.Request) -> web.Response:
    """Withdraw the acknowledgement of an open incident: reminders and escalation go on."""
    return await _acknowledge(request, undo=True)


async def _acknowledge(request: web.Request, *, undo: bool = False) -> web.Response:
    incident, by = await _find(request), _named(request)
    await service_of(request, IncidentService).acknowledge(incident.id, by, undo=undo)
    return json_answer(IncidentAcked(acked=incident.id, by=by))


@Route("POST", NOTES, right=Right.RUN, answer=IncidentView, query=SenderQuery, body=NoteBody, of_job=True)
async def add_note(request: web.Request) -> web.Response:
    """Add a note to an incident, open or closed; the status page shows public ones."""
    incident, body = await _find(request), await body_of(request, NoteBody)
    await service_of(request, IncidentService).add_note(incident.id, body.text, _named(request), is_public=body.public)
    return json_answer(await _find(request))


@Route("POST", "/api/jobs/{job}/silence", right=Right.RUN, answer=JobSilenced, query=SenderQuery, body=SilenceBody)
async def silence_job(request: web.Request) -> web.Response:
    """Silence a job for a while: incidents that close in that time are never notified."""
    job, by = job_in_path(request), _named(request)
    body = await body_of(request, SilenceBody)
    try:
        for_ms = SILENCE(body.for_)
    except ValueError as error:
        raise BadBody("for", str(error)) from error
    await service_of(request, IncidentService).silence(job, for_ms, by)
    return json_answer(JobSilenced(job=job, for_ms=for_ms))


@Route("DELETE", "/api/jobs/{job}/silence", right=Right.RUN, answer=JobSilenced, query=SenderQuery)
async def unsilence_job(request: web.Request) -> web.Response:
    """End the silence of a job."""
    job = job_in_path(request)
    await service_of(request, IncidentService).silence(job, None, _named(request))
    return json_answer(JobSilenced(job=job, for_ms=0))


def _named(request: web.Request) -> str:
    principal, by = principal_of(request), query_of(request, SenderQuery).by
    return (typed_name(by) if principal.source == "socket" else "") or principal.name


async def _find(request: web.Request) -> IncidentView:
    """Return the incident in the path.  Raises Absent, or HTTPForbidden where the client may not see its job."""
    try:
        found = await service_of(request, IncidentService).get(number_in_path(request, "incident"))
    except Absent:
        check_may_see(request, "")
        raise
    check_may_see(request, found.job_id or "")
    return incident_seen_by(found, principal_of(request).may_see)


@Route("GET", "/api/channels", right=Right.READ, answer=list[ChannelView])
async def list_channels(request: web.Request) -> web.Response:
    """List the notification channels: their levels, waiting messages, and last errors."""
    return json_answer(await service_of(request, ChannelService).list())


@Route("POST", "/api/channels/{channel}/test", right=Right.RUN, answer=ChannelTried)
async def try_channel(request: web.Request) -> web.Response:
    """Send a test notification to a notification channel at once, without the outbox, and return the result."""
    return json_answer(await service_of(request, ChannelService).try_out(request.match_info["channel"]))
