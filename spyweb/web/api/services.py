"""The services that requests are answered from: each handler asks for its own by its class.

The daemon puts them together (daemon/services.py), so that the server knows none of the subjects that it serves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, cast

from aiohttp import web

from spyweb.clock import Clock
from spyweb.model import JobId, JobSpec
from spyweb.store.model.incidents import OpenIncident
from spyweb.views.jobs import JobView
from spyweb.web.access.forward import Forwarder
from spyweb.web.access.principal import Principal
from spyweb.web.api.route import Addresses

T = TypeVar("T")
STARTING = "the jobs are still being loaded"


class JobCatalogue(Protocol):
    """The jobs of a project, whether a daemon runs them or the project's own tests do."""

    def find(self, name_or_id: str) -> JobId | None: ...

    def find_any(self, name_or_id: str) -> JobId | None: ...

    def spec(self, job: str | None) -> JobSpec | None: ...

    def names(self) -> Mapping[JobId, str]: ...

    def paused_for(self, job: JobId | None) -> str:
        """Return why spyweb has paused a job; an empty text where it has not."""

    def no_such_job(self, name_or_id: str) -> str: ...

    async def all_jobs(self) -> list[JobView]: ...


class Outlook(NamedTuple):
    """The state of all jobs that a client may see, as the navigation of every page shows it."""

    state: str  # of the icon
    counts: Mapping[str, int]  # in the navigation
    incidents: Sequence[OpenIncident]  # newest first


async def _nothing(_principal: Principal) -> Outlook:
    return Outlook("ok", {}, ())


class Services:
    """All services, by their classes.  While the daemon starts, a missing job may still be loaded."""

    forwarder: Forwarder | None = None  # of one of several nodes

    def __init__(
        self,
        *parts: object,
        addresses: Addresses,
        catalogue: JobCatalogue,
        clock: Clock,
        timezone: str = "UTC",
        outlook: Callable[[Principal], Awaitable[Outlook]] = _nothing,
        is_starting: Callable[[], bool] = lambda: False,
    ) -> None:
        self.addresses = addresses
        self.catalogue, self.clock, self.timezone = catalogue, clock, timezone
        self.outlook, self.is_starting = outlook, is_starting
        self._parts = {kind: part for part in parts for kind in type(part).__mro__[:-1]}

    def __getitem__(self, kind: type[T]) -> T:
        return cast(T, self._parts[kind])


SERVICES = web.AppKey("services", Services)


def service_of(request: web.Request, kind: type[T]) -> T:
    return request.app[SERVICES][kind]
