"""A message finds its channel when it is sent, and tells nobody its address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec import structs

from spyweb.alerts.ack_links import AckLinks
from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.delivery import AlertDelivery
from spyweb.alerts.senders import AlertSender, Attempt, Senders, WebhookSender
from spyweb.alerts.texts import AlertFacts, decode_facts
from spyweb.errors import FetchError, Refused
from spyweb.logs.secrets import Secrets
from spyweb.outbox.send import DeliveryFailure
from spyweb.outbox.sender import OutboxSender
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.settings.units import DAY_MS
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from tests.fakes.alerts import ITEM, PAYLOAD, QUEUED
from tests.fakes.clock import FakeClock
from tests.fakes.findings import message
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import FakeHttp, make_response

SECRETS = Secrets(["hunter22"])
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/secret", headers=(("X-Team", "web"),))


class FakeSender:
    def __init__(self) -> None:
        self.sent: list[tuple[str, int | None, str]] = []

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        self.sent.append((channel.name, facts.items[0].incident, queued.delivery))
        return Attempt()


def delivery_by(
    channels: Mapping[str, AlertChannelSettings] = MappingProxyType({"ops": OPS}),
    *,
    webhooks: AlertSender | None = None,
    services: AlertSender | None = None,
    desktop: AlertSender | None = None,
) -> AlertDelivery:
    senders = Senders(webhooks or FakeSender(), services or FakeSender(), desktop or FakeSender())
    settings = AlertSettings(channels=channels)
    return AlertDelivery(senders, lambda: settings, AckLinks("", lambda: settings), SECRETS)


def by_webhook(http: FakeHttp, environ: Mapping[str, str] = MappingProxyType({})) -> WebhookSender:
    return WebhookSender(http, FakeClock(), ChannelSecrets(Path(), environ))


async def test_a_name_that_is_gone_fails_until_it_is_there_again() -> None:
    delivery = delivery_by({})
    failure = await delivery.send(QUEUED)
    assert failure == DeliveryFailure(reason="no alert channel is named ops", holds=False)
    delivery.settings = lambda: AlertSettings(channels={"ops": OPS})
    assert await delivery.send(QUEUED) is None


async def test_a_webhook_gets_the_facts_and_the_id_of_the_delivery() -> None:
    http = FakeHttp()
    assert await by_webhook(http).send(OPS, decode_facts(PAYLOAD), QUEUED) == Attempt()
    (fetch,) = http.asked
    assert (str(fetch.url), fetch.method, fetch.body) == (OPS.webhook, "POST", PAYLOAD)
    headers = dict(fetch.headers)
    assert (headers["X-SpyWeb-Delivery"], headers["X-Team"]) == ("d1", "web")


async def test_a_reason_does_not_tell_the_address() -> None:
    http = FakeHttp(answers={OPS.webhook: FetchError("connect", f"{OPS.webhook}: refused")})
    failure = (await by_webhook(http).send(OPS, decode_facts(PAYLOAD), QUEUED)).failure
    assert failure is not None
    assert "its address: refused" in failure.reason


def test_what_is_shown_of_a_channel_has_no_address() -> None:
    assert "example.org" not in repr(OPS)


@pytest.mark.parametrize(
    ("channel", "by"),
    [
        (OPS, "webhooks"),
        (AlertChannelSettings(name="ops", url="ntfy://topic"), "services"),
        (AlertChannelSettings(name="ops", url_file="phone"), "services"),
        (AlertChannelSettings(name="ops", desktop=True), "desktop"),
    ],
)
async def test_a_channel_is_sent_to_by_what_its_address_is_for(channel: AlertChannelSettings, by: str) -> None:
    senders = {kind: FakeSender() for kind in ("webhooks", "services", "desktop")}
    assert await delivery_by({"ops": channel}, **senders).send(QUEUED) is None
    assert {kind: sender.sent for kind, sender in senders.items() if sender.sent} == {by: [("ops", 42, "d1")]}


async def test_a_webhook_with_a_secret_is_signed_and_waits_for_a_missing_one() -> None:
    http, channel = FakeHttp(), replace(OPS, secret="env:HOOK")
    attempt = await by_webhook(http).send(channel, decode_facts(PAYLOAD), QUEUED)
    assert attempt == Attempt.without_address("the secret env:HOOK is not there")
    assert attempt.failure == DeliveryFailure(reason="the secret env:HOOK is not there")
    assert http.asked == []
    assert await by_webhook(http, {"HOOK": "k"}).send(channel, decode_facts(PAYLOAD), QUEUED) == Attempt()
    assert dict(http.asked[0].headers)["X-SpyWeb-Signature"].startswith("t=")


async def test_a_header_may_hold_a_variable_which_no_reason_repeats() -> None:
    channel = replace(OPS, headers=(("Authorization", "Bearer ${TOKEN}"),))
    answer = make_response(status=401, body=b"no such token: t0ken123")
    http = FakeHttp(answers={OPS.webhook: answer})
    attempt = await by_webhook(http, {"TOKEN": "t0ken123"}).send(channel, decode_facts(PAYLOAD), QUEUED)
    assert dict(http.asked[0].headers)["Authorization"] == "Bearer t0ken123"
    assert attempt.failure
    assert attempt.failure.reason == "answered 401: no such token: ***"


async def test_how_an_attempt_went_is_told_to_whoever_watches() -> None:
    told: list[tuple[str, Attempt, int | None]] = []
    http = FakeHttp(answers={OPS.webhook: FetchError("connect", "refused")})
    delivery = delivery_by(webhooks=by_webhook(http))
    delivery.attempted = lambda *attempt: told.append(attempt)
    await delivery.send(QUEUED)
    http.answers = {}
    await delivery.send(QUEUED)
    assert told == [("ops", Attempt(DeliveryFailure(reason="connect: refused")), 0), ("ops", Attempt(), 0)]


async def test_a_channel_is_tried_out_past_the_outbox_which_counts_as_no_message() -> None:
    http, told = FakeHttp(), list[object]()
    delivery = delivery_by(webhooks=by_webhook(http))
    delivery.attempted = lambda *attempt: told.append(attempt)
    assert await delivery.try_out("ops", 5) == Attempt()
    assert json.loads(http.asked[0].body or b"") == {"channel": "ops", "at_ms": 5, "items": [], "count": 0}
    assert told == [("ops", Attempt(), None)]
    with pytest.raises(Refused, match='there is no channel opps; did you mean "ops"'):
        await delivery.try_out("opps", 5)


async def test_no_secret_leaves_with_a_reason_or_a_title_by_a_webhook_either() -> None:
    http = FakeHttp()
    told = {"text": "login hunter22: password=abc", "title": "of hunter22"}
    await delivery_by(webhooks=by_webhook(http)).send(queued(**told))
    (item,) = json.loads(http.asked[0].body or b"")["items"]
    assert (item["text"], item["title"]) == ("login [hidden]: password=[hidden]", "of [hidden]")


async def make_links() -> AckLinks:
    links = AckLinks("https://spyweb.example.org", lambda: AlertSettings(channels={"ops": OPS}))
    await links.load(MemoryStore(FakeClock()).keys)
    return links


def linked(http: FakeHttp, links: AckLinks) -> AlertDelivery:
    senders = Senders(by_webhook(http), FakeSender(), FakeSender())
    return AlertDelivery(senders, lambda: AlertSettings(channels={"ops": OPS}), links, SECRETS)


def queued(**changes: object) -> QueuedMessage:
    return queued_facts({"channel": "ops", "at_ms": 3, "items": [{**ITEM, **changes}], "count": 1})


def queued_facts(facts: dict[str, object]) -> QueuedMessage:
    return structs.replace(QUEUED, payload=json.dumps(facts).encode())


@pytest.mark.parametrize("kind", ["opened", "reminder"])
async def test_of_what_goes_on_a_link_is_sent_along_the_same_at_each_attempt(kind: str) -> None:
    http, links = FakeHttp(), await make_links()
    delivery = linked(http, links)
    for _ in range(2):
        await delivery.send(queued(kind=kind))
    first, second = (json.loads(fetch.body or b"") for fetch in http.asked)
    assert first == second
    (item,) = first["items"]
    assert item == {**ITEM, "kind": kind, "title": "", "ack_url": links.ack_link(42, "ops", 3)}


@pytest.mark.parametrize(
    "message",
    [
        queued(kind="closed", closed_ms=9),
        queued(kind="was", closed_ms=9),
        queued(kind="message", incident=None),
        queued_facts({"channel": "ops", "at_ms": 3, "items": [ITEM, ITEM], "count": 2}),
        queued_facts({"channel": "ops", "at_ms": 3, "items": [ITEM], "count": 9}),
    ],
)
async def test_of_what_is_over_and_of_several_no_link_is_sent(message: QueuedMessage) -> None:
    http = FakeHttp()
    await linked(http, await make_links()).send(message)
    assert [fetch.body for fetch in http.asked] == [message.payload]


@asynccontextmanager
async def delivered_by(delivery: AlertDelivery) -> AsyncIterator[tuple[MemoryStore, FakeClock]]:
    """Send whatever is added to an outbox by these channels, in virtual time."""
    clock = FakeClock()
    store = MemoryStore(clock)
    sender = OutboxSender(outbox=store.outbox, send=delivery.send, clock=clock, random=lambda: 0.999999)
    work: Coroutine[object, object, None] = sender.deliver()
    task = asyncio.create_task(work)
    await clock.turn()
    try:
        yield store, clock
    finally:
        task.cancel()
        await asyncio.wait({task})


def to(channel: str) -> NewMessage:
    return message(PAYLOAD.decode(), Target(Channel.ALERT, channel))


async def test_a_channel_that_is_renamed_with_messages_waiting_holds_up_no_other_and_they_are_given_up() -> None:
    sender = FakeSender()
    boss = replace(OPS, name="boss")
    async with delivered_by(delivery_by({"chief": OPS, "boss": boss}, webhooks=sender)) as (store, clock):
        await store.outbox.add([to("ops"), to("ops"), to("boss")])
        await clock.turn(1)
        assert [name for name, _, _ in sender.sent] == ["boss"]
        await clock.turn(DAY_MS / 1000 - 2)
        waiting = await store.outbox.unsent(None, 10)
        assert [(each.dead_ms, each.error) for each in waiting] == [(None, "no alert channel is named ops")] * 2
        await clock.turn(5 * 60)
        given_up = await store.outbox.unsent(None, 10)
        assert [(each.dead_ms is not None, each.error) for each in given_up] == [
            (True, "no alert channel is named ops")
        ] * 2
        assert [name for name, _, _ in sender.sent] == ["boss"]
