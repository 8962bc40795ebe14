"""Deliver the messages of the outbox that are for alert channels.

A message bears the name of its channel alone: the address is looked up when it is sent, so that no secret is stored,
and what waits is sent once a wrong address is put right.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import msgspec
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.model import JobId, RunId
from spyweb.ops.network.request import Http
from spyweb.outbox.send import DeliveryFailure, post
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.settings.reading import nearest
from spyweb.settings.secret_places import read_secret
from spyweb.store.outbox_protocol import Channel, QueuedMessage, Target


class AlertItem(Struct, frozen=True, kw_only=True):
    """Describes one incident to whoever is told."""

    incident: int | None  # None: it is what a script tells, of no incident
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
    title: str = ""  # of what a script tells


class AlertFacts(Struct, frozen=True, kw_only=True):
    """A message to an alert channel: of several items it is a digest, which names no more than the first of them."""

    channel: str
    at_ms: int
    items: tuple[AlertItem, ...]
    count: int


decode_facts = msgspec.json.Decoder(AlertFacts).decode


class AlertSender(Protocol):
    """Sends a message by one kind of channel."""

    async def send(
        self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage
    ) -> DeliveryFailure | None:
        """Make one attempt; `queued.delivery` is the same however often it is made."""


class WebhookSender:
    """Sends the facts as JSON to the webhook of a channel."""

    def __init__(self, http: Http, clock: Clock, environ: Mapping[str, str]) -> None:
        self._http = http
        self._clock = clock
        self._environ = environ

    async def send(
        self, channel: AlertChannelSettings, _facts: AlertFacts, queued: QueuedMessage
    ) -> DeliveryFailure | None:
        secret = read_secret(channel.secret, self._environ) if channel.secret else b""
        if channel.secret and not secret:
            return DeliveryFailure(reason=f"the secret {channel.secret} is not there")
        posted = replace(queued, target=Target(Channel.WEBHOOK, channel.webhook), headers=channel.headers)
        failure = await post(self._http, self._clock, posted, secret=secret)
        return failure and replace(failure, reason=failure.reason.replace(channel.webhook, "its address"))


class AlertDelivery:
    """Finds the channel of each message, and has it sent."""

    def __init__(self, webhooks: AlertSender, services: AlertSender, settings: Callable[[], AlertSettings]) -> None:
        """Send by these: `webhooks` where a channel has one, else `services`."""
        self._webhooks = webhooks
        self._services = services
        self.settings = settings  # a daemon puts those there that are read again
        self.attempted: Callable[[str, str | None, int], None] | None = None  # channel, why not, when it was added

    async def try_out(self, name: str, now_ms: int) -> DeliveryFailure | None:
        """Send a message that tells of nothing, at once and once.  Raises Refused where there is no such channel."""
        channels = self.settings().channels
        if name not in channels:
            raise Refused(f"there is no channel {name}{nearest(name, channels)}")
        facts = AlertFacts(channel=name, at_ms=now_ms, items=(), count=0)
        queued = QueuedMessage(
            job=JobId(""),
            target=Target(Channel.ALERT, name),
            payload=msgspec.json.encode(facts),
            id=0,
            delivery=secrets.token_hex(16),
            created_ms=now_ms,
            next_ms=now_ms,
        )
        channel = channels[name]
        sender = self._webhooks if channel.webhook else self._services
        return await sender.send(channel, facts, queued)

    async def send(self, queued: QueuedMessage) -> DeliveryFailure | None:
        """Send a message of the outbox.  One whose channel is gone fails until there is one of that name again."""
        name = queued.target.address
        channel = self.settings().channels.get(name)
        if channel is None:
            return DeliveryFailure(reason=f"no alert channel is named {name}", holds=False)
        sender = self._webhooks if channel.webhook else self._services
        failure = await sender.send(channel, decode_facts(queued.payload), queued)
        if self.attempted:
            self.attempted(name, failure.reason if failure else None, queued.created_ms)
        return failure
