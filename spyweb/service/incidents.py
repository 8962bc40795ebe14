"""Incidents as clients ask for them: what is wrong, since when, who was told, and who takes care."""

from __future__ import annotations

from collections.abc import Callable

from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.incidents_protocol import Incident, Incidents
from spyweb.views.incidents import JOB, IncidentView, view_incident


class IncidentService:
    """Answers for the incidents of a store; `wake` has the planner look again."""

    def __init__(self, incidents: Incidents, wake: Callable[[], None] = lambda: None) -> None:
        self._incidents = incidents
        self._wake = wake

    async def list(
        self, *, is_open: bool | None, job: JobId | None, before: int | None, limit: int
    ) -> list[IncidentView]:
        """Return incidents, newest first."""
        subject = None if job is None else f"{JOB}{job}"
        found = await self._incidents.list(is_open=is_open, subject=subject, before=before, limit=limit)
        return [view_incident(each) for each in found]

    async def get(self, incident: int) -> IncidentView:
        """Return one incident.  Raises Refused."""
        return view_incident(await self._find(incident))

    async def acknowledge(self, incident: int, by: str) -> None:
        """Note that somebody takes care.  Raises Refused where there is no such open incident."""
        if not await self._incidents.acknowledge(incident, by):
            await self._find(incident)
            raise Refused(f"incident {incident} is over")
        self._wake()

    async def silence(self, job: JobId, for_ms: int | None, by: str) -> None:
        """Tell nothing of a job for so long; None ends that."""
        await self._incidents.silence(f"{JOB}{job}", for_ms, by)
        self._wake()

    async def _find(self, incident: int) -> Incident:
        found = await self._incidents.get(incident)
        if found is None:
            raise Refused(f"there is no incident {incident}")
        return found
