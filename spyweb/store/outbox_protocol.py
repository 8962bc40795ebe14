"""The outbox of a store: messages to other systems, kept until they have arrived."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from spyweb.model import JobId


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


class Outbox(Protocol):
    """Waiting messages, each kept until it arrives or is given up.  A dead one is kept for a while, but not sent."""

    def add(self, messages: Sequence[NewMessage], *, settles: Sequence[int] = ()) -> Future[list[int]]:
        """Add messages in one transaction, and return their ids.

        In the same transaction the records with these timestamps stop being owed: these messages announce them, or
        they need no message.
        """

    def on_added(self, callback: Callable[[Sequence[Target]], None]) -> None:
        """Have this called on the loop, with their targets, each time that messages were added and committed."""

    def targets(self) -> Future[list[Target]]:
        """Return the targets of waiting messages."""

    def next(self, target: Target, now_ms: int) -> Future[QueuedMessage | None]:
        """Return the message to send next, due or not; None when none waits.

        Messages go in the order in which they were added.  One that was put off holds up those behind it, unless
        `put_off` said not to.
        """

    def done(self, message: int) -> Future[None]:
        """Delete a message that has arrived."""

    def put_off(self, message: int, *, next_ms: int, error: str, holds: bool) -> Future[None]:
        """Note a failed attempt; with `holds` the messages behind this one wait for the next attempt."""

    def give_up(self, message: int, *, error: str) -> Future[None]: ...

    def unsent(self, job: JobId | None, limit: int, *, before: int | None = None) -> Future[list[QueuedMessage]]:
        """Return the waiting and the dead messages, newest first; of ids below `before`."""

    def retry(self, message: int | None) -> Future[list[int]]:
        """Make this message, or all, due now, a dead one as if it were new; return their ids."""

    def count_dead(self) -> Future[int]: ...

    def backlog(self) -> Future[Backlog]:
        """Return how many messages wait, and how old the oldest of them is."""

    def backlogs(self, channel: Channel) -> Future[dict[str, TargetBacklog]]:
        """Return what waits for each address of a kind of channel for which something does."""

    async def prune(self, *, older_than_ms: int) -> int:
        """Delete messages given up before this moment; return how many."""
