"""What services on this machine get of an alert, each sent to by the real process that speaks to Apprise."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from spyweb.alerts.sender import helper as helper_module
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.wire import CheckAddress, HelperAnswer, MessageTemplates, SendText
from spyweb.clock import RealClock
from tests.fakes.alert_services import MailBox, Services, until
from tests.fakes.http_server import Answer

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOKENS = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#alerts",
    "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "telegram": "tgram://123456789:AAG-abcdefg_hijklmnopqrstuvwxyz12345/12315544",
}
SECRETS = ("TIiajkdnlazkcOXrIdevi7FQ", "JHMHI8qBe7bk2ZwO5U711o3dV_js", "abcdefg_hijklmnopqrstuvwxyz12345")
DAEMON = """
import asyncio, os, sys
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.wire import CheckAddress, SendText
from spyweb.clock import RealClock

async def main():
    helper = AlertHelper(RealClock(), os.environ)
    await helper.ask(CheckAddress(id=0, url="json://localhost"))
    print(helper._process._transport.get_pid(), flush=True)
    await helper.ask(SendText(id=0, url=sys.argv[1], title="t", body="b", delivery="d"))

asyncio.run(main())
"""
CHILD_ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
TITLE = "#42 backup is down: 3 failures"
BODY = "failed: <b>no</b> route & *nothing* _else_\nsince 03:00"


def pid_of(helper: AlertHelper) -> int:
    """Return the id of its process, 0 while there is none."""
    process = helper._process
    return process._transport.get_pid() if process and process.takes and process._transport else 0


def text_to(url: str, *, title: str = TITLE, body: str = BODY, **more: object) -> SendText:
    return SendText(id=0, url=url, title=title, body=body, delivery="d" * 32, mood="failure", **more)  # type: ignore[arg-type]


async def sent(helper: AlertHelper, url: str, **more: object) -> HelperAnswer:
    return await helper.ask(text_to(url, **more))  # type: ignore[arg-type]


async def test_slack_gets_its_markup_escaped(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(body=b"ok")
    assert (await sent(helper, TOKENS["slack"])).ok

    (arrived,) = services.arrived
    assert arrived.host == "hooks.slack.com"
    assert arrived.json["mrkdwn"] is False
    assert "mrkdwn_in" not in arrived.json["attachments"][0]
    assert "&lt;b&gt;no&lt;/b&gt; route &amp;" in arrived.text
    assert "<b>" not in arrived.text
    assert TITLE in arrived.text


async def test_discord_gets_the_text(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(status=204, body=b"")
    assert (await sent(helper, TOKENS["discord"])).ok

    (arrived,) = services.arrived
    assert arrived.host == "discord.com"
    title, first, _ = arrived.json["content"].splitlines()
    assert (title, first) == (r"\#42 backup is down: 3 failures", r"failed: \<b\>no\</b\> route & \*nothing\* \_else\_")


@pytest.mark.parametrize(
    ("mood", "priority", "tag"), [("failure", "high", "rotating_light"), ("success", "low", "white_check_mark")]
)
async def test_the_urgency_the_tag_and_the_link_of_a_message_are_those_of_its_state_unless_the_address_says_others(
    mood: str, priority: str, tag: str, helper: AlertHelper, services: Services
) -> None:
    address, link = f"ntfy://127.0.0.1:{services.port}/topic", "https://spyweb.example/a/1?c=phone&e=1"
    for url in (address, f"{address}?priority=max&xtags=mine&click=https://mine.example/"):
        ask = replace(text_to(url), mood=mood, link=link)
        assert (await helper.ask(ask)).ok
    ours, theirs = ([each.headers[f"X-{name}"] for name in ("Priority", "Tags", "Click")] for each in services.arrived)
    assert ours == [priority, tag, link]
    assert theirs == ["max", "mine", "https://mine.example/"]


async def test_telegram_gets_no_markup_of_a_log(helper: AlertHelper, services: Services) -> None:
    assert (await sent(helper, TOKENS["telegram"])).ok

    (arrived,) = services.arrived
    assert arrived.host == "api.telegram.org"
    assert arrived.json["parse_mode"] == "HTML"
    assert "&lt;b&gt;no&lt;/b&gt; route &amp;" in arrived.json["text"]


async def test_mail_bears_the_delivery_as_its_id_at_each_attempt(helper: AlertHelper, mail_box: MailBox) -> None:
    url = f"mailto://127.0.0.1:{mail_box.port}?from=spyweb@example.org&to=me@example.org&mode=insecure"
    for _ in range(2):
        assert (await sent(helper, url)).ok

    first, second = mail_box.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Message-ID"].startswith(f"<{'d' * 32}@")
    assert (first["Subject"], first["To"]) == (TITLE, "me@example.org")
    part = first.get_body(("html", "plain"))
    assert part is not None
    written = part.get_content()
    assert "<b>no</b>" not in written if part.get_content_subtype() == "html" else "<b>no</b>" in written


async def test_a_service_that_is_busy_is_not_waited_for_in_the_process(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(status=429, headers={"Retry-After": "7"}, body=b'{"retry_after": 7}')
    await helper.ask(CheckAddress(id=0, url="json://localhost"))
    began = time.monotonic()
    answer = await sent(helper, TOKENS["discord"])

    assert (answer.ok, answer.status, answer.retry_after) == (False, 429, "7")
    assert answer.reason.startswith("answered 429")
    assert time.monotonic() - began < 3
    assert len(services.arrived) == 1


async def test_telegram_says_in_its_answer_how_long_to_wait(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(status=429, body=b'{"ok": false, "parameters": {"retry_after": 7}}')
    answer = await sent(helper, TOKENS["telegram"])
    assert (answer.ok, answer.status, answer.retry_after) == (False, 429, "7")


async def test_a_refusal_says_what_the_service_says_and_no_secret(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda arrived: Answer(status=400, body=b"no such chat at " + arrived.path.encode())
    for name, url in TOKENS.items():
        answer = await sent(helper, url)
        assert (answer.ok, answer.status) == (False, 400), name
        assert "answered 400: no such chat" in answer.reason
        assert not any(secret in repr(answer) for secret in SECRETS)


def peak_mib(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


async def test_one_that_takes_the_connection_and_drops_it_has_not_taken_the_message(
    helper: AlertHelper, services: Services
) -> None:
    services.drops = True
    answer = await sent(helper, f"ntfy://127.0.0.1:{services.port}/topic")

    assert not answer.ok
    assert answer.reason.endswith("closed the connection")


async def test_one_that_hangs_holds_up_no_other_and_costs_the_process_alone(
    helper: AlertHelper, services: Services, mail_box: MailBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await helper.ask(CheckAddress(id=0, url="json://localhost"))
    monkeypatch.setattr(helper_module, "ANSWER_S", 3.0)
    services.hangs = True
    mail = f"mailto://127.0.0.1:{mail_box.port}?from=spyweb@example.org&to=me@example.org&mode=insecure"
    first = pid_of(helper)
    hung, fine = await asyncio.gather(sent(helper, f"ntfy://127.0.0.1:{services.port}/topic"), sent(helper, mail))

    assert (hung.ok, hung.reason) == (False, "timeout: the service did not answer in time")
    assert fine.ok
    assert pid_of(helper) == 0
    monkeypatch.undo()
    assert (await sent(helper, mail)).ok
    assert pid_of(helper) not in (0, first)


async def test_the_limits_of_the_process_are_in_force(helper: AlertHelper, services: Services) -> None:
    await sent(helper, f"ntfy://127.0.0.1:{services.port}/topic")
    lines = Path(f"/proc/{pid_of(helper)}/limits").read_text().splitlines()
    limits = {line[:26].strip(): line[26:].split()[0] for line in lines}
    assert limits["Max data size"] == str(192 << 20)
    assert limits["Max open files"] == "64"
    assert limits["Max core file size"] == "0"
    assert limits["Max file size"] == str(1 << 20)
    assert limits["Max cpu time"] == "120"


async def test_the_process_ends_with_a_daemon_that_is_killed(services: Services) -> None:
    services.hangs = True  # so that it has something to do
    url = f"ntfy://127.0.0.1:{services.port}/topic"
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON, url, stdout=PIPE, env=CHILD_ENVIRON)
    assert daemon.stdout is not None
    pid = int(await daemon.stdout.readline())
    await until(lambda: bool(services.arrived), 20)
    assert Path(f"/proc/{pid}").exists()
    daemon.kill()
    await daemon.wait()
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_redirect_is_not_followed(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(status=302, headers={"Location": f"http://127.0.0.1:{services.port}/else"})
    answer = await sent(helper, f"ntfy://127.0.0.1:{services.port}/topic")

    assert (answer.ok, answer.status) == (False, 302)
    assert len(services.arrived) == 1


async def test_a_long_text_is_cut_and_not_refused(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(status=204, body=b"")
    assert (await sent(helper, TOKENS["discord"], body="x" * 9000)).ok

    (arrived,) = services.arrived
    assert len(arrived.body) < 3000


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ntfyy://topic", 'no service "ntfyy", did you mean "ntfy"?'),
        ("mqtt://localhost", "mqtt is not available here: it needs the package paho-mqtt"),
        ("slack://short", "Slack"),
        ("tgram://hunter2hunter2", "Telegram"),
        ("hunter2hunter2", "expected an address of a service"),
        ("https://example.org/hunter2hunter2", "to send JSON there, write webhook instead of url"),
    ],
)
async def test_an_address_is_checked_without_sending_and_not_repeated(
    helper: AlertHelper, url: str, reason: str, services: Services
) -> None:
    for answer in (await helper.ask(CheckAddress(id=0, url=url)), await sent(helper, url)):
        assert (answer.ok, answer.is_address_wrong) == (False, True)
        assert reason in answer.reason
        assert "hunter2" not in answer.reason
    assert services.arrived == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{% if %}", "in its line 1"),
        ("{{ 'x' * 300000000 }}", "more memory than it may have"),
        ("{{ 9 ** (9 ** 9) }}", "it takes"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "longer than 2 s"),
    ],
)
async def test_a_template_that_fails_costs_its_own_text_alone(
    helper: AlertHelper, services: Services, body: str, problem: str
) -> None:
    templates, facts = MessageTemplates(body=body), msgspec.Raw(b'{"kind":"opened"}')
    url = f"ntfy://127.0.0.1:{services.port}/topic"
    answer = await sent(helper, url, templates=templates, facts=facts)

    assert answer.ok
    assert problem in answer.template_problem
    assert services.arrived[0].json["message"].startswith(f"{BODY}\n(The template of this channel fails: ")


@pytest.mark.parametrize(
    ("written", "body", "expected"),
    [
        ("text", "<i>own</i> {{ text }}", "&lt;i&gt;own&lt;/i&gt; &lt;b&gt;bold&lt;/b&gt; *x*"),
        ("html", "<i>own</i> {{ text }}", "<i>own</i> &lt;b&gt;bold&lt;/b&gt; *x*"),
        ("markdown", "**own** {{ text }}", r"*own* <b>bold</b> \*x\*"),
    ],
)
async def test_a_template_writes_markup_and_what_it_puts_in_is_escaped(
    helper: AlertHelper, services: Services, written: str, body: str, expected: str
) -> None:
    templates = MessageTemplates(title="{{ kind }}!", body=body, format=written)
    facts = msgspec.Raw(b'{"kind":"opened","text":"<b>bold</b> *x*"}')
    assert (await sent(helper, TOKENS["telegram"], templates=templates, facts=facts)).ok

    arrived = services.arrived[0].json
    assert arrived["parse_mode"] == ("MARKDOWN" if written == "markdown" else "HTML")
    assert "opened!" in arrived["text"]
    assert expected in arrived["text"]


async def test_no_line_of_a_log_calls_everybody(helper: AlertHelper, services: Services) -> None:
    services.answer = lambda _: Answer(status=204, body=b"")
    templates, facts = MessageTemplates(body="{{ text }}"), msgspec.Raw(b'{"text":"@here and @everyone"}')
    assert (await sent(helper, TOKENS["discord"], body="@everyone, @here")).ok
    assert (await sent(helper, TOKENS["discord"], templates=templates, facts=facts)).ok
    for arrived in services.arrived:
        assert "everyone" in arrived.json["content"]
        assert not re.search("@(everyone|here)", arrived.json["content"])


async def test_eight_at_once_share_a_process_that_stays_small_at_any_answer_and_is_told_no_secret(
    services: Services,
) -> None:
    secret = {"SPYWEB_API_KEY": "s3cret", "NTFY_TOPIC": "s3cret", "AWS_SECRET_ACCESS_KEY": "s3cret"}
    helper = AlertHelper(RealClock(), {**os.environ, **services.environ, **secret})
    url = f"ntfy://127.0.0.1:{services.port}/topic"
    answers = await asyncio.gather(*(sent(helper, url) for _ in range(40)))

    assert all(answer.ok for answer in answers)
    assert len(services.arrived) == 40
    assert peak_mib(pid_of(helper)) <= 70
    services.answer = lambda _: Answer(body=b"x" * (1 << 20), repeated=80)
    assert (await sent(helper, url)).ok
    assert peak_mib(pid_of(helper)) < 80
    given = Path(f"/proc/{pid_of(helper)}/environ").read_bytes()
    await helper.close()
    assert b"HTTPS_PROXY" in given
    assert b"s3cret" not in given


async def test_without_work_the_process_ends(
    helper: AlertHelper, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_module, "IDLE_S", 0.1)
    await sent(helper, f"ntfy://127.0.0.1:{services.port}/topic")
    pid = pid_of(helper)
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert pid_of(helper) == 0


async def test_a_process_that_dies_is_told_and_another_one_serves(helper: AlertHelper, services: Services) -> None:
    services.hangs = True
    url = f"ntfy://127.0.0.1:{services.port}/topic"
    asking = asyncio.create_task(sent(helper, url))
    await until(lambda: bool(services.arrived))
    os.kill(pid_of(helper), signal.SIGKILL)
    answer = await asking
    assert (answer.ok, answer.reason) == (False, "the process that sends has ended: it was ended by SIGKILL")
    services.hangs = False
    assert (await sent(helper, url)).ok
