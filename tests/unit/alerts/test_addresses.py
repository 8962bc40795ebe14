"""Of an address service and host are shown, and no part that may be a secret."""

from __future__ import annotations

import pytest

from spyweb.alerts.addresses import ShownAddress, shown
from spyweb.settings.alerts import AlertChannelSettings


@pytest.mark.parametrize(
    ("url", "service", "host"),
    [
        ("ntfy://my-topic", "ntfy", ""),
        ("ntfy://my-topic/?priority=high", "ntfy", ""),
        ("ntfys://ntfy.example.org/topic", "ntfys", "ntfy.example.org"),
        ("mailtos://me:pass@smtp.example.org?to=you@example.org", "mailtos", "smtp.example.org"),
        ("MAILTO://me:pass@smtp.example.org:2525", "mailto", "smtp.example.org"),
        ("slack://TokenA/TokenB/TokenC", "slack", ""),
        ("tgram://123:token/chat", "tgram", ""),
        ("discord://id/token", "discord", ""),
        ("gotify://push.example.org/token", "gotify", "push.example.org"),
        ("https://hooks.slack.com/services/A/B/C", "https", "hooks.slack.com"),
        ("mailtos://[broken", "mailtos", ""),
        ("mailtos://me:${PASSWORD}@${HOST}?to=you@example.org", "mailtos", ""),
        ("${PHONE}", "", ""),
        ("", "", ""),  # it is in a file
    ],
)
def test_the_host_of_a_service_is_shown_where_it_is_a_machine(url: str, service: str, host: str) -> None:
    assert shown(AlertChannelSettings(name="x", url=url)) == ShownAddress("service", service, host)


def test_of_a_webhook_the_host_is_shown() -> None:
    channel = AlertChannelSettings(name="x", webhook="https://me:secret@example.org:8443/T0KEN?key=1")
    assert shown(channel) == ShownAddress("webhook", "", "example.org")


def test_the_desktop_has_no_address() -> None:
    assert shown(AlertChannelSettings(name="x", desktop=True)) == ShownAddress("desktop", "", "")
