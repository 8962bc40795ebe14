"""Incidents as clients ask for them: what is wrong, since when, who was told, and who takes care."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.incidents.truth import JOB
from spyweb.model import JobId
from spyweb.service.incident_standing import StandingService
from spyweb.store.incidents_protocol import Incident, Incidents, Silence, SubjectChange
from spyweb.views.events import IncidentHappened, incident_acked, incident_changed
from spyweb.views.incidents import NOBODY, IncidentView, view_incident


class IncidentService:
    """Answers for the incidents of a store; `wake` has the planner look again.

    Without `standing` nobody is told: no daemon runs.
    """

    def __init__(
        self,
        incidents: Incidents,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        standing: StandingService | None = None,
    ) -> None:
        self._incidents = incidents
        self._clock = clock
        self._wake = wake
        self._standing = standing
        self.listener: Callable[[IncidentHappened], None] | None = None  # while somebody wants to know
        incidents.on_changed(self._tell)

    async def list(
        self, *, is_open: bool | None, job: JobId | None, before: int | None, limit: int, since_ms: int | None = None
    ) -> list[IncidentView]:
        """Return incidents, newest first; those that were open at `since_ms` or later."""
        subject = None if job is None else f"{JOB}{job}"
        found = await self._incidents.list(
            is_open=is_open, subject=subject, since_ms=since_ms, before=before, limit=limit
        )
        return [*await self._view(found)]

    async def get(self, incident: int) -> IncidentView:
        """Return one incident.  Raises Refused."""
        (view,) = await self._view([await self._find(incident)])
        return view

    async def acknowledge(self, incident: int, by: str) -> None:
        """Note that somebody takes care.  Raises Refused where there is no such open incident."""
        if not await self._incidents.acknowledge(incident, by):
            await self._find(incident)
            raise Refused(f"incident {incident} is over")
        self._wake()
        if self.listener:
            self.listener(incident_acked(await self._find(incident)))

    async def silence(self, job: JobId, for_ms: int | None, by: str) -> None:
        """Tell nothing of a job for so long; None ends that."""
        await self._incidents.silence(f"{JOB}{job}", for_ms, by)
        self._wake()

    def _tell(self, changes: Sequence[SubjectChange]) -> None:
        """Tell whoever listens which incidents have begun, and which are over."""
        if self.listener is None:
            return
        for happened in filter(None, map(incident_changed, changes)):
            self.listener(happened)

    async def silence_of(self, job: JobId) -> Silence | None:
        """Return the silence that a job is in now."""
        found = await self._incidents.silence_of(f"{JOB}{job}")
        return found if found is not None and found.holds(self._clock.now_ms()) else None

    async def _view(self, incidents: Sequence[Incident]) -> Sequence[IncidentView]:
        standings = await self._standing.of(incidents) if self._standing else [NOBODY] * len(incidents)
        now_ms = self._clock.now_ms()
        return [view_incident(each, now_ms, standing) for each, standing in zip(incidents, standings, strict=True)]

    async def _find(self, incident: int) -> Incident:
        found = await self._incidents.get(incident)
        if found is None:
            raise Refused(f"there is no incident {incident}")
        return found
