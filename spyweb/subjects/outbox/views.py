"""Undelivered messages, as pages, commands and the API show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spyweb.model import JobId
from spyweb.views.runs import copied

if TYPE_CHECKING:
    from spyweb.outbox.sender import OutboxSender
    from spyweb.store.model.messages import QueuedMessage


class MessageView(Struct, frozen=True, kw_only=True):
    id: int
    job_id: JobId
    channel: str
    to: str  # a webhook's host only: the rest of its address may be secret
    state: str  # "waiting", or "dead": it was given up
    created_ms: int
    next_ms: int | None  # when it is sent next
    attempts: int  # failed ones
    error: str  # of the last of them


class MessagesRetried(Struct, frozen=True, kw_only=True):
    """The messages that are sent again, by their ids."""

    retried: list[int]


async def messages_of(
    outbox: OutboxSender, job: JobId | None, *, limit: int, before: int | None = None
) -> list[MessageView]:
    """Return the undelivered messages with ids below `before`, newest first."""
    return [view_message(message) for message in await outbox.unsent(job, limit, before=before)]


def view_message(message: QueuedMessage) -> MessageView:
    from spyweb.outbox.send import place_of  # a command that asks a daemon does without the store

    is_dead = message.dead_ms is not None
    return copied(
        MessageView,
        message,
        job_id=message.job,
        channel=message.target.channel.value,
        to=place_of(message.target),
        state="dead" if is_dead else "waiting",
        next_ms=None if is_dead else message.next_ms,
    )
