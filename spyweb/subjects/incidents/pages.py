"""The pages of incidents and notification channels, and their forms: acknowledge, silence, and test.

A link in a message leads to a page on which a person without a key acknowledges an incident.  Opening the page changes
nothing, since chat programs and mail scanners open links too: only its button does.  The signature in the link admits
the request, so the guard checks neither origin nor session there.  Every invalid link gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from aiohttp import web
from msgspec.structs import replace

from spyweb.alerts.delivery import AckLinks
from spyweb.errors import Absent, Refused
from spyweb.incidents.policy import Level
from spyweb.model import JobId
from spyweb.store.model.incidents import OpenIncident, job_of
from spyweb.subjects.incidents import words
from spyweb.subjects.incidents.service import LONGEST_NOTE, ChannelService, IncidentService
from spyweb.subjects.incidents.views import IncidentView, incident_seen_by, told_words
from spyweb.subjects.when.service import MaintenanceService
from spyweb.web.access.guard import TRAIL
from spyweb.web.access.principal import LONGEST_NAME, PUBLIC, Right
from spyweb.web.access.recognise import AccessRule
from spyweb.web.api.query import ListQuery, visible, whole_number
from spyweb.web.api.route import PageRoute
from spyweb.web.api.services import SERVICES, service_of
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Shown, lead_to
from spyweb.web.pages.site import answer_with, ask

OPEN_SHOWN, PAST_SHOWN = 50, 30
JOBS_OFFERED = 200  # with more jobs, users type the id
STATES = (("", "All"), ("open", "Open"), ("closed", "Closed"))


class IncidentsPageQuery(ListQuery, frozen=True):
    """The filter of the list."""

    state: str = ""
    select: Literal["", "all"] = ""  # every box is checked, also without JavaScript

    def shows(self, state: str) -> bool:
        """Return whether incidents of a state are listed; later pages hold closed incidents only."""
        if self.state in ("open", "closed"):
            return self.state == state
        return state == "closed" or not self.before


async def _some(
    asked: Asked, query: IncidentsPageQuery, state: str, most: int
) -> tuple[Sequence[words.ShownIncident], bool]:
    """Return incidents of a state, and whether there are more."""
    if not query.shows(state):
        return [], False
    job = JobId(query.job) if query.job else None
    found = await visible(
        asked.request,
        lambda limit, before: asked.services[IncidentService].list(
            is_open=state == "open", job=job, before=before, limit=limit
        ),
        lambda each: (each.job_id or "", each.id),
        limit=most + 1,
        before=query.before or None,
    )
    return [_shown(asked, incident_seen_by(each, asked.principal.may_see)) for each in found[:most]], len(found) > most


def _shown(asked: Asked, view: IncidentView) -> words.ShownIncident:
    return words.show_incident(view, asked.name_of(view.job_id) if view.job_id else "")


SUBJECTS = ("incident", "job:*", "outbox")


@DashboardPage(
    "incidents",
    "incidents.html",
    place="incidents",
    of_job=True,
    parts={"title": PagePart("title.html", SUBJECTS), "incidents-now": PagePart("incident_list.html", SUBJECTS)},
)
async def show_incidents(asked: Asked) -> Shown:
    """Show open incidents, then closed ones."""
    query = asked.query(IncidentsPageQuery)
    if query.job:  # an id or a name; a job that was removed may have incidents
        query = replace(query, job=asked.services.catalogue.find(query.job) or query.job)
    asked.job_of_list(query.job)
    still, more_open = await _some(asked, query, "open", OPEN_SHOWN)
    past, more_past = await _some(asked, query, "closed", PAST_SHOWN)
    everything = (await asked.outlook()).incidents
    jobs = sorted(filter(asked.principal.may_see, asked.services.catalogue.names()))
    title = f"{len(everything):,} open: incidents" if everything else "Incidents"
    values = {
        "query": query,
        "title": title,
        "jobs": jobs if len(jobs) <= JOBS_OFFERED else [],
        "held_words": words.held_words,
        "open_count": len(everything),
        "left_alone": words.left_alone(everything),
        "worst": max((each.level for each in everything), key=lambda level: level.rank, default=None),
        "oldest_ms": min((each.since_ms for each in everything), default=None),
        "maintenance": (await asked.services[MaintenanceService].view(1, asked.principal.may_see)).now,
        "still": sorted(still, key=lambda shown: -Level(shown.view.level).rank),  # the gravest first
        "past": past,
        "shows_open": query.shows("open"),
        "shows_past": query.shows("closed"),
        "more_open": asked.address(query, state="open", before=still[-1].view.id) if more_open else "",
        **asked.places(query, past[-1].view.id if more_past else 0),
        "chips": asked.chips(query, "state", STATES),
        "sees_all": not asked.principal.jobs,
        "told_words": told_words,
        "teaches": not (still or past or query.job or query.before or await asked.services[ChannelService].list()),
        "silences": words.SILENCES,
        "select_all": asked.address(query, select="" if query.select else "all"),
        "longest_name": LONGEST_NAME,
        "has_name": asked.principal.source != "loopback",
    }
    return Shown(title=title, values=values, is_live=not query.before)


@DashboardPage(
    "incidents/{incident}",
    "incident.html",
    place="incidents",
    of_job=True,
    parts={"title": PagePart("title.html", SUBJECTS), "incident-now": PagePart("incident_now.html", SUBJECTS)},
)
async def show_one(asked: Asked) -> Shown:
    """Show everything about an incident."""
    view = await _find(asked)
    shown = _shown(asked, view)
    title = f"{shown.name}: {shown.wrong if view.closed_ms is None else 'closed'}, incident {view.id}"
    values = {
        "paused_for": asked.services.catalogue.paused_for(view.job_id),
        "title": title,
        "held_words": words.held_words,
        "shown": shown,
        "incident": view,
        "sees_all": not asked.principal.jobs,
        "sign_words": words.sign_words,
        "history": words.history_of(view),
        "reason": words.reason_of(view),
        "tellings": words.tellings_of(view, asked.services.clock.now_ms()),
        "silence": await asked.services[IncidentService].silence_of(view.job_id) if view.job_id else None,
        "silences": words.SILENCES,
        "longest_name": LONGEST_NAME,
        "longest_note": LONGEST_NOTE,
        "me": asked.principal.name if asked.principal.source != "loopback" else "",
    }
    return Shown(title=title, values=values)


@Action("incidents/{incident}/acknowledge", right=Right.RUN, of_job=True)
async def acknowledge(asked: Asked) -> web.Response:
    """Acknowledge an incident: its reminders stop."""
    return await _acknowledge(asked)


@Action("incidents/{incident}/unacknowledge", right=Right.RUN, of_job=True)
async def unacknowledge(asked: Asked) -> web.Response:
    """Withdraw an acknowledgement: reminders go on."""
    return await _acknowledge(asked, undo=True)


async def _acknowledge(asked: Asked, *, undo: bool = False) -> web.Response:
    await asked.services[IncidentService].acknowledge((await _find(asked)).id, _who(asked), undo=undo)
    return lead_to(asked.back())


@Action("incidents/{incident}/note", right=Right.RUN, of_job=True)
async def add_note(asked: Asked) -> web.Response:
    """Add a note to an incident; a public one is shown on the status page."""
    incident, text, is_public = await _find(asked), asked.form.get("text", ""), asked.form.get("value") == "public"
    await asked.services[IncidentService].add_note(incident.id, text, _who(asked), is_public=is_public)
    return lead_to(asked.back())


@Action("incidents/acknowledge", right=Right.RUN, of_job=True)
async def acknowledge_chosen(asked: Asked) -> web.Response:
    """Acknowledge the incidents whose boxes are checked."""
    for each in [chosen for chosen in await _chosen(asked) if chosen.acked_ms is None]:
        with suppress(Refused):  # it has closed meanwhile
            await asked.services[IncidentService].acknowledge(each.id, _who(asked))
    return lead_to(asked.back())


@Action("incidents/silence", right=Right.RUN, of_job=True)
async def silence_chosen(asked: Asked) -> web.Response:
    """Silence the jobs of the incidents whose boxes are checked."""
    for_ms, jobs = _silence_for(asked), [job for each in await _chosen(asked) if (job := job_of(each.subject))]
    if not jobs:
        raise Refused("only jobs can be silenced: no selected incident is about a job")
    for job in jobs:
        await asked.services[IncidentService].silence(job, for_ms, _who(asked))
    return lead_to(asked.back())


async def _chosen(asked: Asked) -> list[OpenIncident]:
    """Return the open incidents whose boxes are checked, of those that the client may see.  Raises Refused for none."""
    found, may_see = await asked.services[IncidentService].all_open(), asked.principal.may_see
    chosen = [each for each in found if f"incident-{each.id}" in asked.form and may_see(job_of(each.subject) or "")]
    if not chosen:
        raise Refused("no open incident is selected")
    return chosen


@Action("jobs/{job}/silence", right=Right.RUN)
async def silence(asked: Asked) -> web.Response:
    """Silence a job for a while."""
    await asked.services[IncidentService].silence(asked.job(), _silence_for(asked), _who(asked))
    return lead_to(asked.back())


def _silence_for(asked: Asked) -> int:
    wanted = asked.form.get("value") or asked.form.get("for", "")
    if wanted not in words.SILENCES:
        raise Refused(f"expected a duration, one of {', '.join(words.SILENCES)}")
    return words.SILENCES[wanted][0]


@Action("jobs/{job}/unsilence", right=Right.RUN)
async def unsilence(asked: Asked) -> web.Response:
    """End the silence of a job."""
    await asked.services[IncidentService].silence(asked.job(), None, _who(asked))
    return lead_to(asked.back())


def _who(asked: Asked) -> str:
    return asked.who(asked.form.get("by", ""))


async def _find(asked: Asked) -> IncidentView:
    """Return the incident in the path.  Raises Absent where the client may see no such incident."""
    number = whole_number(asked.request.match_info["incident"])
    if number is None:
        raise PageMissing("There is no such incident")
    found = await asked.services[IncidentService].get(number)
    if not asked.principal.may_see(found.job_id or ""):
        raise Absent(f"there is no incident {number}")
    return incident_seen_by(found, asked.principal.may_see)


LEVEL_WORDS = {"info": "all levels", "warning": "warning and critical", "critical": "critical only"}


@DashboardPage(
    "channels",
    "channels.html",
    place="settings",
    parts={"channels-now": PagePart("channel_list.html", ("incident", "outbox"))},
)
async def show_channels(asked: Asked) -> Shown:
    """Show the channels of the settings."""
    channels = await asked.services[ChannelService].list()
    down = sum(channel.down_since_ms is not None for channel in channels)
    return Shown(title="Notification channels", values={"channels": channels, "down": down, "level_words": LEVEL_WORDS})


@Action("channels/{name}/test", right=Right.RUN)
async def try_channel(asked: Asked) -> web.Response:
    """Send a test notification; the page shows the result."""
    await asked.services[ChannelService].try_out(asked.request.match_info["name"])
    return lead_to(asked.back())


PATH = "/a/{incident:[0-9]{1,15}}"
LARGEST_BODY = 1024  # bytes; the form has no fields


def ack_routes() -> list[PageRoute]:
    """Return the routes of acknowledge links."""

    async def show(request: web.Request) -> web.Response:
        return await _answer(request, *await _follow(request))

    async def acknowledge(request: web.Request) -> web.Response:
        incident, channel = await _follow(request)
        length = request.content_length  # None for a chunked body, and for no body
        if request.can_read_body and (length is None or length > LARGEST_BODY):
            raise web.HTTPRequestEntityTooLarge(LARGEST_BODY, length or 0)
        status = web.HTTPOk.status_code
        if incident.closed_ms is not None:
            status = web.HTTPConflict.status_code
        elif incident.acked_ms is None:
            await service_of(request, IncidentService).acknowledge(incident.id, channel)
        request.app[TRAIL].note_by(request, channel, "link", status)
        return await _answer(request, *await _follow(request), status)

    rule = AccessRule(PUBLIC, asks_itself=True)
    return [PageRoute("GET", PATH, show, rule), PageRoute("POST", PATH, acknowledge, rule)]


async def _follow(request: web.Request) -> tuple[IncidentView, str]:
    """Return the incident and the channel of a link.  Raises PageMissing where the link is invalid or has expired."""
    services, query = request.app[SERVICES], request.query
    number, channel = int(request.match_info["incident"]), query.get("c", "")
    expires, signature = query.get("e", ""), query.get("s", "")
    if services[AckLinks].is_valid(number, channel, expires, signature, services.clock.now_ms()):
        try:
            return await services[IncidentService].get(number), channel
        except Absent:  # it closed long ago, and its record was pruned
            pass
    raise PageMissing("There is no such page")


async def _answer(request: web.Request, view: IncidentView, channel: str, status: int = 200) -> web.Response:
    asked = await ask(request)
    values = {"shown": _shown(asked, view), "incident": view, "channel": channel}
    answer = await answer_with(asked, "ack.html", "", Shown(title=f"Incident {view.id}", values=values, status=status))
    answer.headers.update({"Cache-Control": "no-store", "X-Robots-Tag": "noindex"})
    return answer
