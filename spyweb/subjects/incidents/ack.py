"""The page that a link in a message leads to, where a person without a key acknowledges an incident.

Opening it changes nothing: chat programs and scanners of mail open links too.  Only its button does, and it works from
wherever it is pressed: what lets it in is the signature in the link, not the browser.  So neither the origin of a
request nor a session matters here.  Whatever is wrong with a link, the answer is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from spyweb.alerts.delivery import AckLinks
from spyweb.errors import Refused
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.incidents.views import IncidentView
from spyweb.subjects.incidents.words import show_incident
from spyweb.web.access.guard import TRAIL
from spyweb.web.access.principal import PUBLIC
from spyweb.web.access.recognise import AccessRule
from spyweb.web.api.route import PageRoute
from spyweb.web.api.services import SERVICES, service_of
from spyweb.web.pages.page import PageMissing, Shown
from spyweb.web.pages.site import answer_with, ask

PATH = "/a/{incident:[0-9]{1,15}}"
LARGEST_BODY = 1024  # bytes; the form has no fields


class Followed(NamedTuple):
    """A link that holds."""

    incident: IncidentView
    channel: str  # that the link was sent to


def ack_routes() -> list[PageRoute]:
    """Return the address of the links."""

    async def show(request: web.Request) -> web.Response:
        return await _answer(request, await _follow(request))

    async def acknowledge(request: web.Request) -> web.Response:
        incident, channel = await _follow(request)
        length = request.content_length  # None of a body in pieces, and of none
        if request.can_read_body and (length is None or length > LARGEST_BODY):
            raise web.HTTPRequestEntityTooLarge(LARGEST_BODY, length or 0)
        status = web.HTTPOk.status_code
        if incident.closed_ms is not None:
            status = web.HTTPConflict.status_code
        elif incident.acked_ms is None:
            await service_of(request, IncidentService).acknowledge(incident.id, channel)
        request.app[TRAIL].note_link(request, channel, status)
        return await _answer(request, await _follow(request), status)

    rule = AccessRule(PUBLIC, asks_itself=True)
    return [PageRoute("GET", PATH, show, rule), PageRoute("POST", PATH, acknowledge, rule)]


async def _follow(request: web.Request) -> Followed:
    """Return what a link leads to.  Raises PageMissing where it was not made here, or holds no more."""
    services, query = request.app[SERVICES], request.query
    number, channel = int(request.match_info["incident"]), query.get("c", "")
    expires, signature = query.get("e", ""), query.get("s", "")
    if services[AckLinks].is_valid(number, channel, expires, signature, services.clock.now_ms()):
        try:
            return Followed(await services[IncidentService].get(number), channel)
        except Refused:  # it is over for long, and forgotten
            pass
    raise PageMissing("There is no such page")


async def _answer(request: web.Request, followed: Followed, status: int = 200) -> web.Response:
    asked, view = await ask(request), followed.incident
    shown = show_incident(view, asked.name_of(view.job_id) if view.job_id else "")
    values = {"shown": shown, "incident": view, "channel": followed.channel}
    answer = await answer_with(asked, "ack.html", "", Shown(title=f"Incident {view.id}", values=values, status=status))
    answer.headers.update({"Cache-Control": "no-store", "X-Robots-Tag": "noindex"})
    return answer
