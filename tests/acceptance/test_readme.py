"""What README shows works as it is written there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.project import Project, eventually
from tests.fakes.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

README = (ROOT / "README.md").read_text()
LUA = re.findall(r"```lua\n(.*?)```", README, re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/spyweb (.*?)(?: +#.*)?$", README, re.MULTILINE)


@pytest.mark.parametrize("target", ["start", "test"])
def test_the_two_commands_of_the_first_screen_are_there(target: str) -> None:
    assert f"\nmake {target} " in README.split("\n## ")[0]
    planned = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr


def test_the_jobs_run_and_the_commands_answer(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.save("jobs/plain.lua", LUA[0])
    project.save("jobs/hello.lua", LUA[1])
    assert len(COMMANDS) >= 4
    with project.daemon():
        assert project.ended("hello")[0].outcome is Outcome.SUCCESS
        eventually(lambda: "hello number" in project.spyweb("logs", "hello").stdout)
        for command in COMMANDS:
            words = [word for word in command.split() if word != "-f"]
            assert project.spyweb(*words).stdout


def test_the_circuit_breaker_compiles_and_checks(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for number, script in enumerate(LUA):
        project.save(f"jobs/job{number}.lua", script)
    assert "no problems" in project.spyweb("check").stderr


def test_the_first_alert_is_what_the_settings_take(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (settings,) = (block for block in TOML if "[channels.phone]" in block)
    project.save("config.toml", settings)
    project.job("plain", "return 1")
    assert "no problems" in project.spyweb("check").stderr
    (command,) = re.findall(r"`\.venv/bin/spyweb (alerts .*?)`", README)
    project.save("config.toml", settings.replace("ntfy://", "ntfy://127.0.0.1:9/"))
    with project.daemon():
        refused = project.spyweb(*command.split(), code=1)
    assert "phone: ConnectionError" in refused.stdout
