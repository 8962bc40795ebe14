"""What is asked of the process that speaks to Apprise, and what its answers mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spyweb.alerts.apprise_sender import AppriseSender, failure_of
from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.delivery import Attempt, decode_facts
from spyweb.alerts.sender.wire import HelperAnswer, MessageTemplates, SendText
from spyweb.outbox.send import DeliveryFailure
from spyweb.settings.alerts import AlertChannelSettings, ChannelTemplates, TemplateFormat
from tests.fakes.alerts import PAYLOAD, QUEUED, FakeHelper, PlainWriter
from tests.fakes.clock import START_MS, FakeClock

PHONE = AlertChannelSettings(
    name="phone", url="ntfy://topic", templates=ChannelTemplates(body="{{ kind }}", format=TemplateFormat.HTML)
)


async def sent(answer: HelperAnswer) -> tuple[Attempt, SendText]:
    helper = FakeHelper(answer)
    sender = AppriseSender(helper, ChannelSecrets(Path(), {}), FakeClock(), PlainWriter())
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
    sender = AppriseSender(helper, ChannelSecrets(tmp_path, {}), FakeClock(), PlainWriter())
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
