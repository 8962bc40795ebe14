"""A job fails, and somebody is told: a real daemon, and a receiver on this machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from spyweb.subjects.incidents.views import ChannelView
from tests.fakes.alert_services import open_services
from tests.fakes.http_server import Answer, Arrived
from tests.fakes.project import daemon, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BROKEN = """-- /// job
-- every = "200ms"
-- ///
error("no space")
"""
SECRETS = (
    "s3cr3t-t0pic",
    "s3cr3t-f1le",
    "s3cr3t-p4th",
    "s3cr3t-h3ader",
    "s3cr3t-k3y",
    "s3cr3t-l0g",
)  # the last one is of a script
CHANNELS = """[server]
enabled = false
[channels.service]
url = "ntfy://127.0.0.1:{port}/${{TOPIC}}"
[channels.file]
url_file = "secrets/phone"
[channels.hook]
webhook = "{hook}/${{HOOK_PATH}}?key=s3cr3t-k3y"
headers = {{ X-Token = "${{HOOK_HEADER}}" }}
[channels.wrong]
url = "ntfyy://${{TOPIC}}/${{HOOK_PATH}}"
[alerts]
to = ["service", "file", "hook", "wrong"]
after_failures = 1
"""
LEAKS = """-- /// job
-- every = "200ms"
-- ///
log("password=s3cr3t-l0g")
error("no space")
"""
ANSWERS = (
    "/api/channels",
    "/api/incidents?limit=100",
    "/api/outbox",
    "/api/health",
    "/api/audit",
    "/api/warnings",
    "/api/runs",
    "/api/jobs",
)


def shown_of(arrived: Arrived) -> str:
    named = arrived.json.get("topic", "")
    return f"{named} {arrived.path} {arrived.headers.get('Authorization')} {arrived.headers.get('X-Token')}"


def test_no_part_of_an_address_leaves_the_channel_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever refuses a message repeats what it was sent; no file, log or answer of the daemon does."""
    for name, value in (("TOPIC", SECRETS[0]), ("HOOK_PATH", SECRETS[2]), ("HOOK_HEADER", SECRETS[3])):
        monkeypatch.setenv(name, value)
    with open_services(tmp_path) as services:
        services.answer = lambda arrived: Answer(status=404, body=f"no such thing: {shown_of(arrived)}".encode())
        hook = f"http://me:s3cr3t-k3y@127.0.0.1:{services.port}"
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs/backup.lua").write_text(LEAKS)
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets/phone").write_text(f"ntfy://127.0.0.1:{services.port}/s3cr3t-f1le")
        (tmp_path / "config.toml").write_text(CHANNELS.format(port=services.port, hook=hook))
        with daemon(tmp_path) as (_, client):
            eventually(lambda: all(each.error for each in client.ask("GET", "/api/channels", list[ChannelView])))
            tried = [client.try_channel(name) for name in ("service", "file", "hook", "wrong")]
            answers = [bytes(client.ask("GET", path, msgspec.Raw)) for path in ANSWERS]
    assert [each.is_sent for each in tried] == [False] * 4
    assert [each.reason.startswith("answered 404: no such thing") for each in tried] == [True, True, True, False]
    arrived = b"".join(each.text.encode() for each in services.arrived)
    assert all(secret.encode() in arrived for secret in SECRETS[:5])
    assert b"s3cr3t-l0g" not in arrived
    told = [repr(tried).encode(), *answers]
    project = ("config.toml", "secrets/phone", "jobs/backup.lua", "jobs/backup/hooks.log", "authority.pem")
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and str(path.relative_to(tmp_path)) not in project]
    assert {"spyweb.db", "daemon.out"} <= {path.name for path in kept}
    told += [path.read_bytes() for path in kept]
    assert not [secret for secret in SECRETS[:5] if any(secret.encode() in each for each in told)]


MENDING = """[server]
enabled = false
[channels.phone]
url_file = "phone"
templates = {{ title = "{title}" }}
[alerts]
to = ["phone"]
after_failures = 1
"""


def test_a_channel_that_is_put_right_is_so_without_a_restart(tmp_path: Path) -> None:
    with open_services(tmp_path) as services:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs/backup.lua").write_text(BROKEN)
        (tmp_path / "config.toml").write_text(MENDING.format(title="{{ incident.no.such }}"))
        with daemon(tmp_path) as (_, client):

            def channel_reasons() -> list[str]:
                found = client.incidents(is_open=True, limit=10)
                return [each.reason for each in found if each.subject == "channel:phone"]

            eventually(lambda: channel_reasons() == ["address"])  # at the start, before there is anything to tell
            (tmp_path / "phone").write_text(f"ntfy://127.0.0.1:{services.port}/topic")
            eventually(lambda: channel_reasons() == ["template"])  # what waited has arrived, with the built-in text
            assert services.arrived[0].json["title"].startswith("#1 backup is down")
            assert "(The template of this channel fails: title: " in services.arrived[0].json["message"]
            (tmp_path / "config.toml").write_text(MENDING.format(title="{{ kind }} {{ incident }}"))
            eventually(lambda: channel_reasons() == [])
            assert client.try_channel("phone").is_sent
            assert services.arrived[-1].json["title"] == "test"
