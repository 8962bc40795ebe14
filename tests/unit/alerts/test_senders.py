"""What is asked of the process that speaks to Apprise, and what its answers mean."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.sender.wire import HelperAnswer, MessageTemplates, SendText
from spyweb.alerts.senders import AppriseSender, Attempt, DesktopSender, failure_of
from spyweb.alerts.texts import decode_facts
from spyweb.ops.notify_desktop import Desktop
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


ME = AlertChannelSettings(name="me", desktop=True)


async def shown(root: Path, script: str) -> Attempt:
    program = root / "notify-send"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    desktop = Desktop({"PATH": str(root), "DISPLAY": ":0"}, "linux")
    return await DesktopSender(desktop, PlainWriter()).send(ME, decode_facts(PAYLOAD), QUEUED)


async def test_title_and_body_are_shown_until_somebody_closes_them(tmp_path: Path) -> None:
    file = tmp_path / "shown"
    assert await shown(tmp_path, f'for each in "$@"; do echo "$each"; done > {file}') == Attempt()
    lines = file.read_text().splitlines()
    assert lines[1:5] == ["--expire-time=0", "--", "#42 backup is down: 3 failures", "no space"]


async def test_one_that_is_not_shown_has_not_arrived(tmp_path: Path) -> None:
    attempt = await shown(tmp_path, "echo nobody is there >&2; exit 1")
    assert attempt == Attempt(DeliveryFailure(reason=f"{tmp_path}/notify-send failed (1): nobody is there"))


async def test_without_a_desktop_nothing_arrives() -> None:
    attempt = await DesktopSender(Desktop({"PATH": os.environ["PATH"]}, "linux"), PlainWriter()).send(
        ME, decode_facts(PAYLOAD), QUEUED
    )
    assert attempt.failure
    assert attempt.address_problem.startswith("there is no desktop here")
