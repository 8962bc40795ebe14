"""The incidents of a store: their signs, their times, and which channels have been notified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from spyweb.incidents.policy import AlertPolicy, Level
from spyweb.incidents.telling import Told
from spyweb.incidents.truth import JOB, REMOVED_NOTES, Event, Sign
from spyweb.model import JobId, RunId


class SubjectEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to a subject, with what decides about it."""

    subject: str
    event: Event
    policy: AlertPolicy
    at_ms: int
    in_maintenance: bool = False
    run: RunId | None = None


class SubjectChange(Struct, frozen=True, kw_only=True):
    """The consequences of an event, once they are committed."""

    subject: str
    is_known: bool  # it has a row: also a success matters to it
    incident: int | None = None  # that opened or closed
    opened: bool = False
    closed: bool = False
    pauses: int = 0  # its job is to be paused, after so many failures in a row
    wake_ms: int | None = None
    at_ms: int = 0
    level: Level = Level.WARNING  # of the sign that opened it ...
    reason: str = ""
    text: str = ""
    signs: Mapping[str, Sign] = {}  # its signs now


class Note(NamedTuple):
    at_ms: int
    text: str
    by: str = ""  # who has written it; "": spyweb
    is_public: bool = False  # the status page shows it


class Silence(NamedTuple):
    """A time in which no channel is notified of a subject."""

    until_ms: int
    for_ms: int  # so that a clock that is set back does not lengthen it
    by: str

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms <= now_ms + self.for_ms


class Incident(Struct, frozen=True, kw_only=True):
    id: int
    subject: str
    level: Level
    reason: str
    text: str
    run: RunId | None
    opened_ms: int
    since_ms: int
    closed_ms: int | None
    closed_run: RunId | None  # the run whose end closed it
    acked_ms: int | None
    acked_by: str
    is_flapping: bool
    notes: tuple[Note, ...]
    is_settled: bool
    told: Mapping[str, str] = {}  # notification channel -> what it knows
    signs: Mapping[str, Sign] = {}  # the signs now; none once it is closed
    failures: int = 0  # in a row, up to now
    silence: Silence | None = None  # of its subject, also one that has passed

    @property
    def is_gone(self) -> bool:
        """Return whether it closed because its subject was removed or disabled."""
        latest = next((note.text for note in reversed(self.notes) if not note.by), "")
        return self.closed_ms is not None and latest.endswith(REMOVED_NOTES)


class OpenIncident(Struct, frozen=True, kw_only=True):
    """An incident that is open, in a line."""

    id: int
    subject: str
    level: Level
    reason: str
    since_ms: int
    acked_ms: int | None
    acked_by: str


class ScriptTold(NamedTuple):
    """The part of an incident that its job's own file knows."""

    incident: int
    told: Told


class BegunMaintenance(Struct, frozen=True, kw_only=True):
    """A maintenance window that was begun at runtime."""

    id: int
    start_ms: int
    end_ms: int
    jobs: tuple[str, ...]  # ids and patterns; with no tags either: all jobs, and spyweb itself
    tags: tuple[str, ...]
    text: str
    by: str


class AlertChannelNow(Struct, frozen=True, kw_only=True):
    """A notification channel of the settings, at this moment."""

    name: str
    level: Level = Level.INFO  # the lowest level that it is notified of
    quiet_until_ms: int | None = None
    has_own_quiet: bool = False  # those of the subjects do not count


class SubjectNow(Struct, frozen=True, kw_only=True):
    """The facts about a subject that hold at this moment and are not stored."""

    policy: AlertPolicy
    maintenance_until_ms: int | None = None
    quiet_until_ms: int | None = None  # for channels without quiet hours of their own
    has_hooks: bool = False  # its file has on_down or on_up: they run for each incident, in its own commit only


class Planned(Struct, frozen=True, kw_only=True):
    messages: int
    wake_ms: int | None  # when to plan again, if nothing happens before
    unknown: tuple[str, ...] = ()  # subjects of unsettled incidents of which nothing was given


def job_of(subject: str) -> JobId | None:
    """Return the job that a subject is; None where it is something else."""
    return JobId(subject.removeprefix(JOB)) if subject.startswith(JOB) else None
