"""What README shows works as it is written there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.http_server import Answer, Arrived, serving
from tests.fakes.project import Project, eventually
from tests.fakes.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

README = (ROOT / "README.md").read_text()
LUA = re.findall(r"```lua\n(.*?)```", README, re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
SHELL = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
COMMANDS = re.findall(r"^spyweb (.*?)(?: +#.*)?$", SHELL, re.MULTILINE)


@pytest.mark.parametrize("target", ["start", "dist"])
def test_make_knows_the_targets_that_install(target: str) -> None:
    assert f"make {target}" in README.split("\n## ")[1]
    planned = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr


def test_the_first_job_runs_and_the_commands_answer(tmp_path: Path) -> None:
    assert COMMANDS[:2] == ["init watch", "start"]
    Project(tmp_path).spyweb(*COMMANDS[0].split())
    project = Project(tmp_path / "watch")
    project.save("jobs/first.lua", LUA[0])
    assert len(COMMANDS) >= 6
    with project.daemon():
        assert project.ended("first")[0].outcome is Outcome.SUCCESS
        eventually(lambda: "hello number" in project.spyweb("logs", "first").stdout)
        for command in COMMANDS[2:]:
            words = [word for word in command.split() if word != "-f"]
            assert project.spyweb(*words).stdout


def test_the_circuit_breaker_compiles_and_checks(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for number, script in enumerate(LUA):
        project.save(f"jobs/job{number}.lua", script)
    assert "no problems" in project.spyweb("check").stderr


def test_the_check_fails_by_its_condition(tmp_path: Path) -> None:
    """Without TLS, so without the condition about the certificate."""
    project, statuses = Project(tmp_path), [200, 503]
    with serving(lambda _: Answer(status=statuses.pop(0))) as origin:
        check = TOML[1].replace("https://example.org", origin).replace(', "cert_days > 14"', "")
        project.save("jobs/site.toml", check)
        project.save("config.toml", TOML[2])
        assert "no problems" in project.spyweb("check").stderr
        project.spyweb("run", "site")
        assert "status == 200 does not hold: status is 503" in project.spyweb("run", "site", code=1).stdout


def test_the_alert_channel_and_the_monitor_notify_of_what_is_new_after_the_first_cycle(tmp_path: Path) -> None:
    project, received = Project(tmp_path), []
    pages = [b'<article class="item"><h2><a href="/1">A release</a></h2></article>']

    def answer(request: Arrived) -> Answer:
        if request.method == "GET":
            return Answer(body=b"".join(pages), headers={"Content-Type": "text/html"})
        received.append(request.text)
        return Answer()

    with serving(answer) as origin:
        settings, _, _, monitor = TOML
        project.save("config.toml", settings.replace("ntfy://", f"ntfy://{origin.removeprefix('http://')}/"))
        project.save("jobs/articles/config.toml", monitor.replace("https://example.org", origin))
        assert "no problems" in project.spyweb("check").stderr
        (command,) = re.findall(r"`spyweb (alerts .*?)`", README)
        with project.daemon():
            assert project.ended("articles")[0].outcome is Outcome.SUCCESS
            assert "delivered to phone" in project.spyweb(*command.split()).stdout
            pages.append(pages[0].replace(b"/1", b"/2").replace(b"A release", b"Another release"))
            assert project.spyweb("run", "articles").stdout
            eventually(lambda: any("Another release" in text for text in received), "a notification")
        assert not [text for text in received if "A release" in text]
