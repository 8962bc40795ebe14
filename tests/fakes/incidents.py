"""Events that open and close incidents, as runs would have them."""

from __future__ import annotations

from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import Event, Failed, Succeeded
from spyweb.model import RunId
from spyweb.store.incidents_protocol import Incidents, SubjectEvent

AT_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
AT_ONCE = AlertPolicy(after_failures=1)


async def fail(incidents: Incidents, job: str = "prices", text: str = "no space") -> None:
    await happen(incidents, job, Failed(text))


async def succeed(incidents: Incidents, job: str = "prices") -> None:
    await happen(incidents, job, Succeeded())


async def happen(incidents: Incidents, job: str, event: Event) -> None:
    happened = SubjectEvent(subject=f"job:{job}", event=event, policy=AT_ONCE, at_ms=AT_MS, run=RunId(7))
    await incidents.note([happened])
