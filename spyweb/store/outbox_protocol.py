"""The outbox of a store: messages to the world, kept until they have arrived."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from spyweb.model import JobId


class Channel(StrEnum):
    """The way that a message takes."""

    WEBHOOK = "webhook"
    DESKTOP = "desktop"


class Target(NamedTuple):
    """A receiver, which gets its messages one after the other."""

    channel: Channel
    address: str  # a webhook's URL; of the desktop empty


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be sent."""

    job: JobId
    target: Target
    payload: bytes  # JSON
    headers: tuple[tuple[str, str], ...] = ()  # of a webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage(NewMessage):
    """A message that the outbox keeps: it has not arrived yet, or is dead."""

    id: int
    delivery: str  # what the receiver knows it by, however often it is sent
    created_ms: int
    next_ms: int  # not before this moment
    attempts: int = 0  # that failed
    error: str = ""  # of the last of them
    dead_ms: int | None = None  # when it was given up


class Outbox(Protocol):
    """Messages that wait, each until it has arrived or was given up.  A dead one is kept for a while, never sent."""

    def add(self, messages: Sequence[NewMessage], *, settles: Sequence[int] = ()) -> Future[list[int]]:
        """Keep messages, all in one transaction; gives their ids.

        In the same transaction the records with these timestamps are not owed any more: they are announced by these
        messages, or were found not worth one.
        """

    def on_added(self, callback: Callable[[Sequence[Target]], None]) -> None:
        """Call this on the loop with their targets each time that messages were added, after the commit."""

    def targets(self) -> Future[list[Target]]:
        """Return the targets of messages that wait."""

    def next(self, target: Target, now_ms: int) -> Future[QueuedMessage | None]:
        """Return the message to be sent next, due or not; None when none waits.

        Messages go in the order in which they were added.  One that was put off holds up those behind it, unless
        `put_off` said not to.
        """

    def done(self, message: int) -> Future[None]:
        """Forget a message: it has arrived."""

    def put_off(self, message: int, *, next_ms: int, error: str, holds: bool) -> Future[None]:
        """Note that an attempt has failed; with `holds` the messages behind it wait for the next one."""

    def give_up(self, message: int, *, error: str) -> Future[None]: ...

    def unsent(self, job: JobId | None, limit: int) -> Future[list[QueuedMessage]]:
        """Return the messages that wait and the dead ones, newest first."""

    def retry(self, message: int | None) -> Future[list[int]]:
        """Have this message, or all, sent now; a dead one is tried as long again as a new one.  Gives their ids."""

    def count_dead(self) -> Future[int]: ...

    async def prune(self, *, older_than_ms: int) -> int:
        """Delete messages that were given up before the moment; gives how many."""
