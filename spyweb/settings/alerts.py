"""Read the notification channels and which incidents each gets: `[channels.NAME]`, `[alerts]`, `alerts` of a job."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import time
from enum import StrEnum
from functools import partial

from msgspec import Struct

from spyweb.errors import Problem
from spyweb.incidents.policy import NOBODY, AlertPolicy, Escalation, Flapping, Level, QuietHours
from spyweb.incidents.telling import SCRIPTS
from spyweb.incidents.truth import JOB
from spyweb.settings.addresses import address_template, secret_place
from spyweb.settings.reading import (
    NOT_BLANK,
    Reading,
    Schema,
    Shape,
    Tables,
    asked_of,
    list_of,
    nearest,
    read_whole,
    shaped,
    wrong,
)
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import MINUTE_MS, format_duration
from spyweb.settings.values import boolean, duration, headers, one_line, one_of, or_word, text, texts, whole

NAME = "^[a-z0-9_-]{1,40}$"
ADDRESSES = ("url", "url_file", "webhook", "desktop")  # a channel has one of them
NEVER = "never"
QUIET = r"^(?:([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9]))?$"
FLAPPING = r"^(never|[0-9]{1,3} in \S.*)$"

_NAME = re.compile(NAME)
_SERVICE = re.compile(r"[A-Za-z0-9]{2,20}://\S")
_WAIT = duration(MINUTE_MS)
_PATIENCE = or_word(NEVER, _WAIT)
_WEBHOOK = shaped(NOT_BLANK)(lambda value: address_template(one_line(value)))
CHANNEL_NAMES = shaped(list_of({"type": "string", "pattern": NAME}), list)(lambda to: tuple(dict.fromkeys(texts(to))))
_DEPENDS_ON = shaped(list_of(NOT_BLANK), lambda subjects: [each.removeprefix(JOB) for each in subjects])(
    lambda value: tuple(dict.fromkeys(f"{JOB}{one_line(job)}" for job in texts(value)))  # as subjects of incidents
)


class TemplateFormat(StrEnum):
    """The markup that the templates of a channel write."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"


class ChannelTemplates(Struct, frozen=True, kw_only=True):
    """Texts in Jinja, in place of the built-in ones."""

    title: str = ""
    body: str = ""
    format: TemplateFormat = TemplateFormat.TEXT


NO_TEMPLATES = ChannelTemplates()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChannelSettings:
    """A notification channel; alerts/channels.py replaces `${NAME}` in its addresses, headers and files."""

    name: str
    url: str = field(default="", repr=False)  # of a service that Apprise knows
    url_file: str = ""  # has that address
    webhook: str = field(default="", repr=False)
    desktop: bool = False  # of the user who runs the daemon
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # of the webhook
    secret: str = field(default="", repr=False)  # where it is found that signs the webhook: env:NAME or credential:NAME
    secret_file: str = ""  # has it
    templates: ChannelTemplates = NO_TEMPLATES  # of `url` or `url_file`
    level: Level = Level.INFO  # the lowest that the channel gets
    quiet: QuietHours | None = None
    has_own_quiet: bool = False  # those of [alerts] and of jobs do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """The channels, and the policy of every job without its own."""

    channels: Mapping[str, AlertChannelSettings] = field(default_factory=dict)
    policy: AlertPolicy = NOBODY
    names: frozenset[str] = frozenset()  # of channels, with those that are wrong
    table: TomlTable = field(default_factory=TomlTable, repr=False, compare=False)  # [alerts], for problems with it


def take_policy(read: Reading, usual: AlertPolicy, channels: Collection[str], zone: str) -> AlertPolicy:
    """Return the policy of a table of alerts; a missing key is as in `usual`."""
    policy = AlertPolicy(
        to=read.take("to", CHANNEL_NAMES, usual.to),
        level=read.take("level", one_of(Level), usual.level),
        after_failures=read.take("after_failures", whole(1, 1_000), usual.after_failures),
        after_successes=read.take("after_successes", whole(1, 1_000), usual.after_successes),
        recovered=read.take("recovered", boolean, usual.recovered),
        remind_ms=read.take("remind_every", or_word(NEVER, duration(5 * MINUTE_MS)), usual.remind_ms),
        quiet=read.take("quiet", _quiet_in(zone), usual.quiet),
        escalations=read.tables("escalate", _ESCALATIONS, usual.escalations),
        flapping=read.take("flapping", _flapping, usual.flapping),
        pause_after=read.take("pause_after", or_word(NEVER, whole(1, 1_000)), usual.pause_after),
        depends_on=read.take("depends_on", _DEPENDS_ON, usual.depends_on),
        late_after_ms=read.take("late_after", _PATIENCE, usual.late_after_ms),
        no_success_ms=read.take("no_success_for", _PATIENCE, usual.no_success_ms),
    )
    _check_channels(read, policy, channels)
    said = next(filter(read.has, ("pause_after", "after_failures")), None)  # inherited ones are a problem of [alerts]
    if said and policy.pause_after is not None and policy.pause_after < policy.after_failures:
        read.refuse(f"would be paused before it is an incident: at least after_failures, {policy.after_failures}", said)
    return policy


