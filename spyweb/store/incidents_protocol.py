"""The incidents of a store: what is wrong, since when, and who has been told."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from spyweb.incidents.policy import AlertPolicy, Level
from spyweb.incidents.telling import Told
from spyweb.incidents.truth import GONE, Event, Sign
from spyweb.model import RunId


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
    level: Level = Level.WARNING  # of what has opened ...
    reason: str = ""
    text: str = ""
    signs: Mapping[str, Sign] = {}  # what is wrong with it now


class Note(NamedTuple):
    at_ms: int
    text: str


class Silence(NamedTuple):
    """A while in which nothing is told of a subject."""

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
    acked_ms: int | None
    acked_by: str
    is_flapping: bool
    notes: tuple[Note, ...]
    is_settled: bool
    told: Mapping[str, str] = {}  # alert channel -> what it knows
    signs: Mapping[str, Sign] = {}  # what is wrong now; nothing once it is over
    failures: int = 0  # in a row, up to now
    silence: Silence | None = None  # of its subject, also one that has passed

    @property
    def is_gone(self) -> bool:
        """Tell whether it is over only since its subject is gone, or was switched off."""
        return self.closed_ms is not None and bool(self.notes) and self.notes[-1].text == GONE


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


class AlertChannelNow(Struct, frozen=True, kw_only=True):
    """An alert channel of the settings, at this moment."""

    name: str
    level: Level = Level.INFO  # the least that it is told
    quiet_until_ms: int | None = None
    has_own_quiet: bool = False  # those of the subjects do not count


class SubjectNow(Struct, frozen=True, kw_only=True):
    """The facts about a subject that hold at this moment and are not stored."""

    policy: AlertPolicy
    maintenance_until_ms: int | None = None
    quiet_until_ms: int | None = None  # for channels without quiet hours of their own
    has_hooks: bool = False  # functions of its file are told: of each incident, and by nothing but its own commit


class Planned(Struct, frozen=True, kw_only=True):
    messages: int
    wake_ms: int | None  # when to plan again, if nothing happens before
    unknown: tuple[str, ...] = ()  # subjects of unsettled incidents of which nothing was given


class Incidents(Protocol):
    def note(self, events: Sequence[SubjectEvent]) -> Future[list[SubjectChange]]:
        """Lead subjects from one state to the next, in one transaction.

        The events of runs are not noted here, but with their ends (`End.alert`).
        """

    def on_changed(self, callback: Callable[[Sequence[SubjectChange]], None]) -> None:
        """Have this called on the loop after each commit that led a subject to another state, also by a run's end."""

    def known(self) -> Future[dict[str, int | None]]:
        """Return the subjects that have a row, each with the moment at which to look at it again."""

    def signs(self) -> Future[dict[str, Mapping[str, Sign]]]:
        """Return what is wrong with each subject that is not well."""

    def pausing(self) -> Future[dict[str, int]]:
        """Return the subjects whose jobs are still to be paused, each with its failures in a row."""

    def unsettled(self) -> Future[list[str]]:
        """Return the subjects of incidents of which somebody may still have to be told."""

    async def plan(self, channels: Sequence[AlertChannelNow], subjects: Mapping[str, SubjectNow]) -> Planned:
        """Write the messages that are missing, those of a channel in one transaction with the note of what it knows.

        One plan at a time: none may begin before the one before has ended.
        """

    def for_scripts(self, subjects: Sequence[str]) -> Future[list[Incident]]:
        """Return incidents of these subjects of which their files do not know yet what is so, the oldest first.

        Not all at once where there are very many: `Change.told` notes what they know.
        """

    def acknowledge(self, incident: int, by: str) -> Future[bool]:
        """Note that somebody takes care; gives False where there is no such open incident."""

    def silence(self, subject: str, for_ms: int | None, by: str) -> Future[None]:
        """Tell nothing of a subject for so long; None ends that."""

    def silence_of(self, subject: str) -> Future[Silence | None]:
        """Return the silence of a subject, also one that has passed."""

    def all_open(self, limit: int) -> Future[list[OpenIncident]]:
        """Return the newest incidents that are open."""

    def list(
        self,
        *,
        is_open: bool | None = None,
        subject: str | None = None,
        since_ms: int | None = None,
        before: int | None = None,
        limit: int = 30,
    ) -> Future[list[Incident]]:
        """Return incidents, newest first; those that were open at `since_ms` or later."""

    def get(self, incident: int) -> Future[Incident | None]: ...

    def open_among(self, subjects: Collection[str]) -> Future[dict[str, int]]:
        """Return those of the subjects that have an open incident, with its id."""

    async def prune(self, *, older_than_ms: int) -> int:
        """Delete settled incidents that ended before this moment; return how many."""
