"""Incidents, as people and machines are shown them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spyweb.model import JobId, RunId
from spyweb.store.model.incidents import job_of
from spyweb.views.runs import copied

if TYPE_CHECKING:
    from spyweb.store.model.incidents import Incident


WAITS_FOR = "waits for"  # begins the words of a hold by another incident
DELIVERIES = {"open": "delivered", "closed": "end delivered", "spared": "not notified: closed before"}


class IncidentNote(Struct, frozen=True, kw_only=True):
    at_ms: int
    text: str
    by: str = ""  # who has written it; "": spyweb
    is_public: bool = False  # the status page shows it


class SignView(Struct, frozen=True, kw_only=True):
    """One thing that is wrong now."""

    since_ms: int
    text: str


class IncidentChannel(Struct, frozen=True, kw_only=True):
    """A notification channel that an incident notifies, by the current settings."""

    name: str
    told: str  # the last notification: "open", "closed", "spared" (none was needed), or "": none yet
    from_ms: int  # when it is notified, unless the incident is acknowledged before
    held: str  # what holds messages back now, as IncidentView.held
    held_until_ms: int | None = None


class IncidentView(Struct, frozen=True, kw_only=True):
    """A problem of a job, a notification channel or a part of the daemon, from its first sign to its end."""

    id: int
    subject: str  # "job:ID"
    job_id: JobId | None  # None: it is not about a job
    level: str  # "info", "warning" or "critical"
    state: str  # "open" or "closed"
    reason: str  # the sign that opened it: "failing", …
    text: str
    run: RunId | None  # the run whose end opened it
    since_ms: int  # the first failure of the row
    opened_ms: int
    closed_ms: int | None
    closed_run: RunId | None = None  # the run whose end closed it
    acked_ms: int | None  # when it was acknowledged
    acked_by: str
    is_flapping: bool
    is_gone: bool = False  # it closed because its subject was removed or disabled
    signs: Mapping[str, SignView]  # the signs now, by reason; empty once it is closed
    failures: int  # in a row, up to now
    held: str  # what holds messages to every channel back: "quiet until 07:00", "silenced until …", "waits for job X"
    held_until_ms: int | None = None
    silent_until_ms: int | None  # until when its subject is silenced
    silent_by: str
    channels: list[IncidentChannel]  # those it notifies, by the current settings; none without a daemon
    told: Mapping[str, str]  # each channel's last notification, in the words of IncidentChannel
    undelivered: Mapping[str, str] = {}  # channels without the last notification: the reason, or "" before any attempt
    notes: list[IncidentNote]  # its history, oldest first


class IncidentAcked(Struct, frozen=True, kw_only=True):
    """The incident that was acknowledged, or whose acknowledgement was withdrawn."""

    acked: int
    by: str = ""


class JobSilenced(Struct, frozen=True, kw_only=True):
    """The job that is silenced for a while; 0: its silence has ended."""

    job: JobId
    for_ms: int


def incident_seen_by(view: IncidentView, may_see: Callable[[str], bool]) -> IncidentView:
    """Return an incident without the names of the jobs that it waits for, unless the client may see all jobs."""
    if may_see(""):
        return view
    channels = [replace(each, held=_unnamed(each.held)) for each in view.channels]
    return replace(view, held=_unnamed(view.held), channels=channels, undelivered=dict.fromkeys(view.undelivered, ""))


def delivery_words(view: IncidentView, channel: str, to: str = "") -> str:
    """Return the state of a channel's last notification: `delivered`, `not delivered yet: timed out`."""
    state, reason = view.told[channel], view.undelivered.get(channel)
    words = DELIVERIES.get(state, state)
    if reason is None:
        return f"{words}{to}" if state != "spared" else words
    yet = "" if reason.startswith("given up") else " yet"
    return f"{words.replace('delivered', 'not delivered')}{to}{yet}{': ' if reason else ''}{reason}"


def told_words(view: IncidentView) -> str:
    """Return which channels were notified, in one line: `delivered to phone; not delivered to ops yet: timed out`."""
    told = [delivery_words(view, name, f" to {name}") for name, state in view.told.items() if state != "spared"]
    nobody = "nobody was notified" if view.closed_ms is not None or not view.channels else "nobody was notified yet"
    return "; ".join(told) or nobody


def _unnamed(held: str) -> str:
    return f"{WAITS_FOR} another job" if held.startswith(WAITS_FOR) else held


def view_incident(
    incident: Incident, now_ms: int, channels: Sequence[IncidentChannel], undelivered: Mapping[str, str]
) -> IncidentView:
    """Return an incident with the channels that it notifies."""
    due = [each for each in channels if each.from_ms <= now_ms] or channels  # others are notified later
    is_held = bool(due) and all(each.held for each in due)
    silence = incident.silence if incident.silence and incident.silence.holds(now_ms) else None
    return copied(
        IncidentView,
        incident,
        job_id=job_of(incident.subject),
        level=incident.level.value,
        state="open" if incident.closed_ms is None else "closed",
        signs={sign: copied(SignView, each) for sign, each in incident.signs.items()},
        held=due[0].held if is_held else "",
        held_until_ms=due[0].held_until_ms if is_held else None,
        silent_until_ms=silence and silence.until_ms,
        silent_by=silence.by if silence else "",
        channels=[*channels],
        undelivered=undelivered,
        notes=[copied(IncidentNote, note) for note in incident.notes],
    )


class ChannelTried(Struct, frozen=True, kw_only=True):
    """The result of a test notification; no part of the channel's address is shown."""

    channel: str
    is_sent: bool
    reason: str = ""  # why it was not delivered, or not as its template says


class ChannelView(Struct, frozen=True, kw_only=True):
    """A notification channel of config.toml; only service and host of its address are shown."""

    name: str
    kind: str  # "service", of Apprise's, "webhook" or "desktop"
    service: str  # "ntfy", "mailtos", …; "" for other kinds, and where the address is in a file or a variable
    host: str  # "" where the address has none, or holds a secret in its place
    level: str  # the lowest level that it is sent: "info", "warning" or "critical"
    quiet: str  # "22:00-07:00"; "": never
    quiet_until_ms: int | None  # the end of the current quiet hours
    waiting: int  # messages
    oldest_ms: int | None  # when the oldest of them was added
    sent: int  # messages delivered since the daemon started
    failed: int  # failed attempts since then
    sent_ms: int | None  # the last delivery
    error: str  # of the last failed attempt
    failed_ms: int | None  # when that was; unknown if the daemon has restarted since
    down_since_ms: int | None  # since when it delivers nothing, which the other channels were notified of
    incident: int | None  # the open incident of this channel
    unusable: str = ""  # why its address is invalid
    template_problem: str = ""  # why its template fails: the built-in text is sent
    tested_ms: int | None = None  # its last test notification since the daemon started ...
    test: ChannelTried | None = None  # ... and the result
