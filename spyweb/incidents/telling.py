"""Decide which messages a notification channel is sent: `plan` compares its last notifications with the incidents.

`plan` depends only on the rows it is given, so it may run any number of times, at any moment, after any crash: the
notification of a channel is a row, written in the same transaction as the message.  For each incident a channel gets
one of: nothing; `opened`; `opened` and then `closed`; `was`, for an incident that opened and closed while it was held.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from spyweb.incidents.policy import AlertPolicy, Level

COLLECT_MS = 5_000  # messages due so soon after the first are sent with it
DIGEST_OVER = 10  # messages, of the last minute and due now
DIGEST_EVERY_MS = 60_000
SCRIPTS = "lua"  # stands for the hooks of the job's own file among the channels of an incident


class Told(StrEnum):
    """The last notification of a channel about an incident: none, then OPEN, then CLOSED; or SPARED."""

    OPEN = "open"
    CLOSED = "closed"
    SPARED = "spared"  # it closed before a message was due


class MessageKind(StrEnum):
    OPENED = "opened"
    REMINDER = "reminder"
    CLOSED = "closed"
    WAS = "was"  # it opened and closed while messages were held
    MESSAGE = "message"  # of a script, about no incident


class KnownIncident(Struct, frozen=True, kw_only=True):
    """An incident with one channel's last notification, and what may hold its messages back."""

    id: int
    opened_ms: int
    closed_ms: int | None = None
    is_acknowledged: bool = False
    told: Told | None = None
    remind_ms: int | None = None
    policy: AlertPolicy
    level: Level
    maintenance_until_ms: int | None = None  # the end of its subject's maintenance, if that is on
    silent_until_ms: int | None = None  # the end of its subject's silence, if that is on
    quiet_until_ms: int | None = None  # the end of its subject's quiet hours, where the channel has none
    is_under_another: bool = False  # a subject on which it depends has an open incident


class ChannelState(Struct, frozen=True, kw_only=True):
    name: str
    quiet_until_ms: int | None = None  # the end of its quiet hours, if they are on
    next_ms: int | None = None  # after a digest: no message before
    sent_lately: int = 0  # messages of the last minute


class ToldNow(Struct, frozen=True):
    incident: int
    told: Told
    remind_ms: int | None = None


class MessageItem(Struct, frozen=True):
    incident: int
    kind: MessageKind


class TellingPlan(Struct, frozen=True, kw_only=True):
    """The rows to write, in one transaction, and when to plan again if nothing happens before."""

    messages: tuple[tuple[MessageItem, ...], ...] = ()  # each is one message; with several items: a digest
    told: tuple[ToldNow, ...] = ()
    next_ms: int | None = None  # the channel's new value, after a digest
    wake_ms: int | None = None


class _Due(Struct, frozen=True):
    at_ms: int
    incident: KnownIncident
    kind: MessageKind


class HoldReason(StrEnum):
    MAINTENANCE = "maintenance"
    SILENCE = "silence"
    ANOTHER = "another"  # a subject on which it depends has an open incident
    QUIET = "quiet"


class Hold(Struct, frozen=True):
    """A reason to hold messages back, and until when (None: until something happens)."""

    reason: HoldReason
    until_ms: int | None
    spares: bool  # an incident that closes before then is never notified


