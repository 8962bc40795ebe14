"""The how-to of each way to a person: its settings are right, what it shows arrives, and what it says goes wrong."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spyweb.alerts.channel_check import check_channels
from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.delivery import Attempt
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.texts import AlertFacts, AlertItem
from spyweb.clock import RealClock
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.model import RunId
from spyweb.settings.alerts import AlertChannelSettings
from spyweb.settings.load import examine_settings
from tests.fakes.alert_services import MailBox, Services
from tests.fakes.alerts import QUEUED, make_sender
from tests.fakes.http_server import Answer
from tests.fakes.repository import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]

TOKEN = "123456789:AAG-abcdefg_hijklmnopqrstuvwxyz12345"
ENVIRON = {
    "NTFY_TOPIC": "my-alerts-7f3a9c",
    "NTFY_TOKEN": "tk_abcdefgh",
    "SMTP_USER": "me%40example.org",
    "SMTP_PASSWORD": "p%2Fw",
    "TELEGRAM_TOKEN": TOKEN,
}
SLACK = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
SINCE_MS = 1_795_455_496_376
BACKUP = AlertItem(
    incident=42,
    kind=MessageKind.OPENED,
    subject="job:backup",
    level=Level.WARNING,
    reason="failing",
    text="no space left on /var/backups",
    run=RunId(991),
    since_ms=SINCE_MS,
    opened_ms=SINCE_MS + 1_000,
    closed_ms=None,
    failures=3,
    flapping=False,
)

_TOML = re.compile(r"^ *```toml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def channels_of(way: str, root: Path) -> Mapping[str, AlertChannelSettings]:
    """Return the channels that a page sets up, in all of its blocks."""
    (root / "secrets").mkdir()
    (root / "secrets/slack").write_text(f"{SLACK}\n")
    blocks = [textwrap.dedent(block) for block in _TOML.findall(read(f"docs/how-to/alerts-by-{way}.md"))]
    (root / "config.toml").write_text("\n".join(blocks))
    settings, problems = examine_settings(root, environ=ENVIRON, flags={})
    assert not problems
    return settings.alerts.channels


async def sent(channel: AlertChannelSettings, root: Path, helper: AlertHelper) -> Attempt:
    facts = AlertFacts(channel=channel.name, at_ms=SINCE_MS + 6_000, items=(BACKUP,), count=1)
    sender = make_sender(helper=helper, secrets=ChannelSecrets(root, ENVIRON), clock=RealClock())
    return await sender.send(channel, facts, QUEUED)


@pytest.mark.parametrize(
    ("way", "name"), [("ntfy", "phone"), ("mail", "mail"), ("slack", "slack"), ("telegram", "telegram")]
)
async def test_the_channels_of_a_page_are_right(way: str, name: str, tmp_path: Path, helper: AlertHelper) -> None:
    channels = channels_of(way, tmp_path)
    assert name in channels
    assert await check_channels(channels.values(), ChannelSecrets(tmp_path, ENVIRON), helper) == []


@pytest.mark.parametrize(
    ("way", "name", "where"),
    [
        ("ntfy", "phone", "ntfy.sh/"),
        ("slack", "slack", SLACK.removeprefix("https://")),
        ("telegram", "telegram", f"api.telegram.org/bot{TOKEN}/sendMessage"),
    ],
)
async def test_what_a_page_shows_arrives_where_it_says(
    way: str, name: str, where: str, tmp_path: Path, services: Services, helper: AlertHelper
) -> None:
    services.answer = lambda _: Answer(body=b"ok")
    assert await sent(channels_of(way, tmp_path)[name], tmp_path, helper) == Attempt()

    (arrived,) = services.arrived
    assert f"{arrived.host}{arrived.path}" == where
    (shown,) = _SHOWN.findall(read(f"docs/how-to/alerts-by-{way}.md"))
    text = arrived.body.decode()
    assert [line for line in shown.splitlines() if line not in text] == []


async def test_the_mail_of_the_page_arrives(tmp_path: Path, helper: AlertHelper, mail_box: MailBox) -> None:
    channel = channels_of("mail", tmp_path)["mail"]
    local = channel.url.replace("mailtos://${SMTP_USER}:${SMTP_PASSWORD}@smtp.example.org", "mailto://127.0.0.1")
    here = f"{local}&mode=insecure".replace("127.0.0.1", f"127.0.0.1:{mail_box.port}")
    assert await sent(replace(channel, url=here), tmp_path, helper) == Attempt()

    (mail,) = mail_box.mails
    (shown,) = _SHOWN.findall(read("docs/how-to/alerts-by-mail.md"))
    subject, _, body = shown.partition("\n\n")
    assert (mail["Subject"], mail["From"], mail["To"]) == (subject, "spyweb@example.org", "me@example.org")
    assert mail["Message-ID"].startswith(f"<{QUEUED.delivery}@")
    assert mail.get_content().split() == body.split()


@pytest.mark.parametrize(
    ("way", "name", "answer", "said"),
    [
        ("ntfy", "phone", Answer(status=403, body=b'{"error":"forbidden"}'), "answered 403"),
        ("ntfy", "phone", Answer(status=429, headers={"Retry-After": "60"}), "answered 429"),
        ("slack", "slack", Answer(status=404, body=b"no_service"), "answered 404: "),
        ("telegram", "telegram", Answer(status=401), "answered 401"),
        (
            "telegram",
            "telegram",
            Answer(status=400, body=b'{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}'),
            "answered 400: …chat not found",
        ),
    ],
)
async def test_what_goes_wrong_is_said_as_a_page_says(
    way: str, name: str, answer: Answer, said: str, tmp_path: Path, services: Services, helper: AlertHelper
) -> None:
    services.answer = lambda _: answer
    attempt = await sent(channels_of(way, tmp_path)[name], tmp_path, helper)

    assert attempt.failure
    begin, _, end = said.partition("…")
    assert attempt.failure.reason.startswith(begin)
    assert end in attempt.failure.reason
    assert f"`{said.rstrip(': ')}" in read(f"docs/how-to/alerts-by-{way}.md")


async def test_what_goes_wrong_with_mail_is_said_as_the_page_says(
    tmp_path: Path, helper: AlertHelper, mail_box: MailBox
) -> None:
    channel = channels_of("mail", tmp_path)["mail"]
    page = read("docs/how-to/alerts-by-mail.md")
    for address, mode, said in (
        (f"127.0.0.1:{mail_box.port}", "", "the server offers no TLS on this port"),
        (f"127.0.0.1:{mail_box.port}", "&mode=ssl", "… failed the TLS handshake: … wrong version number"),
        ("127.0.0.1:1", "", "… refused the connection"),
        ("nowhere.invalid", "", "the host … was not found"),
    ):
        url = channel.url.replace("smtp.example.org", address) + mode
        attempt = await sent(replace(channel, url=url), tmp_path, helper)
        assert attempt.failure
        assert all(part.strip() in attempt.failure.reason for part in said.split("…"))
        assert address.partition(":")[0] in attempt.failure.reason or "…" not in said
        assert f"`{said}" in page
