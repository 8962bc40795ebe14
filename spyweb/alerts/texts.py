"""The texts of messages to people: what is wrong in the title, why in the first line, so that a cut costs the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.incidents.words import WORDS, name_of
from spyweb.model import RunId
from spyweb.words import round_duration


class AlertItem(Struct, frozen=True, kw_only=True):
    """Describes one incident to whoever is told."""

    incident: int | None  # None: it is what a script tells, of no incident
    kind: MessageKind
    subject: str
    level: Level
    reason: str
    text: str
    run: RunId | None
    since_ms: int
    opened_ms: int
    closed_ms: int | None
    failures: int
    flapping: bool
    gone: bool = False  # it is over only since its subject is gone, or was switched off
    title: str = ""  # of what a script tells
    ack_url: str = ""  # where somebody acknowledges it; never stored


class AlertFacts(Struct, frozen=True, kw_only=True):
    """A message to an alert channel: of several items it is a digest, which names no more than the first of them."""

    channel: str
    at_ms: int
    items: tuple[AlertItem, ...]
    count: int

    @property
    def alone(self) -> AlertItem | None:
        """Return the one thing that it is about; None of a digest, and where a channel is tried out."""
        return self.items[0] if len(self.items) == 1 and self.count == 1 else None


decode_facts = msgspec.json.Decoder(AlertFacts).decode

FAILURE: Final = "failure"
SUCCESS: Final = "success"


def title_of(facts: AlertFacts) -> str:
    """Return what has happened; the number tells two messages of one incident from those of two."""
    if facts.alone:
        return _named(facts.alone, facts.at_ms)
    if not facts.items:
        return f"Test notification for the channel {facts.channel}"
    if all(item.kind is MessageKind.MESSAGE for item in facts.items):
        return f"{facts.count} messages of {name_of(facts.items[0].subject)}"
    over = sum(item.kind in (MessageKind.CLOSED, MessageKind.WAS) for item in facts.items)
    if facts.count > len(facts.items):  # of the others nothing is known but how many there are
        return f"{facts.count} incidents"
    return f"{facts.count} incidents: {facts.count - over} open, {over} over"


def body_of(facts: AlertFacts, timezone: str, *, page: str = "", log: Sequence[str] = ()) -> str:
    """Return why, since when, the address of a page with more, and what was logged last."""
    zone = ZoneInfo(timezone)
    if facts.alone:
        lines = [*_lines(facts.alone, facts.at_ms, zone), *([f"More of it: {page}"] if page else ())]
        return "\n".join([*lines, "", "Last in its log:", *log] if log else lines)
    if not facts.items:
        return f"It works. Sent at {_moment(facts.at_ms, zone)}"
    gravest_first = sorted(facts.items, key=lambda item: -item.level.rank)
    lines = [_named(item, facts.at_ms) for item in gravest_first]
    left = facts.count - len(lines)
    return "\n".join([*lines, f"and {left} more"] if left else lines)


def mood_of(facts: AlertFacts) -> str:
    """Return the colour that a message is shown in: that of the gravest of what is still open."""
    ended = (MessageKind.CLOSED, MessageKind.WAS)
    still = [item for item in facts.items if item.kind not in ended]
    if not facts.items:
        return Level.INFO.value
    if not still:
        return SUCCESS
    gravest = max((item.level for item in still), key=lambda level: level.rank)
    return FAILURE if gravest is Level.CRITICAL else gravest.value


def _named(item: AlertItem, at_ms: int) -> str:
    if item.incident is None:
        return item.title
    return f"#{item.incident} {_happened(item, at_ms)}"


def _happened(item: AlertItem, at_ms: int) -> str:
    name, wrong = name_of(item.subject), _wrong(item)
    lasted = round_duration(max(0, (item.closed_ms or at_ms) - item.since_ms))
    match item.kind:
        case MessageKind.OPENED:
            return f"{name} {wrong}"
        case MessageKind.REMINDER:
            return f"{name} {wrong}, for {lasted} now"
        case MessageKind.CLOSED:
            return f"{name} was removed or disabled" if item.gone else f"{name} recovered after {lasted}"
        case MessageKind.WAS:
            end = "was removed or disabled" if item.gone else "recovered"
            return f"{name} had a problem for {lasted}, and {end}"
        case MessageKind.MESSAGE:
            return item.title


def _wrong(item: AlertItem) -> str:
    if item.reason in WORDS:
        return WORDS[item.reason]
    return f"is down: {item.failures} failures" if item.failures > 1 else "is down"


def _lines(item: AlertItem, at_ms: int, zone: ZoneInfo) -> list[str]:
    lines = [item.text] if item.text else []
    if item.kind is MessageKind.MESSAGE:
        who = name_of(item.subject) if item.run is None else f"{name_of(item.subject)}, run {item.run}"
        return [*lines, f"{who}, {_moment(item.since_ms, zone)}"]
    if item.kind is MessageKind.WAS and item.reason in WORDS:
        lines.append(f"It {WORDS[item.reason]}.")
    lines.append(f"Since {_moment(item.since_ms, zone)}")
    if item.closed_ms is not None:
        lines[-1] += f", until {_moment(item.closed_ms, zone)}"
    if item.kind is MessageKind.REMINDER:
        lines[-1] += f"; now it is {_moment(at_ms, zone)}"
    if item.ack_url:
        lines.append(f"Acknowledge: {item.ack_url}")
    if item.run is not None:
        lines.append(f"Run {item.run}: spyweb runs {name_of(item.subject)}")
    if item.flapping:
        lines.append("It flaps: its end is reported once it has been quiet for a while.")
    return lines


def _moment(moment_ms: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, zone).strftime("%Y-%m-%d %H:%M %Z")
