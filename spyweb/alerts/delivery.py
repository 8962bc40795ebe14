"""Deliver the messages of the outbox that are for alert channels.

A message bears the name of its channel alone: the address is looked up when it is sent, so that no secret is stored,
and what waits is sent once a wrong address is put right.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from spyweb.alerts.ack_links import AckLinks
from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.sender.redaction import hide_webhook
from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.logs.secrets import Secrets
from spyweb.model import JobId, RunId
from spyweb.ops.network.request import Http
from spyweb.outbox.send import DeliveryFailure, post
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.settings.reading import nearest
from spyweb.store.model.messages import Channel, QueuedMessage, Target


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
    gone: bool = False  # it is over only since its subject is gone, or was switched off
    title: str = ""  # of what a script tells
    ack_url: str = ""  # where somebody says that they take care; never stored


class AlertFacts(Struct, frozen=True, kw_only=True):
    """A message to an alert channel: of several items it is a digest, which names no more than the first of them."""

    channel: str
    at_ms: int
    items: tuple[AlertItem, ...]
    count: int


decode_facts = msgspec.json.Decoder(AlertFacts).decode


class Attempt(NamedTuple):
    """The result of one attempt to send a message; without a failure it was taken."""

    failure: DeliveryFailure | None = None
    address_problem: str = ""  # the channel can't be used as it is
    template_problem: str = ""  # the built-in text was sent instead

    @staticmethod
    def without_address(reason: str) -> Attempt:
        return Attempt(DeliveryFailure(reason=reason), address_problem=reason)


# Is called with the channel, how it went, and when the message was added: None where it was tried out.
AttemptListener: TypeAlias = Callable[[str, Attempt, int | None], None]


class AlertSender(Protocol):
    """Sends a message by one kind of channel."""

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        """Make one attempt; `queued.delivery` is the same however often it is made."""


class AlertSenders(NamedTuple):
    """A sender of each kind."""

    webhooks: AlertSender
    services: AlertSender
    desktop: AlertSender

    def of(self, channel: AlertChannelSettings) -> AlertSender:
        if channel.desktop:
            return self.desktop
        return self.webhooks if channel.webhook else self.services


class WebhookSender:
    """Sends the facts as JSON to the webhook of a channel."""

    def __init__(self, http: Http, clock: Clock, secrets: ChannelSecrets) -> None:
        self._http = http
        self._clock = clock
        self._secrets = secrets

    async def send(self, channel: AlertChannelSettings, _facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        try:
            address, secret = self._secrets.webhook(channel), self._secrets.secret(channel)
            posted = replace(queued, target=Target(Channel.WEBHOOK, address), headers=self._secrets.headers(channel))
        except ValueError as error:
            return Attempt.without_address(str(error))
        failure = await post(self._http, self._clock, posted, secret=secret)
        values = [word for _, value in posted.headers for word in value.split()]
        return Attempt(failure and replace(failure, reason=hide_webhook(failure.reason, address, values)))


class AlertDelivery:
    """Finds the channel of each message, and has it sent."""

    def __init__(
        self, senders: AlertSenders, settings: Callable[[], AlertSettings], links: AckLinks, secrets: Secrets
    ) -> None:
        self._senders = senders
        self._links = links
        self._secrets = secrets
        self.settings = settings  # a daemon puts those there that are read again
        self.attempted: AttemptListener | None = None

    async def try_out(self, name: str, now_ms: int) -> Attempt:
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
            delivery=token_hex(16),
            created_ms=now_ms,
            next_ms=now_ms,
        )
        return await self._send(channels[name], facts, queued, None)

    async def send(self, queued: QueuedMessage) -> DeliveryFailure | None:
        """Send a message of the outbox.  One whose channel is gone fails until there is one of that name again."""
        name = queued.target.address
        channel = self.settings().channels.get(name)
        if channel is None:
            return DeliveryFailure(reason=f"no alert channel is named {name}", holds=False)
        stored = decode_facts(queued.payload)
        facts = self._with_link(self._without_secrets(stored))
        if facts != stored:
            queued = replace(queued, payload=msgspec.json.encode(facts))
        return (await self._send(channel, facts, queued, queued.created_ms)).failure

    def _without_secrets(self, facts: AlertFacts) -> AlertFacts:
        """Return the facts as they may leave this machine, by whatever kind of channel."""
        items = tuple(
            structs.replace(
                item, text=self._secrets.hide_in_prose(item.text), title=self._secrets.hide_in_text(item.title)
            )
            for item in facts.items
        )
        return structs.replace(facts, items=items)

    def _with_link(self, facts: AlertFacts) -> AlertFacts:
        """Return the facts, those of a message about one incident that goes on with its link.

        The link is made when it is sent, so that none is stored, and from the facts alone: it is the same however often
        the message is sent.
        """
        item = facts.items[0] if len(facts.items) == 1 and facts.count == 1 else None
        if item is None or item.incident is None or item.kind not in (MessageKind.OPENED, MessageKind.REMINDER):
            return facts
        link = self._links.ack_link(item.incident, facts.channel, facts.at_ms)
        return structs.replace(facts, items=(structs.replace(item, ack_url=link),)) if link else facts

    async def _send(
        self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage, added_ms: int | None
    ) -> Attempt:
        attempt = await self._senders.of(channel).send(channel, facts, queued)
        if self.attempted:
            self.attempted(channel.name, attempt, added_ms)
        return attempt
