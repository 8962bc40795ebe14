"""The daemon as systemd sees it, on a socket of our own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.fakes.project import Project, eventually

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
