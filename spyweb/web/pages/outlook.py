"""How all stands, as somebody may see it: what every page says of it in its bar and its icon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spyweb.dashboard.incidents import OpenLine, open_line
from spyweb.dashboard.overview import state_of
from spyweb.service.daemon import DaemonService
from spyweb.store.model.incidents import OpenIncident
from spyweb.views.incidents import job_of
from spyweb.views.overview import ATTENTION
from spyweb.web.access.principal import Principal


class Outlook(NamedTuple):
    state: str  # that the icon shows
    counts: Mapping[str, int]  # in the bar
    incidents: Sequence[OpenIncident]  # newest first


async def look(service: DaemonService, principal: Principal) -> Outlook:
    """Return how all stands that somebody may see: counted alone, since every page asks for it."""
    rows = await service.overview.all_rows()
    standings = [row.standing for row in rows if principal.may_see(row.job.id)]
    problems, warnings = service.troubles() if len(standings) == len(rows) else ((), ())
    found = await service.incidents.all_open()
    incidents = [each for each in found if principal.may_see(job_of(each.subject) or "")] if principal.jobs else found
    state = state_of(standings, problems, warnings)
    counts = {
        "jobs": sum(standing in ATTENTION for standing in standings),
        "health": len(problems) + len(warnings),
        "incidents": len(incidents),
    }
    return Outlook("warn" if state == "ok" and incidents else state, counts, incidents)


def line_of(service: DaemonService, incidents: Sequence[OpenIncident]) -> OpenLine | None:
    """Return the open incidents in one line, with the names of their jobs."""
    return open_line(incidents, lambda subject: name_of(service, subject))


def name_of(service: DaemonService, subject: str) -> str:
    """Return the name of the job that a subject is; nothing of one that is no job."""
    found = job_of(subject)
    job = service.live.find(found) if found else None
    return job.spec.name if job else ""
