"""A job that runs elsewhere tells a real daemon of it, with curl; when it does not, a webhook is told."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.http_server import Answer, Arrived, serving
from tests.fakes.project import Daemon, Project, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed"),
]

CONFIG = """\
[channels.ops]
webhook = "{origin}/alert"
[alerts]
to = ["ops"]
[jobs.backup]
expect = "ping"
every = "2s"
grace = "1s"
timeout = "1h"
hook = {{ secret = "env:BACKUP_SECRET" }}
"""
SECRET = "X-SpyWeb-Hook-Secret: s3cret"


@dataclass
class Watcher:
    """Keeps the requests that a daemon sends."""

    origin: str = ""
    got: list[Arrived] = field(default_factory=list)

    def take(self, arrived: Arrived) -> Answer:
        self.got.append(arrived)
        return Answer(body=b"")


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    with serving(watcher.take) as watcher.origin:
        yield watcher


@pytest.fixture
def project(tmp_path: Path, watcher: Watcher) -> Project:
    project = Project(tmp_path, is_quick=True)
    (tmp_path / "jobs").mkdir()
    project.save("config.toml", CONFIG.format(origin=watcher.origin))
    project.environment["BACKUP_SECRET"] = "s3cret"
    return project


def curl(daemon: Daemon, *words: str, says: str = "") -> subprocess.CompletedProcess[str]:
    url = f"{daemon.url}/api/hooks/backup{says}"
    return subprocess.run(["curl", "-fsS", *words, url], capture_output=True, text=True, timeout=20, check=False)


def told(watcher: Watcher) -> list[str]:
    facts = [each.json for each in list(watcher.got) if each.path == "/alert"]
    return [f"{item['kind']} {item['reason']}" for each in facts for item in each["items"]]


def test_a_ping_that_does_not_come_is_told_and_so_is_the_next_that_does(project: Project, watcher: Watcher) -> None:
    with project.daemon() as daemon:
        assert curl(daemon).returncode != 0, "without the secret it is nobody's ping"
        assert curl(daemon, "-H", SECRET).returncode == 0
        eventually(lambda: told(watcher) == ["opened late"], "an incident that is told", patience=40)
        assert curl(daemon, "-H", SECRET, "--retry", "3").returncode == 0
        eventually(lambda: "closed late" in told(watcher), f"its end, told: {told(watcher)}", patience=30)


def test_what_is_under_way_elsewhere_outlives_a_daemon_that_is_killed(project: Project) -> None:
    with project.daemon() as daemon:
        assert curl(daemon, "-H", SECRET, says="/start?rid=7").returncode == 0
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
    with project.daemon() as daemon:
        assert project.shown("backup").in_flight == 1
        sent = curl(daemon, "-H", SECRET, "--data-binary", "no space left\n", says="/28?rid=7")
        assert sent.returncode == 0
        (run,) = project.runs("backup")
        assert (run.outcome, run.reason) == (Outcome.FAILED, "exit code 28: no space left")
        eventually(lambda: "no space left" in project.spyweb("logs", "backup").stdout, "its log")
        assert project.shown("backup").schedule == "expects a ping every 2s"


def test_a_watcher_is_told_that_spyweb_works_and_of_each_run_of_a_job(project: Project, watcher: Watcher) -> None:
    url = f"{watcher.origin}/${{PING_KEY}}"
    project.save(
        "config.toml", f'[heartbeat]\nurl = "{url}/spyweb"\nevery = "10s"\n[defaults]\nping_url = "{url}/{{job}}"\n'
    )
    project.environment["PING_KEY"] = "s3cret-key"
    project.job("good", 'function run() log("info", "copied 3 files") end')
    project.job("bad", 'function run() error("no space") end')
    with project.daemon():
        project.spyweb("run", "good")
        project.spyweb("run", "bad", code=1)
        wanted = {
            ("GET", "/s3cret-key/spyweb"),
            ("POST", "/s3cret-key/good/start"),
            ("POST", "/s3cret-key/good"),
            ("POST", "/s3cret-key/bad/start"),
            ("POST", "/s3cret-key/bad/fail"),
        }

        def have_come() -> bool:
            return wanted <= {(each.method, each.path.partition("?")[0]) for each in list(watcher.got)}

        eventually(have_come, "all pings", patience=40)
        health = project.spyweb("health").stdout
        outbox = project.spyweb("outbox").stdout
    bodies = {each.path.partition("?")[0]: each.body for each in watcher.got}
    assert b"no space" in bodies["/s3cret-key/bad/fail"]
    rids = {each.path.partition("rid=")[2] for each in watcher.got if "/good" in each.path}
    assert len(rids) == 1, "what is told of a run has one id"
    assert "heartbeat" in health
    written = [path for path in (project.root / "data").iterdir() if path.is_file()]
    everything = health + outbox + (project.root / "daemon.out").read_text()
    assert "s3cret-key" not in everything
    assert not [path.name for path in written if b"s3cret-key" in path.read_bytes()]
