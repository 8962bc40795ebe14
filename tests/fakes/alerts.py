"""A message of an alert, and what would send it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.delivery import ChannelSender
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.wire import HelperAnswer, HelperRequest
from spyweb.alerts.texts import AlertFacts, AlertText, AlertWriter, body_of, mood_of, template_facts, title_of
from spyweb.logs.secrets import secrets_in
from spyweb.model import JobId
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import MessageTransport
from spyweb.permissions.policy import ANYTHING
from spyweb.store.model.messages import Channel, QueuedMessage, Target
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
    "gone": False,
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


class FakeHelper(AlertHelper):
    def __init__(self, answer: HelperAnswer) -> None:
        self.answer = answer
        self.asked: list[HelperRequest] = []

    async def ask(self, request: HelperRequest) -> HelperAnswer:
        self.asked.append(request)
        return self.answer


class PlainWriter(AlertWriter):
    """Writes what needs no store."""

    def __init__(self) -> None: ...

    async def compose(self, facts: AlertFacts) -> AlertText:
        title, body = title_of(facts), body_of(facts, "UTC")
        return AlertText(title, body, mood_of(facts), "", template_facts(facts, body, {"title": title, "log": ""}))


def make_sender(**parts: Any) -> ChannelSender:
    """What sends by these parts; any other fails where it is asked."""
    usual = {"http": None, "helper": None, "desktop": None, "writer": PlainWriter(), "clock": FakeClock()}
    return ChannelSender(**{"secrets": ChannelSecrets(Path(), {}), **usual, **parts})


async def _flush() -> None: ...


def make_transport(**parts: Any) -> MessageTransport:
    """What makes an attempt by these parts, and of a job that is gone whatever it may ask for."""
    environ = parts.get("environ", {})
    usual = {"http": FakeHttp(), "desktop": Desktop({}), "clock": FakeClock(), "root": Path(), "environ": environ}
    policy = {"spec_of": lambda _: None, "usual": ANYTHING, "secrets": secrets_in(environ)}
    return MessageTransport(**{**usual, **policy, "flush_logs": _flush, "alert": None, **parts})
