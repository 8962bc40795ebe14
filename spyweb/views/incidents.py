"""Incidents, as people and machines are shown them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from spyweb.model import JobId, RunId

if TYPE_CHECKING:
    from spyweb.store.incidents_protocol import Incident

JOB = "job:"


class IncidentNote(Struct, frozen=True, kw_only=True):
    at_ms: int
    text: str


class IncidentView(Struct, frozen=True, kw_only=True):
    """Something that is, or was, wrong."""

    id: int
    subject: str  # "job:ID"
    job_id: JobId | None  # None: it is not about a job
    level: str  # "info", "warning" or "critical"
    state: str  # "open" or "closed"
    reason: str  # the sign that opened it: "failing", …
    text: str
    run: RunId | None  # whose end opened it
    since_ms: int  # the first failure of the row
    opened_ms: int
    closed_ms: int | None
    acked_ms: int | None  # since when somebody takes care
    acked_by: str
    is_flapping: bool
    told: Mapping[str, str]  # what each channel knows: "open", "closed", or "spared": it was over before
    notes: list[IncidentNote]  # its history, oldest first


class IncidentAcked(Struct, frozen=True, kw_only=True):
    """The incident that somebody takes care of now."""

    acked: int


class JobSilenced(Struct, frozen=True, kw_only=True):
    """The job of which nothing is told for a while; with 0, it is told of again."""

    job: JobId
    for_ms: int


def view_incident(incident: Incident) -> IncidentView:
    is_job = incident.subject.startswith(JOB)
    return IncidentView(
        id=incident.id,
        subject=incident.subject,
        job_id=JobId(incident.subject.removeprefix(JOB)) if is_job else None,
        level=incident.level.value,
        state="open" if incident.closed_ms is None else "closed",
        reason=incident.reason,
        text=incident.text,
        run=incident.run,
        since_ms=incident.since_ms,
        opened_ms=incident.opened_ms,
        closed_ms=incident.closed_ms,
        acked_ms=incident.acked_ms,
        acked_by=incident.acked_by,
        is_flapping=incident.is_flapping,
        told=incident.told,
        notes=[IncidentNote(at_ms=note.at_ms, text=note.text) for note in incident.notes],
    )