def plan(channel: ChannelState, incidents: Sequence[KnownIncident], now_ms: int) -> TellingPlan:
    """Decide which messages a channel is sent now.  `incidents` are the unsettled ones, in the order of their ids."""
    if channel.next_ms is not None and now_ms < channel.next_ms <= now_ms + DIGEST_EVERY_MS:
        return TellingPlan(wake_ms=channel.next_ms)
    due, told, wakes = list[_Due](), list[ToldNow](), list[int]()
    for incident in incidents:
        match _due_for(channel, incident, now_ms):
            case _Due() as found:
                due.append(found)
            case ToldNow() as found:
                told.append(found)
            case int() as moment:
                wakes.append(moment)
    if due and now_ms < (batch_ms := min(each.at_ms for each in due) + COLLECT_MS) <= now_ms + COLLECT_MS:
        return TellingPlan(told=tuple(told), wake_ms=min([batch_ms, *wakes]))
    sent = [_told(each, now_ms) for each in due]
    wakes += [each.remind_ms for each in sent if each.remind_ms is not None]
    items = tuple(MessageItem(each.incident.id, each.kind) for each in due)
    is_digest = len(items) > 1 and len(items) + channel.sent_lately > DIGEST_OVER
    return TellingPlan(
        messages=(items,) if is_digest else tuple((item,) for item in items),
        told=(*told, *sent),
        next_ms=now_ms + DIGEST_EVERY_MS if is_digest else None,
        wake_ms=min(wakes, default=None),
    )


def _due_for(channel: ChannelState, incident: KnownIncident, now_ms: int) -> _Due | ToldNow | int | None:
    """Return the due message, the notification that needs no message, or when to plan again."""
    if incident.told in (Told.CLOSED, Told.SPARED):
        return None
    hold, wait_ms = hold_of(channel, incident), incident.policy.notifies(channel.name)
    from_ms = None if wait_ms is None else incident.opened_ms + wait_ms
    if incident.told is None and incident.closed_ms is not None:
        ended_before = from_ms is None or incident.closed_ms < from_ms
        if ended_before or incident.is_acknowledged or (hold is not None and hold.spares):
            return ToldNow(incident.id, Told.SPARED)
    if hold:
        return hold.until_ms
    if incident.told is None:
        return _opening(incident, from_ms, now_ms)
    if incident.closed_ms is not None:
        if not incident.policy.recovered:
            return ToldNow(incident.id, Told.CLOSED)
        return _Due(incident.closed_ms, incident, MessageKind.CLOSED)
    return _reminder(incident, now_ms)


def _opening(incident: KnownIncident, from_ms: int | None, now_ms: int) -> _Due | int | None:
    if from_ms is None or incident.is_acknowledged:
        return None
    if now_ms < from_ms <= now_ms + (from_ms - incident.opened_ms):
        return from_ms
    return _Due(from_ms, incident, MessageKind.OPENED if incident.closed_ms is None else MessageKind.WAS)


def _reminder(incident: KnownIncident, now_ms: int) -> _Due | int | None:
    every_ms, remind_ms = incident.policy.remind_ms, incident.remind_ms
    if incident.is_acknowledged or every_ms is None or remind_ms is None:
        return None
    if now_ms < remind_ms <= now_ms + every_ms:
        return remind_ms
    return _Due(remind_ms, incident, MessageKind.REMINDER)


def hold_of(channel: ChannelState, incident: KnownIncident) -> Hold | None:
    """Return what holds the messages about an incident to a channel back."""
    if incident.maintenance_until_ms is not None:
        return Hold(HoldReason.MAINTENANCE, incident.maintenance_until_ms, spares=False)
    if incident.silent_until_ms is not None:
        return Hold(HoldReason.SILENCE, incident.silent_until_ms, spares=True)
    if incident.is_under_another:
        return Hold(HoldReason.ANOTHER, None, spares=True)
    quiet_ms = incident.quiet_until_ms if channel.quiet_until_ms is None else channel.quiet_until_ms
    if quiet_ms is not None and incident.level is not Level.CRITICAL:
        return Hold(HoldReason.QUIET, quiet_ms, spares=False)
    return None


def _told(due: _Due, now_ms: int) -> ToldNow:
    if due.kind in (MessageKind.CLOSED, MessageKind.WAS):
        return ToldNow(due.incident.id, Told.CLOSED)
    every_ms = due.incident.policy.remind_ms
    return ToldNow(due.incident.id, Told.OPEN, None if every_ms is None else now_ms + every_ms)
