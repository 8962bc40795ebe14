"""`[heartbeat]`, as config.toml says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.settings import Settings
from spyweb.settings.addresses import is_on_this_machine
from spyweb.settings.load import examine_settings


def read(root: Path, text: str) -> tuple[Settings, list[str]]:
    (root / "config.toml").write_text(text)
    settings, problems = examine_settings(root, environ={}, flags={})
    return settings, [str(problem) for problem in problems]


def test_the_address_may_hold_variables_and_is_never_shown(tmp_path: Path) -> None:
    settings, problems = read(tmp_path, '[heartbeat]\nurl = "https://hc-ping.com/${KEY}/spyweb"\nevery = "5m"\n')
    assert not problems
    assert (settings.heartbeat.url, settings.heartbeat.every_ms) == ("https://hc-ping.com/${KEY}/spyweb", 300_000)
    assert "hc-ping" not in repr(settings)


def test_without_the_section_nobody_is_pinged(tmp_path: Path) -> None:
    assert read(tmp_path, "")[0].heartbeat.url == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('url = "ftp://secret/"', "config.toml:2: heartbeat.url: expected an address that begins with https:// or"),
        ('url = "https://x/"\nevery = "1s"', "config.toml:3: heartbeat.every: must be at least 10s, not 1s"),
        ('every = "2m"', "config.toml:2: heartbeat.every: every 2m, but where to? url has the address"),
        ('url = "https://x/"\nevry = "1m"', 'config.toml:3: heartbeat.evry: unknown key; did you mean "every"?'),
    ],
)
def test_what_is_wrong_is_said_in_one_line_without_the_address(tmp_path: Path, text: str, said: str) -> None:
    problems = read(tmp_path, f"[heartbeat]\n{text}\n")[1]
    assert len(problems) == 1
    assert problems[0].startswith(said)
    assert "secret" not in problems[0]


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8000/ping/x", True),
        ("http://127.0.0.1/x", True),
        ("http://[::1]:3001/api/push/x", True),
        ("http://0.0.0.0/x", True),
        ("http://kuma.localhost/x", True),
        ("https://hc-ping.com/x", False),
        ("http://192.168.1.5/x", False),
        ("http://localhost.example.org/", False),
    ],
)
def test_an_address_of_this_machine_is_recognised(url: str, here: bool) -> None:
    assert is_on_this_machine(url) is here
