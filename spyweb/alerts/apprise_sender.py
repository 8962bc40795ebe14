"""Sends the messages of alert channels whose address is one of Apprise's."""

from __future__ import annotations

from typing import Protocol

import msgspec

from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.delivery import AlertFacts, Attempt
from spyweb.alerts.sender.wire import HelperAnswer, HelperRequest, MessageTemplates, SendText
from spyweb.alerts.writing import WritesAlerts
from spyweb.clock import Clock
from spyweb.outbox.send import DeliveryFailure, is_final, retry_after_ms
from spyweb.settings.alerts import AlertChannelSettings, ChannelTemplates
from spyweb.store.model.messages import QueuedMessage


class AlertAsk(Protocol):
    """The process that speaks to Apprise, as the daemon asks it."""

    async def ask(self, request: HelperRequest) -> HelperAnswer: ...


class AppriseSender:
    def __init__(self, helper: AlertAsk, secrets: ChannelSecrets, clock: Clock, writer: WritesAlerts) -> None:
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
