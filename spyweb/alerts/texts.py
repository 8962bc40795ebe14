"""Write the texts of notifications: the facts of an incident and the end of its run's log, without secrets.

The title says what is wrong, the first line says why: a service that cuts texts cuts the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from spyweb.errors import STORE_REFUSED
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.incidents.truth import WORDS, name_of
from spyweb.logs.job import NAME
from spyweb.logs.reading import lines_between
from spyweb.logs.secrets import Secrets
from spyweb.model import RunId
from spyweb.runs.live import LiveJobs
from spyweb.store.sqlite.past_runs import PastRuns
from spyweb.words import round_duration

DIGEST, TEST = "digest", "test"  # kinds of messages that are not about one incident
LOG_LINES = 5
LONGEST_LOG = 1_000  # characters
MOST_READ = 32_768  # bytes of a log
STAMP = len("2026-11-23T19:31:56.496Z ")
FAILURE: Final = "failure"
SUCCESS: Final = "success"


class AlertItem(Struct, frozen=True, kw_only=True):
    """One incident, or one message of a script, in a notification."""

    incident: int | None  # None: a message of a script
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
    gone: bool = False  # it closed because its subject was removed or disabled
    title: str = ""  # of a script's message
    ack_url: str = ""  # the acknowledge link; never stored
    name: str = ""  # the job's name; "" where that is unknown
    link: str = ""  # of the item that a monitor's message is about
    page_url: str = ""  # the page on which a monitor found it; in templates else the incident's


class AlertFacts(Struct, frozen=True, kw_only=True):
    """A message to a notification channel; with several items it is a digest, which holds only the first items."""

    channel: str
    at_ms: int
    items: tuple[AlertItem, ...]
    count: int
    instance: str = ""  # the name of the daemon's machine

    @property
    def alone(self) -> AlertItem | None:
        """Return the only item; None for a digest and for a test notification."""
        return self.items[0] if len(self.items) == 1 and self.count == 1 else None


decode_facts = msgspec.json.Decoder(AlertFacts).decode

# The names that a template may use.
TEMPLATE_FACTS = (*AlertFacts.__struct_fields__, *AlertItem.__struct_fields__, "log")


def title_of(facts: AlertFacts) -> str:
    """Return the title; the incident's number groups the messages of one incident."""
    if facts.alone:
        return _named(facts.alone, facts.at_ms)
    if not facts.items:
        return f"Test notification for the channel {facts.channel}"
    if all(item.kind is MessageKind.MESSAGE for item in facts.items):
        return f"{facts.count} messages of {name_of(facts.items[0].subject)}"
    closed = sum(item.kind in (MessageKind.CLOSED, MessageKind.WAS) for item in facts.items)
    if facts.count > len(facts.items):  # the others are only counted
        return f"{facts.count} incidents"
    return f"{facts.count} incidents: {facts.count - closed} open, {closed} closed"


def body_of(facts: AlertFacts, timezone: str, *, page: str = "", log: Sequence[str] = ()) -> str:
    """Return the reason, the times, the links, and the last log lines."""
    zone, sender = ZoneInfo(timezone), [f"spyweb on {facts.instance}"] if facts.instance else []
    if facts.alone:
        lines = [*_lines(facts.alone, facts.at_ms, zone), *([f"Details: {page}"] if page else ())]
        return "\n".join([*lines, *sender, *(["", "Last log lines:", *log] if log else [])])
    if not facts.items:
        return "\n".join([f"Sent {_moment(facts.at_ms, zone)}: notifications of incidents arrive here.", *sender])
    gravest_first = sorted(facts.items, key=lambda item: -item.level.rank)
    lines = [_named(item, facts.at_ms) for item in gravest_first]
    left = facts.count - len(lines)
    return "\n".join([*lines, *([f"and {left} more"] if left else ()), *sender])


def mood_of(facts: AlertFacts) -> str:
    """Return the colour of a message: that of the gravest open item."""
    ended = (MessageKind.CLOSED, MessageKind.WAS)
    still = [item for item in facts.items if item.kind not in ended]
    if not facts.items:
        return Level.INFO.value
    if not still:
        return SUCCESS
    gravest = max((item.level for item in still), key=lambda level: level.rank)
    return FAILURE if gravest is Level.CRITICAL else gravest.value


