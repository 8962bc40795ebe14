"""What a daemon does every so often, each chore by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.build import Daemon
from spyweb.daemon.chores import STATUS_S, DescriptorWatch, Listeners, ProgressReport, list_chores, restore_files
from spyweb.daemon.systemd import Notifier
from spyweb.errors import LockHeld
from spyweb.runs.live import LiveJobs
from spyweb.scheduler.scheduler import Scheduler
from spyweb.settings import load_settings
from spyweb.settings.sections import LOCK_NAME
from spyweb.store.lock import hold_lock
from spyweb.views.health import SCHEDULER_STALLED_MS
from spyweb.web.serve import PrivateSocket
from spyweb.web.tls import ServerCertificate
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNotifier(Notifier):
    """systemd, and what it is told."""

    told: list[str] = field(default_factory=list)

    def _send(self, *fields: str) -> bool:
        self.told.extend(fields)
        return True


def make_daemon(root: Path, notifier: Notifier) -> Daemon:
    clock = FakeClock()
    runtime = SimpleNamespace(
        clock=clock,
        store=MemoryStore(clock),
        live=LiveJobs(),
        outbox_sender=None,
        runner=None,
        settings=load_settings(root, environ={}, flags={}),
    )
    scheduler = SimpleNamespace(lag_ms=0)
    reloader = SimpleNamespace(wake=lambda: notifier.status("woken"), settings=runtime.settings)
    service = SimpleNamespace(drift=None)
    daemon = SimpleNamespace(
        runtime=runtime,
        notifier=notifier,
        scheduler=scheduler,
        reloader=reloader,
        service=service,
        heartbeat=SimpleNamespace(look=None),
    )
    return cast("Daemon", daemon)


def test_every_chore_has_a_name_of_its_own_an_interval_and_a_reason(tmp_path: Path) -> None:
    with hold_lock(tmp_path) as lock:
        socket = cast("PrivateSocket", FakeSocket(tmp_path))
        chores = list_chores(make_daemon(tmp_path, FakeNotifier()), lock, Listeners(private=socket))
    assert {chore.name: chore.every_s for chore in chores} == {
        "progress": 10,
        "descriptors": 10,
        "lock and socket": 10,
        "certificate": 30,
        "rescan": 60,
        "drift": 5,
        "heartbeat": 5,
        "sweep": 300,
        "prune": 600,
    }
    assert all(chore.why for chore in chores)


@pytest.mark.parametrize(("watchdog_s", "every_s"), [(None, STATUS_S), (3.0, 3.0), (600.0, STATUS_S)])
async def test_the_watchdog_is_fed_as_often_as_systemd_wants_it(
    tmp_path: Path, watchdog_s: float | None, every_s: float
) -> None:
    notifier = FakeNotifier(watchdog_interval_s=watchdog_s)
    with hold_lock(tmp_path) as lock:
        chores = list_chores(
            make_daemon(tmp_path, notifier), lock, Listeners(private=cast("PrivateSocket", FakeSocket(tmp_path)))
        )
    by_name = {chore.name: chore for chore in chores}
    assert by_name["progress"].every_s == every_s
    await by_name["progress"].do()
    await by_name["rescan"].do()
    assert notifier.told == ["WATCHDOG=1", "STATUS=0 jobs, 0 running", "STATUS=woken"]


async def test_a_daemon_that_makes_no_progress_is_told_once_and_the_watchdog_starves() -> None:
    notifier, scheduler = FakeNotifier(), SimpleNamespace(lag_ms=SCHEDULER_STALLED_MS + 1)
    report = ProgressReport(notifier, cast("Scheduler", scheduler), MemoryStore(FakeClock()), LiveJobs())
    with capture_logs() as lines:
        await report.tell()
        await report.tell()
        scheduler.lag_ms = 0
        await report.tell()
    assert [line["event"] for line in lines] == ["no progress"]
    behind = "STATUS=the scheduler is 5.001s behind"
    assert notifier.told == [behind, behind, "WATCHDOG=1", "STATUS=0 jobs, 0 running"]


async def test_that_hardly_any_descriptors_are_left_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [100, 63, 10, 100, 1]
    monkeypatch.setattr("spyweb.daemon.chores.descriptors.left", lambda: left.pop(0))
    watch = DescriptorWatch()
    with capture_logs() as told:
        for _ in range(5):
            await watch.look()
    assert [line["left"] for line in told] == [63, 1]


@dataclass
class FakeSocket:
    """The private socket; whether somebody has removed it."""

    path: Path
    is_removed: bool = False

    async def restore(self) -> bool:
        was_removed, self.is_removed = self.is_removed, False
        return was_removed


async def test_a_lock_file_and_a_socket_that_were_removed_are_made_again_and_told(tmp_path: Path) -> None:
    private = FakeSocket(tmp_path / "spyweb.sock", is_removed=True)
    with hold_lock(tmp_path) as lock, capture_logs() as told:
        (tmp_path / LOCK_NAME).unlink()
        for _ in range(2):
            await restore_files(lock, cast("PrivateSocket", private))
        with pytest.raises(LockHeld):
            hold_lock(tmp_path)

    assert [line["event"] for line in told] == [
        "the lock file was removed, and is made again",
        "the socket was removed, and is made again",
    ]


async def test_a_lock_file_that_can_not_be_made_again_is_told_and_nothing_else_happens(tmp_path: Path) -> None:
    private = FakeSocket(tmp_path / "spyweb.sock")
    with hold_lock(tmp_path) as lock, capture_logs() as told:
        (tmp_path / LOCK_NAME).unlink()
        with hold_lock(tmp_path):
            await restore_files(lock, cast("PrivateSocket", private))

    assert told[0]["log_level"] == "error"
    assert "is in use by" in told[0]["reason"]


async def test_a_renewed_certificate_is_looked_for_where_there_is_one(tmp_path: Path) -> None:
    looked: list[str] = []
    certificate = SimpleNamespace(renew=lambda: looked.append("renewed"))
    socket = cast("PrivateSocket", FakeSocket(tmp_path))
    for given in (None, certificate):
        with hold_lock(tmp_path) as lock:
            listeners = Listeners(private=socket, certificate=cast("ServerCertificate | None", given))
            chores = list_chores(make_daemon(tmp_path, FakeNotifier()), lock, listeners)
        (chore,) = (each for each in chores if each.name == "certificate")
        await chore.do()
    assert looked == ["renewed"]
