from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spyweb.daemon.systemd import Notifier, from_environment

Listen = Callable[[str], socket.socket]


@pytest.fixture
def listen() -> Iterator[Listen]:
    with ExitStack() as stack:

        def bind(address: str) -> socket.socket:
            receiver = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            receiver.bind("\0" + address[1:] if address.startswith("@") else address)
            receiver.settimeout(5)
            return receiver

        yield bind


def test_each_message_is_one_datagram(tmp_path: Path, listen: Listen) -> None:
    receiver = listen(str(tmp_path / "notify"))
    notifier = from_environment({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert notifier.ready("5 jobs")
    assert notifier.status("6 jobs\nREADY=0")
    assert notifier.watchdog()
    assert notifier.stopping()
    assert [receiver.recv(1024) for _ in range(4)] == [
        b"READY=1\nSTATUS=5 jobs",
        b"STATUS=6 jobs READY=0",
        b"WATCHDOG=1",
        b"STOPPING=1",
    ]


def test_an_at_sign_is_an_abstract_socket(listen: Listen) -> None:
    name = f"@spyweb-test-{secrets.token_hex(8)}"
    receiver = listen(name)
    assert from_environment({"NOTIFY_SOCKET": name}).ready()
    assert receiver.recv(1024) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_a_socket_nothing_is_sent(environment: dict[str, str]) -> None:
    notifier = from_environment({**environment, "WATCHDOG_USEC": "1000000"})
    assert not notifier.ready()
    assert not notifier.watchdog()
    assert notifier.watchdog_interval_s is None


def test_a_listener_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert not Notifier(address=str(tmp_path / "nobody")).watchdog()


def test_a_listener_that_does_not_read_never_makes_us_wait(tmp_path: Path, listen: Listen) -> None:
    listen(str(tmp_path / "notify"))
    notifier = Notifier(address=str(tmp_path / "notify"))
    assert any(not notifier.status("x" * 200) for _ in range(10_000))


@pytest.mark.parametrize(
    ("usec", "pid", "interval"),
    [("30000000", "7", 15.0), ("30000000", None, 15.0), ("30000000", "8", None), ("0", "7", None), ("soon", "7", None)],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked_and_only_by_its_process(
    usec: str, pid: str | None, interval: float | None
) -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": usec} | ({"WATCHDOG_PID": pid} if pid else {})
    assert from_environment(environment, pid=7).watchdog_interval_s == interval
