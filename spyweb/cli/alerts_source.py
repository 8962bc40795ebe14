"""Find who answers for incidents: the daemon that has the project, or without one its database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from spyweb.cli.project import Project
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.protocol import Store
from spyweb.views.incidents import IncidentView
from spyweb.views.jobs import JobView

if TYPE_CHECKING:
    from spyweb.service.incidents import IncidentService

T = TypeVar("T")


class IncidentSource(Protocol):
    def incidents(
        self, *, is_open: bool | None, limit: int, job: JobId | None = None, since_ms: int | None = None
    ) -> list[IncidentView]: ...

    def incident(self, number: int) -> IncidentView: ...

    def ack_incident(self, number: int, by: str) -> str: ...

    def silence(self, job: JobId, for_ms: int | None, by: str) -> None: ...

    def jobs(self) -> list[JobView]: ...


def find_incidents(project: Project) -> IncidentSource:
    daemon = project.find_daemon()
    if daemon:
        return daemon
    if project.settings.store.is_memory:
        raise Refused(f"no daemon runs in {project.root}, and what it kept in memory went with it")
    return StoredIncidents(project)


class StoredIncidents:
    """Reads and changes the database itself."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def incidents(
        self, *, is_open: bool | None, limit: int, job: JobId | None = None, since_ms: int | None = None
    ) -> list[IncidentView]:
        def ask(service: IncidentService) -> Awaitable[list[IncidentView]]:
            return service.list(is_open=is_open, job=job, before=None, limit=limit, since_ms=since_ms)

        return self._project.offline.read(self._asking(ask), [])

    def incident(self, number: int) -> IncidentView:
        found = self._project.offline.read(self._asking(lambda service: service.get(number)), None)
        if found is None:
            raise Refused(f"there is no incident {number}")
        return found

    def ack_incident(self, number: int, by: str) -> str:
        self._project.offline.write(self._asking(lambda service: service.acknowledge(number, by)))
        return by

    def silence(self, job: JobId, for_ms: int | None, by: str) -> None:
        self._project.offline.write(self._asking(lambda service: service.silence(job, for_ms, by)))

    def jobs(self) -> list[JobView]:
        return self._project.offline.jobs()

    def _asking(self, ask: Callable[[IncidentService], Awaitable[T]]) -> Callable[[Store], Awaitable[T]]:
        async def asked(store: Store) -> T:
            from spyweb.service.incidents import IncidentService  # where a daemon runs, it is the one that needs it

            return await ask(IncidentService(store.incidents, self._project.clock))

        return asked
