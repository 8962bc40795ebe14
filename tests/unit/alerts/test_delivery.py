"""A message finds its channel when it is sent, and tells nobody its address."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spyweb.alerts.delivery import AlertDelivery, AlertFacts, WebhookSender, decode_facts
from spyweb.errors import FetchError, Refused
from spyweb.model import JobId
from spyweb.outbox.send import DeliveryFailure
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.store.outbox_protocol import Channel, QueuedMessage, Target
from tests.fakes.clock import FakeClock
from tests.fakes.ops import FakeHttp

ITEM = {
    "incident": 42,
    "kind": "opened",
    "subject": "job:backup",
    "level": "warning",
    "reason": "failing",
    "text": "no space",
    "run": 7,
    "since_ms": 1,
    "opened_ms": 2,
    "closed_ms": None,
    "failures": 3,
    "flapping": False,
}
PAYLOAD = json.dumps({"channel": "ops", "at_ms": 3, "items": [ITEM], "count": 1}).encode()
QUEUED = QueuedMessage(
    job=JobId("backup"),
    target=Target(Channel.ALERT, "ops"),
    payload=PAYLOAD,
    id=1,
    delivery="d1",
    created_ms=0,
    next_ms=0,
)
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/secret", headers=(("X-Team", "web"),))


class FakeSender:
    def __init__(self) -> None:
        self.sent: list[tuple[str, int | None, str]] = []

    async def send(
        self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage
    ) -> DeliveryFailure | None:
        self.sent.append((channel.name, facts.items[0].incident, queued.delivery))
        return None


async def test_a_message_goes_to_the_channel_of_that_name() -> None:
    sender = FakeSender()
    assert await AlertDelivery(sender, FakeSender(), lambda: AlertSettings(channels={"ops": OPS})).send(QUEUED) is None
    assert sender.sent == [("ops", 42, "d1")]


async def test_a_name_that_is_gone_fails_until_it_is_there_again() -> None:
    sender, settings = FakeSender(), AlertSettings()
    delivery = AlertDelivery(sender, FakeSender(), lambda: settings)
    failure = await delivery.send(QUEUED)
    assert failure == DeliveryFailure(reason="no alert channel is named ops", holds=False)
    settings = AlertSettings(channels={"ops": OPS})
    assert await delivery.send(QUEUED) is None


def test_facts_are_read_as_they_were_written() -> None:
    facts = decode_facts(PAYLOAD)
    assert (facts.channel, facts.count, facts.items[0].kind, facts.items[0].text) == ("ops", 1, "opened", "no space")


async def test_a_webhook_gets_the_facts_and_the_id_of_the_delivery() -> None:
    http = FakeHttp()
    assert await WebhookSender(http, FakeClock(), {}).send(OPS, decode_facts(PAYLOAD), QUEUED) is None
    (fetch,) = http.asked
    assert (str(fetch.url), fetch.method, fetch.body) == (OPS.webhook, "POST", PAYLOAD)
    headers = dict(fetch.headers)
    assert (headers["X-SpyWeb-Delivery"], headers["X-Team"]) == ("d1", "web")


async def test_a_reason_does_not_tell_the_address() -> None:
    http = FakeHttp(answers={OPS.webhook: FetchError("connect", f"{OPS.webhook}: refused")})
    failure = await WebhookSender(http, FakeClock(), {}).send(OPS, decode_facts(PAYLOAD), QUEUED)
    assert failure is not None
    assert "its address: refused" in failure.reason


def test_what_is_shown_of_a_channel_has_no_address() -> None:
    assert "secret" not in repr(OPS)


async def test_a_channel_with_the_address_of_a_service_is_sent_to_by_that() -> None:
    webhooks, services = FakeSender(), FakeSender()
    phone = AlertChannelSettings(name="ops", url="ntfy://topic")
    assert await AlertDelivery(webhooks, services, lambda: AlertSettings(channels={"ops": phone})).send(QUEUED) is None
    assert (webhooks.sent, services.sent) == ([], [("ops", 42, "d1")])


async def test_a_webhook_with_a_secret_is_signed_and_waits_for_a_missing_one() -> None:
    http, channel = FakeHttp(), replace(OPS, secret="env:HOOK")
    failure = await WebhookSender(http, FakeClock(), {}).send(channel, decode_facts(PAYLOAD), QUEUED)
    assert failure == DeliveryFailure(reason="the secret env:HOOK is not there")
    assert http.asked == []
    assert await WebhookSender(http, FakeClock(), {"HOOK": "k"}).send(channel, decode_facts(PAYLOAD), QUEUED) is None
    assert dict(http.asked[0].headers)["X-SpyWeb-Signature"].startswith("t=")


async def test_how_an_attempt_went_is_told_to_whoever_watches() -> None:
    told: list[tuple[str, str | None, int]] = []
    http = FakeHttp(answers={OPS.webhook: FetchError("connect", "refused")})
    webhooks = WebhookSender(http, FakeClock(), {})
    delivery = AlertDelivery(webhooks, FakeSender(), lambda: AlertSettings(channels={"ops": OPS}))
    delivery.attempted = lambda *attempt: told.append(attempt)
    await delivery.send(QUEUED)
    http.answers = {}
    await delivery.send(QUEUED)
    assert told == [("ops", "connect: refused", 0), ("ops", None, 0)]


async def test_a_channel_is_tried_out_past_the_outbox_and_nobody_counts_that() -> None:
    http, told = FakeHttp(), list[object]()
    delivery = AlertDelivery(
        WebhookSender(http, FakeClock(), {}), FakeSender(), lambda: AlertSettings(channels={"ops": OPS})
    )
    delivery.attempted = lambda *attempt: told.append(attempt)
    assert await delivery.try_out("ops", 5) is None
    assert json.loads(http.asked[0].body or b"") == {"channel": "ops", "at_ms": 5, "items": [], "count": 0}
    assert told == []
    with pytest.raises(Refused, match='there is no channel opps; did you mean "ops"'):
        await delivery.try_out("opps", 5)
