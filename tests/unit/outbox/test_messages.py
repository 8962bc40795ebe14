"""What jobs put into the outbox."""

from __future__ import annotations

import json

import pytest

from spyweb.model import Webhook
from spyweb.outbox.messages import desktop_message, place_of, webhook_message
from spyweb.store.model.messages import Channel, Target
from tests.fakes.changes import PRICES


def test_a_webhooks_message_bears_its_address_and_headers() -> None:
    found = webhook_message(PRICES, Webhook(url="https://x.example/h", headers=(("A", "1"),)), b"{}")

    assert found.target == Target(Channel.WEBHOOK, "https://x.example/h")
    assert (found.job, found.headers, found.payload) == (PRICES, (("A", "1"),), b"{}")


def test_a_notification_is_told_as_json() -> None:
    found = desktop_message(PRICES, "3 new", "Tea: 1 €", 9000)

    assert found.target == Target(Channel.DESKTOP, "")
    assert json.loads(found.payload) == {"title": "3 new", "body": "Tea: 1 €", "timeout_ms": 9000}


@pytest.mark.parametrize(
    ("target", "place"),
    [
        (Target(Channel.WEBHOOK, "https://me:pw@hooks.example:8443/secret?token=x"), "hooks.example"),
        (Target(Channel.WEBHOOK, "not an address"), "webhook"),
        (Target(Channel.WEBHOOK, "http://[::1"), "webhook"),
        (Target(Channel.DESKTOP, ""), "desktop"),
    ],
)
def test_no_secret_of_an_address_is_logged(target: Target, place: str) -> None:
    assert place_of(target) == place
