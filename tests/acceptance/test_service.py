"""The daemon as systemd sees it, on a socket of our own."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tests.fakes import unit_filter
from tests.fakes.project import Project, eventually

UNIT = Path(__file__).parents[2] / "deploy/spyweb.service"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def heard(listener: socket.socket) -> list[str]:
    """Every message so far."""
    messages = []
    while True:
        try:
            messages.append(listener.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_systemd_is_told_ready_status_watchdog_and_stopping(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.job("one", "return 1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        project.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        told: list[str] = []
        with project.daemon() as daemon:

            def is_fed() -> bool:
                told.extend(heard(listener))
                return "WATCHDOG=1" in told

            eventually(is_fed)
            assert told[0].startswith("READY=1")
            assert any("STATUS=" in message for message in told)
            assert daemon.stop() == 0
        told += heard(listener)
        assert any("STOPPING=1" in message for message in told)


@pytest.mark.skipif(not unit_filter.is_possible(), reason="systemd-analyze or libseccomp is not installed")
def test_the_units_filter_takes_from_the_daemon_nothing_that_it_needs(tmp_path: Path) -> None:
    project = Project(tmp_path, launcher=(sys.executable, unit_filter.__file__, str(UNIT)))
    project.job("one", "return state.increment('n')")
    with project.daemon() as daemon:
        assert project.result("one") == 1
        health = project.daemon_client().health()
        assert not [right for right in health.rights if "not in force" in right]
        workers = [worker.pid for worker in health.workers if worker.pid]
        assert workers
        assert all(priority_of(worker) > priority_of(daemon.pid) for worker in workers)
        project.job("two", "return 2", 'every = "1s"')
        assert project.ended("two")
        assert daemon.stop() == 0


def priority_of(process: int) -> int:
    """Its niceness: the larger, the more it gives way."""
    return os.getpriority(os.PRIO_PROCESS, process)
