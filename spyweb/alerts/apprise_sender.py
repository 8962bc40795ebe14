"""Sends the messages of alert channels whose address is one of Apprise's."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.delivery import AlertFacts, AlertItem, Attempt
from spyweb.alerts.sender.wire import HelperAnswer, HelperRequest, MessageTemplates, SendText
from spyweb.alerts.texts import body_of, mood_of, title_of
from spyweb.clock import Clock
from spyweb.outbox.send import DeliveryFailure, is_final, retry_after_ms
from spyweb.settings.alerts import AlertChannelSettings, ChannelTemplates
from spyweb.store.outbox_protocol import QueuedMessage

TEMPLATE_FACTS = (*AlertFacts.__struct_fields__, *AlertItem.__struct_fields__)  # the names that a template may use


class AlertAsk(Protocol):
    """The process that speaks to Apprise, as the daemon asks it."""

    async def ask(self, request: HelperRequest) -> HelperAnswer: ...


class AppriseSender:
    def __init__(self, helper: AlertAsk, secrets: ChannelSecrets, clock: Clock, timezone: str) -> None:
        self._helper = helper
        self._secrets = secrets
        self._clock = clock
        self._timezone = timezone

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        try:
            url = self._secrets.url(channel)
        except ValueError as error:
            return Attempt.without_address(str(error))
        title = title_of(facts)
        ask = SendText(
            id=0,
            url=url,
            title=title,
            body=body_of(facts, self._timezone),
            delivery=queued.delivery,
            mood=mood_of(facts),
            templates=templates_of(channel.templates),
            facts=msgspec.Raw(template_facts(queued.payload, title)),
        )
        answer = await self._helper.ask(ask)
        return Attempt(
            None if answer.ok else failure_of(answer, self._clock.now_ms()),
            address_problem=answer.reason if answer.is_address_wrong else "",
            template_problem=answer.template_problem and f"{answer.template}: {answer.template_problem}".lstrip(": "),
        )


def templates_of(templates: ChannelTemplates) -> MessageTemplates:
    return MessageTemplates(title=templates.title, body=templates.body, format=templates.format.value)


def template_facts(payload: bytes, title: str) -> bytes:
    """Return the facts as a template names them: of a message about one incident, those of that as well."""
    facts: dict[str, Any] = msgspec.json.decode(payload)
    items = facts["items"]
    alone = items[0] if len(items) == 1 and facts["count"] == 1 else {"kind": "digest" if items else "test"}
    return msgspec.json.encode({**alone, **facts, "title": title})


def failure_of(answer: HelperAnswer, now_ms: int) -> DeliveryFailure:
    """Return what an answer means for the outbox: only what a service itself refuses is one message's trouble."""
    is_refused = answer.status is not None and is_final(answer.status)
    retry_after = {b"retry-after": answer.retry_after.encode("ascii", "replace")}
    return DeliveryFailure(
        reason=answer.reason, holds=not is_refused, is_refused=is_refused, wait_ms=retry_after_ms(retry_after, now_ms)
    )
