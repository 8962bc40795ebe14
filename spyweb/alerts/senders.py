"""Send a message to an alert channel: to a webhook, by one of Apprise's services, or on the desktop."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.redaction import hide_webhook
from spyweb.alerts.sender.wire import HelperAnswer, MessageTemplates, SendText
from spyweb.alerts.texts import AlertFacts
from spyweb.alerts.writing import AlertWriter
from spyweb.clock import Clock
from spyweb.ops.network.request import Http
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import DeliveryFailure, is_final, post, retry_after_ms
from spyweb.settings.alerts import AlertChannelSettings, ChannelTemplates
from spyweb.store.model.messages import Channel, QueuedMessage, Target


class Attempt(NamedTuple):
    """The result of one attempt to send a message; without a failure it was taken."""

    failure: DeliveryFailure | None = None
    address_problem: str = ""  # the channel can't be used as it is
    template_problem: str = ""  # the built-in text was sent instead

    @staticmethod
    def without_address(reason: str) -> Attempt:
        return Attempt(DeliveryFailure(reason=reason), address_problem=reason)


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


class AppriseSender:
    """Has the process send that speaks to Apprise."""

    def __init__(self, helper: AlertHelper, secrets: ChannelSecrets, clock: Clock, writer: AlertWriter) -> None:
        self._helper = helper
        self._secrets = secrets
        self._clock = clock
        self._writer = writer

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        try:
            url = self._secrets.url(channel)
        except ValueError as error:
            return Attempt.without_address(str(error))
        text = await self._writer.compose(facts)
        ask = SendText(
            id=0,
            url=url,
            title=text.title,
            body=text.body,
            delivery=queued.delivery,
            mood=text.mood,
            templates=templates_of(channel.templates),
            facts=msgspec.Raw(text.facts),
        )
        answer = await self._helper.ask(ask)
        return Attempt(
            None if answer.ok else failure_of(answer, self._clock.now_ms()),
            address_problem=answer.reason if answer.is_address_wrong else "",
            template_problem=answer.template_problem and f"{answer.template}: {answer.template_problem}".lstrip(": "),
        )


def templates_of(templates: ChannelTemplates) -> MessageTemplates:
    return MessageTemplates(title=templates.title, body=templates.body, format=templates.format.value)


def failure_of(answer: HelperAnswer, now_ms: int) -> DeliveryFailure:
    """Return what an answer means for the outbox: only what a service itself refuses is one message's trouble."""
    is_refused = answer.status is not None and is_final(answer.status)
    retry_after = {b"retry-after": answer.retry_after.encode("ascii", "replace")}
    return DeliveryFailure(
        reason=answer.reason, holds=not is_refused, is_refused=is_refused, wait_ms=retry_after_ms(retry_after, now_ms)
    )


UNTIL_CLOSED = 0  # as the time for which a notification is shown


class DesktopSender:
    """Shows messages on the desktop of the user who runs the daemon."""

    def __init__(self, desktop: Desktop, writer: AlertWriter) -> None:
        self._desktop = desktop
        self._writer = writer

    async def send(self, _channel: AlertChannelSettings, facts: AlertFacts, _queued: QueuedMessage) -> Attempt:
        """Show a message until somebody closes it; where there is no desktop, nobody would know that it was not."""
        if missing := self._desktop.find_missing():
            return Attempt.without_address(missing)
        text = await self._writer.compose(facts)
        reason = await self._desktop.show(text.title, text.body, UNTIL_CLOSED)
        return Attempt(DeliveryFailure(reason=reason) if reason else None)


class AlertSender(Protocol):
    """Sends a message by one kind of channel."""

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        """Make one attempt; `queued.delivery` is the same however often it is made."""


class Senders(NamedTuple):
    """A sender of each kind."""

    webhooks: AlertSender
    services: AlertSender
    desktop: AlertSender

    def of(self, channel: AlertChannelSettings) -> AlertSender:
        if channel.desktop:
            return self.desktop
        return self.webhooks if channel.webhook else self.services
