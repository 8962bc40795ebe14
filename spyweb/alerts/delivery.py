"""Deliver the messages of the outbox that are for alert channels.

A message bears the name of its channel alone: the address is looked up when it is sent, so that no secret is stored,
and what waits is sent once a wrong address is put right.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import TypeAlias

import msgspec
from msgspec import structs
from msgspec.structs import replace

from spyweb.alerts.ack_links import AckLinks
from spyweb.alerts.senders import Attempt, Senders
from spyweb.alerts.texts import AlertFacts, decode_facts
from spyweb.errors import Refused
from spyweb.incidents.telling import MessageKind
from spyweb.logs.secrets import Secrets
from spyweb.model import JobId
from spyweb.outbox.send import DeliveryFailure
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.settings.reading import nearest
from spyweb.store.model.messages import Channel, QueuedMessage, Target

# Is called with the channel, how it went, and when the message was added: None where it was tried out.
AttemptListener: TypeAlias = Callable[[str, Attempt, int | None], None]


class AlertDelivery:
    """Finds the channel of each message, and has it sent."""

    def __init__(
        self, senders: Senders, settings: Callable[[], AlertSettings], links: AckLinks, secrets: Secrets
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
        item = facts.alone
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
