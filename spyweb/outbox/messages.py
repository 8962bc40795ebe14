"""Builds the messages that monitors put into the outbox.  Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from spyweb.model import JobId, Webhook
from spyweb.store.outbox_protocol import Channel, NewMessage, Target


class DesktopText(msgspec.Struct, frozen=True):
    """The payload of a desktop notification."""

    title: str
    body: str
    timeout_ms: int | None = None


def webhook_message(job: JobId, webhook: Webhook, body: bytes) -> NewMessage:
    target = Target(Channel.WEBHOOK, webhook.url)
    return NewMessage(job=job, target=target, payload=body, headers=webhook.headers)


def desktop_message(job: JobId, title: str, body: str, timeout_ms: int | None) -> NewMessage:
    payload = msgspec.json.encode(DesktopText(title, body, timeout_ms))
    return NewMessage(job=job, target=Target(Channel.DESKTOP, ""), payload=payload)


def place_of(target: Target) -> str:
    """Return the host of a target, for logs: the rest of a webhook's address is often a secret."""
    try:
        return urlsplit(target.address).hostname or target.channel.value
    except ValueError:
        return target.channel.value
