"""Builds the messages that monitors put into the outbox.  Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import msgspec

from spyweb.model import JobId, Webhook
from spyweb.store.model.messages import Channel, NewMessage, Target

HIDDEN = "***"
SHORTEST_SECRET = 5  # characters: a shorter part is found in ordinary words


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


def hide_address(text: str, address: str) -> str:
    """Return a text without the parts of an address that may be secrets: what is behind its host, and a login."""
    scheme_less = address.partition("://")[2]
    login, _, rest = scheme_less.rpartition("@") if "@" in scheme_less.partition("/")[0] else ("", "", scheme_less)
    parts = {address, scheme_less, login, *re.split(r"[/?&=#]", rest)[1:], *login.split(":")}
    parts |= {unquote(part) for part in parts}
    for part in sorted((part for part in parts if len(part) >= SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(part, HIDDEN)
    return text


def place_of(target: Target) -> str:
    """Return the host of a target, or the name of an alert channel, for logs.

    The rest of a webhook's address is often a secret.
    """
    if target.channel is Channel.ALERT:
        return target.address
    try:
        return urlsplit(target.address).hostname or target.channel.value
    except ValueError:
        return target.channel.value
