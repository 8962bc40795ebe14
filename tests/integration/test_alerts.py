"""A job fails, and somebody is told: a real daemon, killed where it hurts, and a receiver on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from spyweb.cli.client import DaemonClient, find_daemon
from spyweb.errors import Refused
from tests.fakes.alert_services import Answer, Services, open_services
from tests.fakes.hook import Hook, open_hook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SPYWEB = [sys.executable, "-m", "spyweb"]
REPOSITORY = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds; a machine under load is slow
CONFIG = """[server]
enabled = false
[channels.ops]
webhook = "{url}"
[channels.phone]
url = "ntfy://127.0.0.1:{port}/s3cr3t-t0pic"
[alerts]
to = ["ops", "phone"]
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


@dataclass(frozen=True)
class Life:
    """What has come to the two receivers, and what is left on disk."""

    hook: Hook
    services: Services
    root: Path
    told_before_the_first_kill: int
    told: Sequence[Mapping[str, str]]  # what each channel knew, once the job was down and once it was well again

    @property
    def kinds(self) -> Sequence[tuple[int, str]]:
        return [(item["incident"], item["kind"]) for body in self.hook.bodies for item in json.loads(body)["items"]]

    @property
    def titles(self) -> Sequence[str]:
        return [arrived.json["title"] for arrived in self.services.arrived]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Have a job fail, its daemon killed before it tells anybody, the next while it does; then the job is mended."""
    root = tmp_path_factory.mktemp("project")
    with open_hook(hangs=True) as hook, open_services(tmp_path_factory.mktemp("services")) as services:
        services.answer = lambda arrived: Answer(status=500 if len(services.arrived) == 1 else 200, body=arrived.body)
        (root / "jobs").mkdir()
        (root / "jobs/backup.lua").write_text(BROKEN)
        (root / "config.toml").write_text(CONFIG.format(url=hook.url, port=services.port))
        with daemon(root) as (process, client):
            until(lambda: len(client.incidents(is_open=True, limit=10)) == 1)
            kill(process)
        told_before = len(hook.bodies) + len(services.arrived)
        with daemon(root) as (process, _):
            until(lambda: bool(hook.bodies and services.arrived))
            kill(process)
        hook.hangs = False
        with daemon(root) as (process, client):
            until(lambda: len(hook.bodies) == len(services.arrived) == 2)  # what was not taken has come again
            (down,) = client.incidents(is_open=True, limit=10)
            (root / "jobs/backup.lua").write_text(MENDED)
            until(lambda: len(hook.bodies) == len(services.arrived) == 3)
            (well,) = client.incidents(is_open=False, limit=10)
            kill(process)
        yield Life(hook, services, root, told_before, [down.told, well.told])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_what_a_killed_daemon_had_not_told_is_told_once_by_the_next(life: Life) -> None:
    assert life.told_before_the_first_kill == 0, "the run's end was on record, and nothing was sent yet"
    assert life.kinds == [(1, "opened"), (1, "opened"), (1, "closed")]
    assert life.told == [{"ops": "open", "phone": "open"}, {"ops": "closed", "phone": "closed"}]


def test_what_was_being_sent_as_a_daemon_was_killed_is_sent_again_with_the_same_id(life: Life) -> None:
    first, again, closing = life.hook.deliveries
    assert first == again != closing
    assert life.hook.bodies[0] == life.hook.bodies[1]


def test_a_service_is_told_from_the_opening_to_the_end(life: Life) -> None:
    first, again, closing = life.titles
    assert first == again
    assert re.fullmatch(r"#1 backup is down: \d+ failures", first)
    assert closing.startswith("#1 backup is well again after")
    assert "no space" in life.services.arrived[0].json["message"]


def test_no_address_is_in_the_database_or_a_log(life: Life) -> None:
    kept = [path for path in life.root.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert b"no space" in b"".join(path.read_bytes() for path in kept)
    for secret in (b"s3cr3t-t0pic", life.hook.url.encode()):
        assert not [path for path in kept if secret in path.read_bytes()]
