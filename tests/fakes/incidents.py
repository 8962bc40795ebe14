"""Events that open and close incidents, as runs would have them."""

from __future__ import annotations

from collections.abc import Iterable

from spyweb.alerts.watcher import AlertWatcher
from spyweb.cooperative import Steps
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import Event, Failed, Succeeded
from spyweb.model import JobId, RunId
from spyweb.store.model.incidents import AlertChannelNow, SubjectEvent, SubjectNow
from spyweb.store.sqlite.incidents import Incidents
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.incidents.views import IncidentView
from tests.fakes.clock import FakeClock

AT_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
AT_ONCE = AlertPolicy(after_failures=1)


async def fail(incidents: Incidents, job: str = "prices", text: str = "no space") -> None:
    await happen(incidents, job, Failed(text))


async def succeed(incidents: Incidents, job: str = "prices") -> None:
    await happen(incidents, job, Succeeded())


async def happen(incidents: Incidents, job: str, event: Event) -> None:
    happened = SubjectEvent(subject=f"job:{job}", event=event, policy=AT_ONCE, at_ms=AT_MS, run=RunId(7))
    await incidents.note([happened])


class Now(AlertWatcher):
    """The settings and the moment, as a test wants them."""

    def __init__(self, subject: SubjectNow, *channels: AlertChannelNow) -> None:
        self._subject = subject
        self._channels = [*channels]
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    def subjects_now(self, names: Iterable[str]) -> Steps[dict[str, SubjectNow]]:
        yield
        return dict.fromkeys(names, self._subject)

    def channels_now(self) -> list[AlertChannelNow]:
        return self._channels


class FakeIncidents(IncidentService):
    """Knows one incident."""

    known: IncidentView

    def __init__(self, incidents: Incidents) -> None:
        super().__init__(incidents, FakeClock())
        self.known = KNOWN

    async def list(
        self, *, is_open: bool | None, job: JobId | None, before: int | None, limit: int, since_ms: int | None = None
    ) -> list[IncidentView]:
        return [self.known]

    async def get(self, incident: int) -> IncidentView:
        return self.known


KNOWN = IncidentView(
    id=1,
    subject="job:prices",
    job_id=JobId("prices"),
    level="warning",
    state="open",
    reason="failing",
    text="asked the daemon",
    run=None,
    since_ms=0,
    opened_ms=0,
    closed_ms=None,
    acked_ms=None,
    acked_by="",
    is_flapping=False,
    signs={},
    failures=1,
    held="",
    silent_until_ms=None,
    silent_by="",
    channels=[],
    told={},
    notes=[],
)
