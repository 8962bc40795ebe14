"""Deliver the messages of the outbox to notification channels.

A message names only its channel: the address is looked up when the message is sent, so that no secret is stored, and
waiting messages are sent once a wrong address is fixed.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex
from typing import NamedTuple, TypeAlias
from urllib.parse import urlencode

import msgspec
from msgspec import structs
from msgspec.structs import replace

from spyweb.alerts.channels import AttemptTallies, ChannelSecrets, shown
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.wire import HelperAnswer, MessageTemplates, SendText
from spyweb.alerts.texts import AlertFacts, AlertWriter, decode_facts
from spyweb.clock import Clock
from spyweb.errors import Absent
from spyweb.incidents.telling import MessageKind
from spyweb.logs.secrets import Secrets
from spyweb.model import JobId
from spyweb.ops.network.request import Http
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.redaction import hide_webhook
from spyweb.outbox.send import DeliveryFailure, is_final, post, retry_after_ms
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings, ChannelTemplates
from spyweb.settings.reading import nearest
from spyweb.settings.units import DAY_MS, SECOND_MS
from spyweb.store.model.messages import Channel, QueuedMessage, Target
from spyweb.store.sqlite.keys import AccessKeys

LIFE_MS = 7 * DAY_MS  # of a link
SIGNED_BYTES = 16  # of its signature: nobody guesses 128 bits
_MOMENT = re.compile(r"[0-9]{1,12}")  # seconds


class Attempt(NamedTuple):
    """The result of one attempt to send a message; without a failure it was delivered."""

    failure: DeliveryFailure | None = None
    address_problem: str = ""  # the channel's address is invalid
    template_problem: str = ""  # the built-in text was sent instead

    @staticmethod
    def without_address(reason: str) -> Attempt:
        return Attempt(DeliveryFailure(reason=reason), address_problem=reason)


# Is called with the channel, the result, and when the message was added: None for a test notification.
AttemptListener: TypeAlias = Callable[[str, Attempt, int | None], None]


@dataclass(kw_only=True, eq=False)
class ChannelSender:
    """Makes one attempt to send a message: to a webhook, by one of Apprise's services, or on the desktop."""

    http: Http
    helper: AlertHelper
    desktop: Desktop
    writer: AlertWriter
    secrets: ChannelSecrets
    clock: Clock

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        """Make the attempt; `queued.delivery` is the same for each attempt of a message."""
        if channel.desktop:
            return await self._show(facts)
        if not channel.webhook:
            return await self._ask(channel, facts, queued)
        try:
            address, secret = self.secrets.webhook(channel), self.secrets.secret(channel)
            posted = replace(queued, target=Target(Channel.WEBHOOK, address), headers=self.secrets.headers(channel))
        except ValueError as error:
            return Attempt.without_address(str(error))
        failure = await post(self.http, self.clock, posted, secret=secret)
        values = [word for _, value in posted.headers for word in value.split()]
        return Attempt(failure and replace(failure, reason=hide_webhook(failure.reason, address, values)))

    async def _ask(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        """Send a message by the process that uses Apprise."""
        try:
            url = self.secrets.url(channel)
        except ValueError as error:
            return Attempt.without_address(str(error))
        text = await self.writer.compose(facts)
        ask = SendText(
            id=0,
            url=url,
            title=text.title,
            body=text.body,
            delivery=queued.delivery,
            link=text.link,
            host=shown(channel).host,
            mood=text.mood,
            templates=templates_of(channel.templates),
            facts=msgspec.Raw(text.facts),
        )
        answer = await self.helper.ask(ask)
        return Attempt(
            None if answer.ok else failure_of(answer, self.clock.now_ms()),
            address_problem=answer.reason if answer.is_address_wrong else "",
            template_problem=answer.template_problem and f"{answer.template}: {answer.template_problem}".lstrip(": "),
        )

    async def _show(self, facts: AlertFacts) -> Attempt:
        """Show a message on the desktop until the user closes it; without a desktop the attempt fails."""
        if missing := self.desktop.find_missing():
            return Attempt.without_address(missing)
        text = await self.writer.compose(facts)
        reason = await self.desktop.show(text.title, text.body, 0)
        return Attempt(DeliveryFailure(reason=reason) if reason else None)


def templates_of(templates: ChannelTemplates) -> MessageTemplates:
    return MessageTemplates(title=templates.title, body=templates.body, format=templates.format.value)


def failure_of(answer: HelperAnswer, now_ms: int) -> DeliveryFailure:
    """Return the failure for the outbox: only a refusal by the service itself concerns this message alone."""
    is_refused = answer.status is not None and is_final(answer.status)
    retry_after = {b"retry-after": answer.retry_after.encode("ascii", "replace")}
    return DeliveryFailure(
        reason=answer.reason, holds=not is_refused, is_refused=is_refused, wait_ms=retry_after_ms(retry_after, now_ms)
    )


class AckLinks:
    """Makes and checks links by which people acknowledge an incident without a key.

    A link carries a signature and its expiry.  Its bearer sees that one incident, and acknowledges it in the name of
    the message's channel; links of a channel that was removed from the settings are invalid.  They begin with
    `public_url`; without one there are no links.
    """

    def __init__(self, public_url: str, settings: Callable[[], AlertSettings]) -> None:
        self._public_url = public_url
        self._key = b""
        self.settings = settings  # a daemon puts those there that are read again

    async def load(self, keys: AccessKeys) -> None:
        """Read the secret from the store, where links are wanted; before, no link is made and none is valid."""
        if self._public_url:
            self._key = await keys.link_key()

    def ack_link(self, incident: int, channel: str, now_ms: int) -> str:
        """Return a link for a message to this channel; "" where links are off."""
        if not self._key:
            return ""
        expires = str((now_ms + LIFE_MS) // SECOND_MS)
        query = urlencode({"c": channel, "e": expires, "s": self._sign(incident, channel, expires)})
        return f"{self._public_url}/a/{incident}?{query}"

    def is_valid(self, incident: int, channel: str, expires: str, signature: str, now_ms: int) -> bool:
        """Return whether a link with these parts was made here and has not expired."""
        if not (self._key and _MOMENT.fullmatch(expires)):
            return False
        expected = self._sign(incident, channel, expires)
        is_signed = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
        return is_signed and now_ms < int(expires) * SECOND_MS and channel in self.settings().channels

    def _sign(self, incident: int, channel: str, expires: str) -> str:
        signed = f"ack|{incident}|{channel}|{expires}".encode("utf-8", "surrogateescape")
        digest = hmac.digest(self._key, signed, sha256)[:SIGNED_BYTES]
        return urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass(eq=False)
class AlertDelivery:
    """Finds the channel of each message, and sends it."""

    sender: ChannelSender
    settings: Callable[[], AlertSettings]
    links: AckLinks
    secrets: Secrets
    tallies: AttemptTallies
    instance: str = ""  # the name of this machine, in each message
    name_of: Callable[[str], str] = lambda subject: ""  # the name of a subject's job
    attempted: AttemptListener | None = None

    async def try_out(self, name: str, now_ms: int) -> Attempt:
        """Send a test notification at once, without retries.  Raises Absent where there is no such channel."""
        channels = self.settings().channels
        if name not in channels:
            raise Absent(f"there is no channel {name}{nearest(name, channels)}")
        facts = AlertFacts(channel=name, at_ms=now_ms, items=(), count=0, instance=self.instance)
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
        """Send a message of the outbox.  It fails while its channel is missing from the settings."""
        name = queued.target.address
        channel = self.settings().channels.get(name)
        if channel is None:
            return DeliveryFailure(reason=f"no notification channel is named {name}", holds=False)
        facts = self._as_sent(decode_facts(queued.payload))
        queued = replace(queued, payload=msgspec.json.encode(facts))
        return (await self._send(channel, facts, queued, queued.created_ms)).failure

    def _as_sent(self, facts: AlertFacts) -> AlertFacts:
        """Return the facts as they may leave this machine by any channel: without secrets.

        A message about one open incident gets its acknowledge link.  The link is made when the message is sent, so
        that none is stored, and from the facts alone: each attempt sends the same link.
        """
        items = tuple(
            structs.replace(
                item,
                text=self.secrets.hide_in_prose(item.text),
                title=self.secrets.hide_in_text(item.title),
                link=self.secrets.hide_in_text(item.link),
                page_url=self.secrets.hide_in_text(item.page_url),
                name=self.name_of(item.subject),
            )
            for item in facts.items
        )
        facts = structs.replace(facts, items=items, instance=self.instance)
        item = facts.alone
        if item is None or item.incident is None or item.kind not in (MessageKind.OPENED, MessageKind.REMINDER):
            return facts
        link = self.links.ack_link(item.incident, facts.channel, facts.at_ms)
        return structs.replace(facts, items=(structs.replace(item, ack_url=link),)) if link else facts

    async def _send(
        self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage, added_ms: int | None
    ) -> Attempt:
        attempt = await self.sender.send(channel, facts, queued)
        if added_ms is not None:  # else a test notification
            self.tallies.attempted(channel.name, attempt.failure.reason if attempt.failure else None)
        if self.attempted:
            self.attempted(channel.name, attempt, added_ms)
        return attempt
