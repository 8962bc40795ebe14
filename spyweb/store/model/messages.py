"""The outbox of a store: messages, with the notices of scripts (`notify{…}`), kept until they are delivered."""

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
    PING = "ping"  # the state of a job's runs, for a watcher elsewhere; of each kind only the newest waits


class Target(NamedTuple):
    """A receiver, which is sent its messages one after the other."""

    channel: Channel
    address: str  # a webhook's URL; a notification channel's name; the job that a ping is about; empty for the desktop


class NewMessage(Struct, frozen=True, kw_only=True):
    """A message to be sent."""

    job: JobId
    target: Target
    payload: bytes  # JSON
    headers: tuple[tuple[str, str], ...] = ()  # of a webhook


class QueuedMessage(NewMessage, frozen=True, kw_only=True):
    """A message in the outbox: it is not delivered yet, or is dead."""

    id: int
    delivery: str  # the id that the receiver sees, the same however often it is sent
    created_ms: int
    next_ms: int  # not before this moment
    attempts: int = 0  # that failed
    error: str = ""  # of the last of them
    dead_ms: int | None = None  # when it was given up


class Backlog(NamedTuple):
    """The messages that have not been delivered."""

    waiting: int
    oldest_ms: int | None  # when the oldest of these was added; None: none waits
    dead: int = 0  # given up


class TargetBacklog(NamedTuple):
    """The messages to one target that have neither been delivered nor given up."""

    waiting: int
    oldest_ms: int
    error: str  # of the last attempt for the oldest


class Notice(Struct, frozen=True, kw_only=True):
    """A message of a script to a notification channel."""

    job: JobId
    run: RunId | None  # None: the server's own, which is not on record
    channel: str  # the name of a notification channel
    level: Level
    title: str  # one line
    text: str = ""
    key: bytes = b""  # sent once a day; empty: each time
    day: str = ""  # today, by the daemon's time zone
    link: str = ""  # of the item that it is about
    page_url: str = ""  # where a monitor found it
    held_until_ms: int | None = None  # the end of quiet hours that hold it


class NoticeFate(StrEnum):
    """The fate of a notice; it is committed in any case."""

    QUEUED = "queued"
    HELD = "held"  # until quiet hours end
    GATHERED = "gathered"  # there were too many in a minute: one message holds them all
    REPEATED = "repeated"  # its key was sent today
    BELOW = "below"  # its level is below the channel's: it is not sent