def _named(item: AlertItem, at_ms: int) -> str:
    down = f"is down: {item.failures} failures" if item.failures > 1 else "is down"
    named, wrong = f"#{item.incident} {item.name or name_of(item.subject)}", WORDS.get(item.reason, down)
    lasted = round_duration(max(0, (item.closed_ms or at_ms) - item.since_ms))
    match item.kind:
        case MessageKind.OPENED:
            return f"{named} {wrong}"
        case MessageKind.REMINDER:
            return f"{named} {wrong}, for {lasted} now"
        case MessageKind.CLOSED:
            return f"{named} was removed or disabled" if item.gone else f"{named} recovered after {lasted}"
        case MessageKind.WAS:
            end = "was removed or disabled" if item.gone else "recovered"
            return f"{named} had a problem for {lasted}, and {end}"
        case MessageKind.MESSAGE:
            return item.title


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
        lines.append("Flapping: it closes once it has been stable for a while.")
    return lines


def _moment(moment_ms: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, zone).strftime("%Y-%m-%d %H:%M %Z")


class AlertText(NamedTuple):
    title: str
    body: str
    mood: str
    link: str = ""  # the most useful page: the acknowledge link, or else the incident's page
    facts: bytes = b"{}"  # the values of templates, as JSON


@dataclass(kw_only=True, eq=False)
class AlertWriter:
    timezone: str
    pages: str  # the dashboard's address, with which links begin; "": no links
    root: Path
    live: LiveJobs
    past_runs: PastRuns
    secrets: Secrets

    async def compose(self, facts: AlertFacts) -> AlertText:
        """Write a text: the same at each attempt, unless the log was removed meanwhile."""
        log = await self._last_lines(facts)
        number = facts.alone.incident if facts.alone else None
        page = f"{self.pages}incidents/{number}" if self.pages and number is not None else ""
        title, plain = title_of(facts), body_of(facts, self.timezone)
        alone = facts.alone
        shown = page or (alone.page_url if alone else "")
        named = template_facts(facts, plain, {"title": title, "page_url": shown, "log": "\n".join(log)})
        link = (alone.ack_url or alone.link if alone else "") or shown or (self.pages and f"{self.pages}incidents")
        return AlertText(title, body_of(facts, self.timezone, page=page, log=log), mood_of(facts), link, named)

    async def _last_lines(self, facts: AlertFacts) -> Sequence[str]:
        """Return the last log lines of the run that opened the incident."""
        alone = facts.alone
        if alone is None or alone.run is None or alone.kind not in (MessageKind.OPENED, MessageKind.WAS):
            return ()
        try:
            run = await self.past_runs.find(alone.run)
        except STORE_REFUSED:  # the message is sent without them
            return ()
        job = self.live.find(run.job) if run else None
        if run is None or job is None or run.started_ms is None or run.ended_ms is None:
            return ()
        path = self.root / job.spec.folder / NAME
        found = await asyncio.to_thread(lines_between, path, run.started_ms, run.ended_ms, MOST_READ)
        lines = [line[STAMP:] if line[:1].isdigit() else line for line in found.lines]
        return shortened([self.secrets.hide_in_prose(line) for line in lines])


def shortened(lines: Sequence[str]) -> Sequence[str]:
    """Return the last lines, cut where they are long."""
    kept, left = list[str](), LONGEST_LOG
    for line in reversed(lines[-LOG_LINES:]):
        if left < 2:
            break
        kept.append(line if len(line) < left else f"{line[: left - 2]}…")
        left -= len(kept[-1]) + 1
    return kept[::-1]


def template_facts(facts: AlertFacts, body: str, more: Mapping[str, str]) -> bytes:
    """Return the values of templates: the facts, and the fields of the only item.

    A digest and a test notification have values for these fields too, so that a template works for every message.
    """
    named: dict[str, Any] = msgspec.to_builtins(facts)
    items = named["items"]
    if facts.alone:
        alone = items[0]
    else:
        level = max((item.level for item in facts.items), key=lambda level: level.rank, default=Level.INFO)
        alone = {**dict.fromkeys(AlertItem.__struct_fields__, ""), "kind": DIGEST if items else TEST, "text": body}
        alone["level"] = level.value
    return msgspec.json.encode({**alone, **named, **more})
