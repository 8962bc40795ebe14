"""Read who is told of incidents, and of which: `[channels.NAME]`, `[alerts]`, and `alerts` of a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from spyweb.errors import Problem
from spyweb.incidents.policy import NOBODY, AlertPolicy, Level
from spyweb.settings.reading import Reading, SettingsSource, nearest
from spyweb.settings.shapes import NOT_BLANK, Schema, list_of, shaped
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import MINUTE_MS, format_duration
from spyweb.settings.values import boolean, duration, headers, one_line, one_of, texts, whole

NAME = "^[a-z0-9_-]{1,40}$"
NEVER = "never"
MOST_IN_A_ROW = 1_000
SHORTEST_REMINDER_MS = 5 * MINUTE_MS

_NAME = re.compile(NAME)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,99})\}")
_REMINDER = duration(SHORTEST_REMINDER_MS)
_COUNT = whole(1, MOST_IN_A_ROW)
_LEVEL = one_of(Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChannelSettings:
    """A way to reach somebody: `[channels.NAME]`.  Its address is nowhere but here."""

    name: str
    webhook: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    level: Level = Level.INFO  # the least that it is told


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """The channels, and the policy of every job that says nothing else."""

    channels: Mapping[str, AlertChannelSettings] = field(default_factory=dict)
    policy: AlertPolicy = NOBODY


def take_policy(read: Reading, usual: AlertPolicy, channels: Collection[str]) -> AlertPolicy:
    """Take what a table of alerts says; a key that it has not is as usual."""
    policy = AlertPolicy(
        to=read.take("to", _to, usual.to),
        level=read.take("level", _LEVEL, usual.level),
        after_failures=read.take("after_failures", _COUNT, usual.after_failures),
        after_successes=read.take("after_successes", _COUNT, usual.after_successes),
        recovered=read.take("recovered", boolean, usual.recovered),
        remind_ms=read.take("remind_every", _remind_every, usual.remind_ms),
    )
    unknown = next((name for name in policy.to if name not in channels), None)
    if unknown is not None and read.has("to"):
        read.refuse(f'no channel "{unknown}"{nearest(unknown, channels)}', "to")
    return policy


def take_channels(
    tables: Mapping[str, TomlTable], environ: Mapping[str, str], problems: list[Problem]
) -> Mapping[str, AlertChannelSettings]:
    """Return the channels by name, without those that are wrong."""
    found = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            problems.append(
                table.problem(f"expected a name of a-z, 0-9, _ and -, with at most 40 characters: {name!r}")
            )
        before = len(problems)
        read = Reading([SettingsSource.of(table)], problems)
        channel = take_channel(name, read, environ)
        read.finish()
        if len(problems) == before:
            found[name] = channel
    return found


def take_channel(name: str, read: Reading, environ: Mapping[str, str]) -> AlertChannelSettings:
    channel = AlertChannelSettings(
        name=name,
        webhook=read.take("webhook", _from_environment(environ, _address), ""),
        headers=read.take("headers", headers, ()),
        level=read.take("level", _LEVEL, Level.INFO),
    )
    if not read.has("webhook"):
        read.refuse("a channel needs an address: webhook", "webhook")
    return channel


def channel_keys() -> Mapping[str, Schema]:
    """Return the JSON schema of every key of a channel."""
    read = Reading([SettingsSource.of(TomlTable())], [])
    take_channel("", read, {})
    return read.schema()


def _from_environment(environ: Mapping[str, str], read: Callable[[str], str]) -> Callable[[object], str]:
    """Return a reader that puts variables in place of `${NAME}` first."""

    @shaped({**NOT_BLANK})
    def expanded(value: object) -> str:
        return read(_VARIABLE.sub(lambda found: _variable(environ, found[1]), one_line(value)))

    return expanded


def _variable(environ: Mapping[str, str], name: str) -> str:
    found = environ.get(name, "").strip()
    if not found:
        raise ValueError(f"the variable {name} is not set")
    return found


def _address(text: str) -> str:
    """Check an address; the error tells nothing of it, since it may be a secret."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError("expected an address that begins with https:// or http://")
    return text


@shaped(list_of({"type": "string", "pattern": NAME}), list)
def _to(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts(value)))


def _show_reminder(remind_ms: int | None) -> str:
    return NEVER if remind_ms is None else format_duration(remind_ms)


@shaped({"anyOf": [{"const": NEVER}, _REMINDER.schema]}, _show_reminder, none=NEVER)
def _remind_every(value: object) -> int | None:
    return None if value == NEVER else _REMINDER(value)
