"""A job fails, and somebody is told: a real daemon, killed where it hurts, and a receiver on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from spyweb.cli.client import DaemonClient, find_daemon
from spyweb.errors import Refused
from tests.fakes.alert_services import Answer, open_services
from tests.fakes.hook import Hook, open_hook

pytestmark = pytest.mark.slow

SPYWEB = [sys.executable, "-m", "spyweb"]
REPOSITORY = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds; a machine under load is slow
CONFIG = """[server]
enabled = false
[channels.ops]
webhook = "{url}"
[alerts]
to = ["ops"]
after_failures = 2
"""
BROKEN = """-- /// job
-- every = "200ms"
-- ///
error("no space")
"""
MENDED = """-- /// job
-- every = "200ms"
-- ///
log("fine")
"""


def set_up(root: Path, hook: Hook) -> None:
    (root / "jobs").mkdir()
    (root / "jobs/backup.lua").write_text(BROKEN)
    (root / "config.toml").write_text(CONFIG.format(url=hook.url))


@contextmanager
def daemon(root: Path) -> Iterator[tuple[subprocess.Popen[bytes], DaemonClient]]:
    """Killed if the test leaves it running."""
    command = [*SPYWEB, "-C", str(root), "start"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            until(lambda: find_daemon(root / "data") is not None)
            client = find_daemon(root / "data")
            assert client
            yield started, client
        finally:
            started.kill()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except (Refused, OSError):  # it has just begun
            pass
        time.sleep(0.02)
    raise AssertionError("it never was")


def kinds_of(hook: Hook) -> Sequence[tuple[int, str]]:
    return [(item["incident"], item["kind"]) for body in hook.bodies for item in json.loads(body)["items"]]


def test_what_a_killed_daemon_had_not_told_is_told_once_by_the_next(tmp_path: Path) -> None:
    with open_hook() as hook:
        set_up(tmp_path, hook)
        with daemon(tmp_path) as (process, client):
            until(lambda: len(client.incidents(is_open=True, limit=10)) == 1)
            process.kill()  # the run's end is on record, and nothing is sent yet
            process.wait()
        assert hook.bodies == []
        with daemon(tmp_path) as (_, client):
            until(lambda: bool(hook.bodies))
            (tmp_path / "jobs/backup.lua").write_text(MENDED)
            until(lambda: len(hook.bodies) == 2)
            (found,) = client.incidents(is_open=False, limit=10)
            assert found.told == {"ops": "closed"}
        assert kinds_of(hook) == [(1, "opened"), (1, "closed")]


def test_what_was_being_sent_as_a_daemon_was_killed_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    with open_hook(hangs=True) as hook:
        set_up(tmp_path, hook)
        with daemon(tmp_path) as (process, _):
            until(lambda: bool(hook.bodies))
            process.kill()
            process.wait()
        hook.hangs = False
        with daemon(tmp_path):
            until(lambda: len(hook.bodies) == 2)
        assert kinds_of(hook) == [(1, "opened"), (1, "opened")]
        assert len(set(hook.deliveries)) == 1


def test_a_service_is_told_from_the_opening_to_the_end_and_its_address_is_nowhere(tmp_path: Path) -> None:
    with open_services(tmp_path) as services:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs/backup.lua").write_text(BROKEN)
        service = f'url = "ntfy://127.0.0.1:{services.port}/s3cr3t-t0pic"'
        (tmp_path / "config.toml").write_text(CONFIG.replace('webhook = "{url}"', service))
        services.answer = lambda arrived: Answer(status=500 if len(services.arrived) == 1 else 200, body=arrived.body)
        with daemon(tmp_path) as (_, client):
            until(lambda: len(services.arrived) == 2)  # the first was not taken
            (waiting,) = client.incidents(is_open=True, limit=10)
            assert waiting.told == {"ops": "open"}
            (tmp_path / "jobs/backup.lua").write_text(MENDED)
            until(lambda: len(services.arrived) == 3)
        titles = [arrived.json["title"] for arrived in services.arrived]
        assert titles[0] == titles[1]
        assert re.fullmatch(r"#1 backup is down: \d+ failures", titles[1])
        assert titles[2].startswith("#1 backup is well again after")
        assert "no space" in services.arrived[0].json["message"]
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert b"no space" in b"".join(path.read_bytes() for path in kept)
    assert not [path for path in kept if b"s3cr3t-t0pic" in path.read_bytes()]


def test_no_address_is_in_the_database(tmp_path: Path) -> None:
    with open_hook() as hook:
        set_up(tmp_path, hook)
        with daemon(tmp_path):
            until(lambda: bool(hook.bodies))
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("spyweb.db*"))
        assert b"no space" in stored
        assert hook.url.encode() not in stored
