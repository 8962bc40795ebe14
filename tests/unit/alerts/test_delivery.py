"""A message finds its channel when it is sent, and tells nobody its address."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from msgspec import structs

from spyweb.alerts.channels import AttemptTallies, ChannelSecrets
from spyweb.alerts.delivery import LIFE_MS, AckLinks, AlertDelivery, Attempt, ChannelSender, failure_of
from spyweb.alerts.sender.wire import HelperAnswer, MessageTemplates, SendText
from spyweb.alerts.texts import AlertFacts, decode_facts
from spyweb.errors import FetchError, Refused
from spyweb.logs.secrets import Secrets
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import DeliveryFailure
from spyweb.outbox.sender import OutboxSender
from spyweb.runs.live import LiveJobs
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings, ChannelTemplates, TemplateFormat
from spyweb.settings.units import DAY_MS
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from tests.fakes.alerts import ITEM, PAYLOAD, QUEUED, FakeHelper, make_sender
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.findings import message
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import FakeHttp, make_response

SECRETS = Secrets(["hunter22"])
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/secret", headers=(("X-Team", "web"),))


class FakeSender(ChannelSender):
    def __init__(self) -> None:
        self.sent: list[tuple[str, int | None, str]] = []

    async def send(self, channel: AlertChannelSettings, facts: AlertFacts, queued: QueuedMessage) -> Attempt:
        self.sent.append((channel.name, facts.items[0].incident, queued.delivery))
        return Attempt()


def delivery_by(
    sender: ChannelSender | None = None,
    channels: Mapping[str, AlertChannelSettings] = MappingProxyType({"ops": OPS}),
    links: AckLinks | None = None,
) -> AlertDelivery:
    settings = AlertSettings(channels=channels)
    links = links or AckLinks("", lambda: settings)
    return AlertDelivery(sender or FakeSender(), lambda: settings, links, SECRETS, AttemptTallies(FakeClock()))


def by_webhook(http: FakeHttp, environ: Mapping[str, str] = MappingProxyType({})) -> ChannelSender:
    return make_sender(http=http, secrets=ChannelSecrets(Path(), environ))


async def test_a_name_that_is_gone_fails_until_it_is_there_again() -> None:
    delivery = delivery_by(channels={})
    failure = await delivery.send(QUEUED)
    assert failure == DeliveryFailure(reason="no notification channel is named ops", holds=False)
    delivery.settings = lambda: AlertSettings(channels={"ops": OPS})
    assert await delivery.send(QUEUED) is None


async def test_a_webhook_gets_the_facts_and_the_id_of_the_delivery() -> None:
    http = FakeHttp()
    assert await by_webhook(http).send(OPS, decode_facts(PAYLOAD), QUEUED) == Attempt()
    (fetch,) = http.asked
    assert (str(fetch.url), fetch.method, fetch.body) == (OPS.webhook, "POST", PAYLOAD)
    headers = dict(fetch.headers)
    assert (headers["X-SpyWeb-Delivery"], headers["X-Team"]) == ("d1", "web")


async def test_no_reason_repeats_the_address_nor_a_variable_that_a_header_may_hold() -> None:
    channel = replace(OPS, headers=(("Authorization", "Bearer ${TOKEN}"),))
    for answer, reason in (
        (FetchError("connect", f"{OPS.webhook}: refused"), "connect: its address: refused"),
        (make_response(status=401, body=b"no such token: t0ken123"), "answered 401: no such token: ***"),
    ):
        http = FakeHttp(answers={OPS.webhook: answer})
        attempt = await by_webhook(http, {"TOKEN": "t0ken123"}).send(channel, decode_facts(PAYLOAD), QUEUED)
        assert dict(http.asked[0].headers)["Authorization"] == "Bearer t0ken123"
        assert attempt.failure
        assert attempt.failure.reason == reason


def test_what_is_shown_of_a_channel_has_no_address() -> None:
    assert "example.org" not in repr(OPS)


@pytest.mark.parametrize(
    ("channel", "posts", "asks"),
    [
        (OPS, 1, 0),
        (AlertChannelSettings(name="ops", url="ntfy://topic"), 0, 1),
        (AlertChannelSettings(name="ops", desktop=True), 0, 0),
    ],
)
async def test_a_channel_is_sent_to_by_what_its_address_is_for(
    channel: AlertChannelSettings, posts: int, asks: int
) -> None:
    http, helper = FakeHttp(), FakeHelper(HelperAnswer(id=1, ok=True))
    sender = make_sender(http=http, helper=helper, desktop=Desktop({}, "linux"))
    failure = await delivery_by(sender, {"ops": channel}).send(QUEUED)
    assert (len(http.asked), len(helper.asked)) == (posts, asks)
    assert (failure is not None and "desktop" in failure.reason) is channel.desktop


async def test_a_webhook_with_a_secret_is_signed_and_waits_for_a_missing_one() -> None:
    http, channel = FakeHttp(), replace(OPS, secret="env:HOOK")
    attempt = await by_webhook(http).send(channel, decode_facts(PAYLOAD), QUEUED)
    assert attempt == Attempt.without_address("the secret env:HOOK is missing")
    assert attempt.failure == DeliveryFailure(reason="the secret env:HOOK is missing")
    assert http.asked == []
    assert await by_webhook(http, {"HOOK": "k"}).send(channel, decode_facts(PAYLOAD), QUEUED) == Attempt()
    assert dict(http.asked[0].headers)["X-SpyWeb-Signature"].startswith("t=")


async def test_how_an_attempt_went_is_told_to_whoever_watches() -> None:
    told: list[tuple[str, Attempt, int | None]] = []
    http = FakeHttp(answers={OPS.webhook: FetchError("connect", "refused")})
    delivery = delivery_by(by_webhook(http))
    delivery.attempted = lambda *attempt: told.append(attempt)
    await delivery.send(QUEUED)
    http.answers = {}
    await delivery.send(QUEUED)
    assert told == [("ops", Attempt(DeliveryFailure(reason="connect: refused")), 0), ("ops", Attempt(), 0)]


async def test_a_channel_is_tried_out_past_the_outbox_which_counts_as_no_message() -> None:
    http, told = FakeHttp(), list[object]()
    delivery = delivery_by(by_webhook(http))
    delivery.attempted = lambda *attempt: told.append(attempt)
    assert await delivery.try_out("ops", 5) == Attempt()
    assert json.loads(http.asked[0].body or b"") == {
        "channel": "ops",
        "at_ms": 5,
        "items": [],
        "count": 0,
        "instance": "",
    }
    assert told == [("ops", Attempt(), None)]
    with pytest.raises(Refused, match='there is no channel opps; did you mean "ops"'):
        await delivery.try_out("opps", 5)


async def test_no_secret_leaves_with_a_reason_or_a_title_by_a_webhook_either() -> None:
    http = FakeHttp()
    told = {"text": "login hunter22: password=abc", "title": "of hunter22"}
    await delivery_by(by_webhook(http)).send(queued(**told))
    (item,) = json.loads(http.asked[0].body or b"")["items"]
    assert (item["text"], item["title"]) == ("login [hidden]: password=[hidden]", "of [hidden]")


NO_TEXTS = {"title": "", "name": "", "link": "", "page_url": ""}
CHANNELS = {name: AlertChannelSettings(name=name, webhook="https://example.org") for name in ("phone", "ops")}
SITE = "https://spyweb.example.org/sub"


async def signed_links(public_url: str = SITE) -> AckLinks:
    links = AckLinks(public_url, lambda: AlertSettings(channels=CHANNELS))
    store = MemoryStore(FakeClock())
    store.execute("INSERT INTO link_key VALUES (1, ?)", b"k" * 32)
    await links.load(store.keys)
    return links


def queued(**changes: object) -> QueuedMessage:
    return queued_facts({"channel": "ops", "at_ms": 3, "items": [{**ITEM, **changes}], "count": 1})


def queued_facts(facts: dict[str, object]) -> QueuedMessage:
    return structs.replace(QUEUED, payload=json.dumps(facts).encode())


@pytest.mark.parametrize("kind", ["opened", "reminder"])
async def test_of_what_goes_on_a_link_is_sent_along_the_same_at_each_attempt(kind: str) -> None:
    http, links = FakeHttp(), await signed_links()
    delivery = delivery_by(by_webhook(http), links=links)
    for _ in range(2):
        await delivery.send(queued(kind=kind))
    first, second = (json.loads(fetch.body or b"") for fetch in http.asked)
    assert first == second
    (item,) = first["items"]
    assert item == {**ITEM, "kind": kind, **NO_TEXTS, "ack_url": links.ack_link(42, "ops", 3)}


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
    await delivery_by(by_webhook(http), links=await signed_links()).send(message)
    assert [decode_facts(fetch.body or b"") for fetch in http.asked] == [decode_facts(message.payload)]


@asynccontextmanager
async def delivered_by(delivery: AlertDelivery) -> AsyncIterator[tuple[MemoryStore, FakeClock]]:
    """Send whatever is added to an outbox by these channels, in virtual time."""
    clock = FakeClock()
    store = MemoryStore(clock)
    sender = OutboxSender(
        outbox=store.outbox, send=delivery.send, clock=clock, random=lambda: 0.999999, live=LiveJobs()
    )
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
    async with delivered_by(delivery_by(sender, {"chief": OPS, "boss": boss})) as (store, clock):
        await store.outbox.add([to("ops"), to("ops"), to("boss")])
        await clock.turn(1)
        assert [name for name, _, _ in sender.sent] == ["boss"]
        await clock.turn(DAY_MS / 1000 - 2)
        for is_dead in (False, True):
            found = [(each.dead_ms is not None, each.error) for each in await store.outbox.unsent(None, 10)]
            assert found == [(is_dead, "no notification channel is named ops")] * 2
            await clock.turn(5 * 60)
        assert [name for name, _, _ in sender.sent] == ["boss"]


PHONE = AlertChannelSettings(
    name="phone", url="ntfy://topic", templates=ChannelTemplates(body="{{ kind }}", format=TemplateFormat.HTML)
)


async def sent(answer: HelperAnswer) -> tuple[Attempt, SendText]:
    helper = FakeHelper(answer)
    sender = make_sender(helper=helper)
    attempt = await sender.send(PHONE, decode_facts(PAYLOAD), QUEUED)
    (asked,) = helper.asked
    assert isinstance(asked, SendText)
    return attempt, asked


async def test_a_message_is_asked_for_with_its_texts_and_facts() -> None:
    attempt, asked = await sent(HelperAnswer(id=1, ok=True))

    assert attempt == Attempt()
    assert (asked.url, asked.title, asked.delivery) == ("ntfy://topic", "#42 backup is down: 3 failures", "d1")
    assert asked.body.startswith("no space\n")
    assert asked.templates == MessageTemplates(body="{{ kind }}", format="html")
    assert msgspec.json.decode(asked.facts)["kind"] == "opened"


async def test_what_is_wrong_with_the_channel_itself_is_told_apart() -> None:
    wrong, _ = await sent(HelperAnswer(id=1, ok=False, reason="no service", is_address_wrong=True))
    assert wrong == Attempt(DeliveryFailure(reason="no service"), address_problem="no service")
    fails, _ = await sent(HelperAnswer(id=1, ok=True, template="title", template_problem="no"))
    assert fails == Attempt(template_problem="title: no")
    ends, _ = await sent(HelperAnswer(id=1, ok=True, template_problem="it takes too long"))
    assert ends == Attempt(template_problem="it takes too long")


async def test_an_address_in_a_file_is_read_for_each_message(tmp_path: Path) -> None:
    helper, channel = FakeHelper(HelperAnswer(id=1, ok=True)), replace(PHONE, url="", url_file="phone")
    sender = make_sender(helper=helper, secrets=ChannelSecrets(tmp_path, {}))
    missing = await sender.send(channel, decode_facts(PAYLOAD), QUEUED)
    reason = "the file phone can't be read: No such file or directory"
    assert missing == Attempt(DeliveryFailure(reason=reason), address_problem=reason)
    for topic in ("one", "two"):
        (tmp_path / "phone").write_text(f"ntfy://{topic}\n")
        assert await sender.send(channel, decode_facts(PAYLOAD), QUEUED) == Attempt()
    assert [asked.url for asked in helper.asked] == ["ntfy://one", "ntfy://two"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": 404}, {"holds": False, "is_refused": True}),
        ({"status": 429, "retry_after": "7"}, {"wait_ms": 7_000}),
        ({"status": 503}, {}),
        ({}, {}),
        ({"is_address_wrong": True}, {}),  # it may be put right, and no message is at fault
    ],
)
def test_only_what_a_service_refuses_is_the_trouble_of_one_message(
    answer: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = failure_of(HelperAnswer(id=1, ok=False, reason="why", **answer), START_MS)
    assert found == DeliveryFailure(reason="why", **expected)


ME = AlertChannelSettings(name="me", desktop=True)


async def shown(root: Path, script: str) -> Attempt:
    program = root / "notify-send"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    desktop = Desktop({"PATH": str(root), "DISPLAY": ":0"}, "linux")
    return await make_sender(desktop=desktop).send(ME, decode_facts(PAYLOAD), QUEUED)


async def test_title_and_body_are_shown_until_somebody_closes_them_or_have_not_arrived(tmp_path: Path) -> None:
    file = tmp_path / "shown"
    assert await shown(tmp_path, f'for each in "$@"; do echo "$each"; done > {file}') == Attempt()
    lines = file.read_text().splitlines()
    assert lines[1:5] == ["--expire-time=0", "--", "#42 backup is down: 3 failures", "no space"]
    attempt = await shown(tmp_path, "echo nobody is there >&2; exit 1")
    assert attempt == Attempt(DeliveryFailure(reason=f"{tmp_path}/notify-send failed (1): nobody is there"))


async def test_without_a_desktop_nothing_arrives() -> None:
    sender = make_sender(desktop=Desktop({"PATH": os.environ["PATH"]}, "linux"))
    attempt = await sender.send(ME, decode_facts(PAYLOAD), QUEUED)
    assert attempt.failure
    assert attempt.address_problem.startswith("there is no desktop here")


def parts_of(link: str) -> tuple[str, str, str]:
    found = parse_qs(urlsplit(link).query)
    return found["c"][0], found["e"][0], found["s"][0]


async def test_a_link_has_the_signature_that_the_reference_says() -> None:
    link = (await signed_links()).ack_link(42, "phone", START_MS)
    channel, expires, signature = parts_of(link)
    assert link.startswith(f"{SITE}/a/42?")
    assert (channel, int(expires) * 1000) == ("phone", START_MS + LIFE_MS)
    digest = hmac.digest(b"k" * 32, f"ack|42|phone|{expires}".encode(), hashlib.sha256)[:16]
    assert signature == urlsafe_b64encode(digest).decode().rstrip("=")


async def test_it_holds_until_it_expires_or_its_channel_is_gone() -> None:
    links = await signed_links()
    parts = parts_of(links.ack_link(42, "phone", START_MS))
    assert links.is_valid(42, *parts, START_MS)
    assert links.is_valid(42, *parts, START_MS + LIFE_MS - 1)
    assert not links.is_valid(42, *parts, START_MS + LIFE_MS)
    links.settings = AlertSettings
    assert not links.is_valid(42, *parts, START_MS)


@pytest.mark.parametrize("position", range(22))
async def test_no_character_of_the_signature_may_be_another(position: int) -> None:
    links = await signed_links()
    channel, expires, signature = parts_of(links.ack_link(42, "phone", START_MS))
    other = "A" if signature[position] != "A" else "B"
    wrong = signature[:position] + other + signature[position + 1 :]
    assert not links.is_valid(42, channel, expires, wrong, START_MS)


async def test_it_is_of_one_incident_one_channel_and_one_moment() -> None:
    links = await signed_links()
    channel, expires, signature = parts_of(links.ack_link(42, "phone", START_MS))
    assert not links.is_valid(43, channel, expires, signature, START_MS)
    assert not links.is_valid(42, "ops", expires, signature, START_MS)
    for other in (str(int(expires) + 1), f"0{expires}", f" {expires}", "", "x", "9" * 5_000, "\u0661"):
        assert not links.is_valid(42, channel, other, signature, START_MS), other
    for other in ("", signature + "=", signature * 2, "é\udc80"):
        assert not links.is_valid(42, channel, expires, other, START_MS), other


async def test_without_an_address_there_are_no_links_and_none_holds() -> None:
    links, without = await signed_links(), await signed_links("")
    assert without.ack_link(42, "phone", START_MS) == ""
    assert not without.is_valid(42, *parts_of(links.ack_link(42, "phone", START_MS)), START_MS)


async def test_before_the_secret_is_loaded_nothing_holds() -> None:
    links = AckLinks(SITE, lambda: AlertSettings(channels=CHANNELS))
    assert links.ack_link(42, "phone", START_MS) == ""
    made_with_no_key = hmac.digest(b"", b"ack|42|phone|99999999999", hashlib.sha256)[:16]
    signature = urlsafe_b64encode(made_with_no_key).decode().rstrip("=")
    assert not links.is_valid(42, "phone", "99999999999", signature, START_MS)