def _check_channels(read: Reading, policy: AlertPolicy, channels: Collection[str]) -> None:
    """Refuse unknown channels, and a job's own escalations to a channel that is notified at once; inherited may."""
    unknown = next((name for name in policy.to if name not in channels), None)
    if unknown is not None and read.has("to"):
        read.refuse(f'no channel "{unknown}"{nearest(unknown, channels)}', "to")
    if not read.has("escalate"):
        return
    for number, each in enumerate(policy.escalations, 1):
        for name in each.to:
            if name not in channels:
                read.refuse(f'no channel "{name}"{nearest(name, channels)}', f"escalate[{number}]", "to")
            elif name in policy.to:
                read.refuse(f'"{name}" is in `to`, so it is notified at once', f"escalate[{number}]", "to")


def take_channels(
    tables: Mapping[str, TomlTable], zone: str, problems: list[Problem]
) -> Mapping[str, AlertChannelSettings]:
    """Return the channels by name, without invalid ones."""
    found = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            problems.append(table.problem(f"expected a name of a-z, 0-9, _ and -, at most 40 characters: {name!r}"))
        if name == SCRIPTS:
            problems.append(table.problem(f"a channel can't be named {name}: the name stands for on_down and on_up"))
        channel = read_whole(table, partial(take_channel, name, zone), problems)
        if channel is not None and name != SCRIPTS:
            found[name] = channel
    return found


def take_channel(name: str, zone: str, read: Reading) -> AlertChannelSettings:
    channel = AlertChannelSettings(
        name=name,
        url=read.take("url", _service_template, ""),
        url_file=read.take("url_file", one_line, ""),
        webhook=read.take("webhook", _WEBHOOK, ""),
        desktop=read.take("desktop", _desktop, False),
        headers=read.take("headers", headers, ()),
        secret=read.take("secret", secret_place, ""),
        secret_file=read.take("secret_file", one_line, ""),
        templates=ChannelTemplates(
            title=(templates := read.below("templates")).take("title", text, ""),
            body=templates.take("body", text, ""),
            format=templates.take("format", one_of(TemplateFormat), TemplateFormat.TEXT),
        ),
        level=read.take("level", one_of(Level), Level.INFO),
        quiet=read.take("quiet", _quiet_in(zone), None),
        has_own_quiet=read.has("quiet"),
    )
    given = [key for key in ADDRESSES if read.has(key)]
    if len(given) != 1:
        key = given[-1] if given else ADDRESSES[0]
        read.refuse(f"a channel has exactly one address: {', '.join(ADDRESSES[:-1])} or {ADDRESSES[-1]}", key)
    for key in ("headers", "secret", "secret_file"):
        if read.has(key) and not read.has("webhook"):
            read.refuse("only a webhook has this key", key)
    if read.has("secret") and read.has("secret_file"):
        read.refuse("a webhook has either secret or secret_file", "secret_file")
    if read.has("templates") and not (read.has("url") or read.has("url_file")):
        read.refuse("only a url has templates: a webhook gets the facts as JSON", "templates")
    return channel


def channel_keys() -> Mapping[str, Schema]:
    return asked_of(partial(take_channel, "", "UTC")).schema()


@shaped(NOT_BLANK)
def _service_template(value: object) -> str:
    """Read an address of a service that may hold `${NAME}`, which is replaced when the address is used."""
    address = one_line(value).strip()
    return address if address.startswith("${") else service_address(address)


def service_address(address: str) -> str:
    """Check that an address names a service; only the process that sends knows which services exist."""
    if not _SERVICE.match(address):
        raise ValueError("expected an address of a service, such as ntfy://…")
    return address


@shaped({"const": True})
def _desktop(value: object) -> bool:
    if value is not True:
        raise wrong("true, or nothing", value)
    return True


def _quiet_in(zone: str) -> Shape[QuietHours | None]:
    """Return the reader of "22:00-07:00", in local time; "" means no quiet hours."""

    @shaped({"type": "string", "pattern": QUIET}, show_quiet, none="")
    def read(value: object) -> QuietHours | None:
        given = text(value)
        found = re.fullmatch(QUIET, given)
        if found is None:
            raise wrong('two times of day, "22:00-07:00", or "" for never', given)
        if not given:
            return None
        start, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
        if start == end:
            raise ValueError("begins and ends at the same time: to silence a channel, leave it out of `to`")
        return QuietHours(start, end, zone)

    return read


def show_quiet(quiet: QuietHours | None) -> str:
    return f"{quiet.start:%H:%M}-{quiet.end:%H:%M}" if quiet else ""


def _take_escalation(read: Reading) -> Escalation:
    read.require("after", "to")
    return Escalation(read.take("after", _WAIT, 0), read.take("to", _somebody, ()))


@shaped(list_of({"type": "string", "pattern": NAME}, minItems=1))
def _somebody(value: object) -> tuple[str, ...]:
    names = CHANNEL_NAMES(value)
    if not names:
        raise ValueError("an escalation needs a channel in `to`")
    return names


_ESCALATIONS = Tables(take=_take_escalation, expected='tables such as { after = "30m", to = ["boss"] }', most=5)


@shaped(
    {"type": "string", "pattern": FLAPPING},
    lambda flapping: f"{flapping.openings} in {format_duration(flapping.within_ms)}",
    none=NEVER,
)
def _flapping(value: object) -> Flapping | None:
    given = text(value).strip()
    if given == NEVER:
        return None
    count, _, within = given.partition(" in ")
    if not (count.isascii() and count.isdigit() and len(count) < 4 and within):
        raise wrong('"5 in 30m", or "never"', given)
    return Flapping(whole(2, 100)(int(count)), _WAIT(within.strip()))
