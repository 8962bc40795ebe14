"""Incidents, as people and machines are shown them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spyweb.model import JobId, RunId
from spyweb.store.model.incidents import job_of

if TYPE_CHECKING:
    from spyweb.store.model.incidents import Incident


WAITS_FOR = "waits for"  # begins the words about an incident that another one holds up


class IncidentNote(Struct, frozen=True, kw_only=True):
    at_ms: int
    text: str


class SignView(Struct, frozen=True, kw_only=True):
    """One thing that is wrong now."""

    since_ms: int
    text: str


class IncidentChannel(Struct, frozen=True, kw_only=True):
    """How an incident stands with an alert channel that is told of it, by the settings of this moment."""

    name: str
    told: str  # what it knows: "open", "closed", "spared", or "": nothing yet
    from_ms: int  # from when on it is told, where nobody has acknowledged
    held: str  # what keeps messages from it now, as IncidentView.held
    held_until_ms: int | None = None


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
    acked_ms: int | None  # when somebody acknowledged it
    acked_by: str
    is_flapping: bool
    is_gone: bool = False  # it is over only since its subject is gone, or was switched off
    signs: Mapping[str, SignView]  # what is wrong now, by reason; nothing once it is over
    failures: int  # in a row, up to now
    held: str  # what keeps messages from every channel: "quiet until 07:00", "silenced until …", "waits for job X"
    held_until_ms: int | None = None
    silent_until_ms: int | None  # until when nothing is told of its subject
    silent_by: str
    channels: list[IncidentChannel]  # who is told, by the settings of now; without a daemon nobody is
    told: Mapping[str, str]  # what each channel knows: "open", "closed", or "spared": it was over before
    notes: list[IncidentNote]  # its history, oldest first


class IncidentAcked(Struct, frozen=True, kw_only=True):
    """The incident that was acknowledged."""

    acked: int
    by: str = ""


class JobSilenced(Struct, frozen=True, kw_only=True):
    """The job of which nothing is told for a while; with 0, it is told of again."""

    job: JobId
    for_ms: int


def incident_seen_by(view: IncidentView, may_see: Callable[[str], bool]) -> IncidentView:
    """Return an incident without the names of the jobs that it waits for, unless somebody may see all jobs."""
    if may_see(""):
        return view
    channels = [replace(each, held=_unnamed(each.held)) for each in view.channels]
    return replace(view, held=_unnamed(view.held), channels=channels)


def _unnamed(held: str) -> str:
    return f"{WAITS_FOR} another job" if held.startswith(WAITS_FOR) else held


def view_incident(incident: Incident, now_ms: int, channels: Sequence[IncidentChannel]) -> IncidentView:
    """Return an incident with the channels that are told of it."""
    due = [each for each in channels if each.from_ms <= now_ms] or channels  # others are only told later
    is_held = bool(due) and all(each.held for each in due)
    silence = incident.silence if incident.silence and incident.silence.holds(now_ms) else None
    return IncidentView(
        id=incident.id,
        subject=incident.subject,
        job_id=job_of(incident.subject),
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
        is_gone=incident.is_gone,
        signs={sign: SignView(since_ms=each.since_ms, text=each.text) for sign, each in incident.signs.items()},
        failures=incident.failures,
        held=due[0].held if is_held else "",
        held_until_ms=due[0].held_until_ms if is_held else None,
        silent_until_ms=silence and silence.until_ms,
        silent_by=silence.by if silence else "",
        channels=[*channels],
        told=incident.told,
        notes=[IncidentNote(at_ms=note.at_ms, text=note.text) for note in incident.notes],
    )


class ChannelTried(Struct, frozen=True, kw_only=True):
    """How it went when a channel was tried out; no part of its address is shown."""

    channel: str
    is_sent: bool
    reason: str = ""  # why it was not, or not as it was meant


class ChannelView(Struct, frozen=True, kw_only=True):
    """An alert channel of config.toml; of its address nothing is shown but service and host."""

    name: str
    kind: str  # "service", of Apprise's, "webhook" or "desktop"
    service: str  # "ntfy", "mailtos", …; "" of others, and where the address stands elsewhere
    host: str  # "" where the address has none, or what stands there is a secret
    level: str  # the least that it is told: "info", "warning" or "critical"
    quiet: str  # "22:00-07:00"; "" for never
    quiet_until_ms: int | None  # where it is quiet now
    waiting: int  # messages
    oldest_ms: int | None  # since when the oldest of them waits
    sent: int  # messages that it took since the daemon has started
    failed: int  # attempts that failed since then
    sent_ms: int | None  # when it took the last one
    error: str  # of the last attempt that failed
    failed_ms: int | None  # when that was; unknown of one before the daemon has started
    down_since_ms: int | None  # since when it takes nothing, and the others are told so
    incident: int | None  # the one that says so, or what follows
    unusable: str = ""  # why its address can't be used
    template_problem: str = ""  # why its template writes nothing: the built-in text is sent
    tested_ms: int | None = None  # when it was last tried out since the daemon has started ...
    test: ChannelTried | None = None  # ... and how that went
