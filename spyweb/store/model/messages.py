"""The outbox of a store, with what scripts tell people by `notify{…}`: kept until it has arrived."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from spyweb.incidents.policy import Level
from spyweb.model import JobId, RunId


class Channel(StrEnum):
    """The channel by which a message is sent."""

    WEBHOOK = "webhook"
    DESKTOP = "desktop"
    ALERT = "alert"
    PING = "ping"  # what a watcher elsewhere is told of a job's runs; of each kind only the newest waits


class Target(NamedTuple):
    """A receiver, which is sent its messages one after the other."""

    channel: Channel
    address: str  # a webhook's URL; the name of an alert channel; a job of which is told; empty for the desktop


class NewMessage(Struct, frozen=True, kw_only=True):
    """A message to be sent."""

    job: JobId
    target: Target
    payload: bytes  # JSON
    headers: tuple[tuple[str, str], ...] = ()  # of a webhook


class QueuedMessage(NewMessage, frozen=True, kw_only=True):
    """A message in the outbox: it has not arrived yet, or is dead."""

    id: int
    delivery: str  # the id that the receiver sees, the same however often it is sent
    created_ms: int
    next_ms: int  # not before this moment
    attempts: int = 0  # that failed
    error: str = ""  # of the last of them
    dead_ms: int | None = None  # when it was given up


class Backlog(NamedTuple):
    """The messages that have neither arrived nor been given up."""

    waiting: int
    oldest_ms: int | None  # when the oldest was added; None: none waits


class TargetBacklog(NamedTuple):
    """The messages to one target that have neither arrived nor been given up."""

    waiting: int
    oldest_ms: int
    error: str  # of the last attempt for the oldest


class Notice(Struct, frozen=True, kw_only=True):
    """One thing that a script tells people."""

    job: JobId
    run: RunId | None  # None: the server's own, which is not on record
    channel: str  # the name of an alert channel
    level: Level
    title: str  # one line
    text: str = ""
    key: bytes = b""  # told once a day; empty: as often as it is said
    day: str = ""  # today, by the daemon's time zone
    held_until_ms: int | None = None  # the end of quiet hours that hold it


class NoticeFate(StrEnum):
    """The fate of a notice, which is committed, whatever it is."""

    QUEUED = "queued"
    HELD = "held"  # until quiet hours end
    GATHERED = "gathered"  # there were too many in a minute: one message tells of them
    REPEATED = "repeated"  # its key was told today
    BELOW = "below"  # the level that its channel is told: it is not sent
