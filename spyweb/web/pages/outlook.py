"""How all stands, as somebody may see it: what every page says of it in its bar and its icon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spyweb.dashboard.incidents import OpenLine, open_line
from spyweb.dashboard.overview import counts_of, seen_by, state_of
from spyweb.service.daemon import DaemonService
from spyweb.store.incidents_protocol import OpenIncident
from spyweb.views.incidents import job_of
from spyweb.views.overview import Overview
from spyweb.web.access.principal import Principal


class Outlook(NamedTuple):
    overview: Overview
    incidents: Sequence[OpenIncident]  # newest first

    @property
    def state(self) -> str:
        """Return the state that the icon shows."""
        state = state_of(self.overview)
        return "warn" if state == "ok" and self.incidents else state

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers in the bar."""
        return {**counts_of(self.overview), "incidents": len(self.incidents)}


async def look(service: DaemonService, principal: Principal) -> Outlook:
    """Return how all stands that somebody may see."""
    overview = seen_by(await service.overview.look(), principal.may_see)
    found = await service.open_incidents.look()
    incidents = [each for each in found if principal.may_see(job_of(each.subject) or "")] if principal.jobs else found
    return Outlook(overview, incidents)


def line_of(service: DaemonService, incidents: Sequence[OpenIncident]) -> OpenLine | None:
    """Return the open incidents in one line, with the names of their jobs."""
    return open_line(incidents, lambda subject: name_of(service, subject))


def name_of(service: DaemonService, subject: str) -> str:
    """Return the name of the job that a subject is; nothing of one that is no job."""
    found = job_of(subject)
    job = service.live.find(found) if found else None
    return job.spec.name if job else ""
