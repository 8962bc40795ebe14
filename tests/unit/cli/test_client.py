"""The command line's client, against the socket it speaks to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from spyweb.cli.client import DaemonClient, find_daemon
from spyweb.daemon.commands.run import RunOptions, run_in_daemon
from spyweb.errors import NoAccess, Refused
from spyweb.model import JobId
from spyweb.subjects.jobs.commands import start_run
from spyweb.views.runs import RunEvent
from spyweb.web.connections import ConnectionLimiter, ConnectionLimits
from spyweb.web.serve import serve_socket
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import (
    PRICES,
    FakeDaemonService,
    a_watched_run,
    refused,
)
from tests.fakes.daemon_socket import let_in

T = TypeVar("T")


async def ask(service: FakeDaemonService, data_dir: Path, question: Callable[[DaemonClient], T]) -> T:
    """Ask from a thread, as another process would, while the loop answers."""
    async with serve_socket(service, data_dir):
        daemon = find_daemon(data_dir)
        assert daemon is not None
        try:
            return await asyncio.to_thread(question, daemon)
        finally:
            await let_in()


async def test_a_start_that_the_overlap_rule_drops_has_no_run(tmp_path: Path) -> None:
    assert await ask(FakeDaemonService(next_id=None), tmp_path, lambda daemon: start_run(daemon, PRICES)) is None


async def test_a_job_whose_id_is_no_url_is_reached_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no job is named 'a/\.\./ü\?b'"):
        await ask(FakeDaemonService(), tmp_path, lambda daemon: start_run(daemon, JobId("a/../ü?b")))


@pytest.mark.parametrize(
    "service",
    [FakeDaemonService(refusal=refused()), FakeDaemonService(late_refusal=refused(), events=a_watched_run()[:2])],
)
async def test_a_refusal_before_or_within_a_run_is_raised_here(service: FakeDaemonService, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"^prices is running$"):
        await ask(service, tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, print, RunOptions()))


async def test_a_stream_that_ends_before_the_run_does_is_told(tmp_path: Path) -> None:
    service = FakeDaemonService(events=a_watched_run()[:2])  # the stream ends without an end of the run
    with pytest.raises(Refused, match="closed the connection before the run had ended"):
        await ask(service, tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, print, RunOptions()))


async def test_a_daemon_that_ends_before_the_run_does_is_told(tmp_path: Path) -> None:
    def watch(event: RunEvent) -> None:
        (tmp_path / "spyweb.sock").unlink(missing_ok=True)

    service = FakeDaemonService(events=a_watched_run()[:2])
    with pytest.raises(Refused, match="the daemon ended before the run had ended"):
        await ask(service, tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, watch, RunOptions()))


async def test_a_connection_too_many_is_told(tmp_path: Path) -> None:
    full = ConnectionLimiter(ConnectionLimits(total=0, of_one_address=0), FakeClock())
    async with serve_socket(FakeDaemonService(), tmp_path, full):
        daemon = find_daemon(tmp_path)
        assert daemon is not None
        with pytest.raises(
            Refused, match=r"the daemon (refuses the connection \(503\): too many|closed the connection)"
        ):
            await asyncio.to_thread(daemon.jobs)
        await let_in()


async def test_what_is_refused_before_all_of_it_was_sent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyweb.web.app.SOCKET_BODY", 1 << 20)
    line = (bytes(100_000) for _ in range(200))
    with pytest.raises(Refused, match="a line may be 1 MB"):
        await ask(
            FakeDaemonService(), tmp_path, lambda daemon: daemon.ask("POST", "/api/state/import", dict, body=line)
        )


def test_a_daemon_that_takes_no_connection_is_not_taken_for_one_that_is_gone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stuck, socket.socket(socket.AF_UNIX) as waiting:
        stuck.bind(str(tmp_path / "spyweb.sock"))
        stuck.listen(0)
        waiting.connect(stuck.getsockname())  # all that its queue holds
        with pytest.raises(Refused, match="the daemon is there, but takes no connection"):
            find_daemon(tmp_path)


# -- no daemon, or a strange one ------------------------------------------------------------------------------


def test_no_socket_and_no_data_directory_is_no_daemon(tmp_path: Path) -> None:
    assert find_daemon(tmp_path) is None
    assert find_daemon(tmp_path / "absent") is None


def test_the_socket_of_a_killed_daemon_is_no_daemon(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "spyweb.sock"))
    assert find_daemon(tmp_path) is None


@contextmanager
def impostor(data_dir: Path, answer: bytes) -> Iterator[DaemonClient]:
    """Something that answers every connection with these bytes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data_dir / "spyweb.sock"))
        listener.listen()

        def serve() -> None:
            for _ in range(2):  # find_daemon's knock, then the question
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(5)
                    if connection.recv(4096):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            daemon = find_daemon(data_dir)
            assert daemon is not None
            yield daemon
        finally:
            thread.join(5)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection before it had answered"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", "closed the connection before it had answered"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[{"id": 1}]', "another version"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "another version"),
        (b"not HTTP at all\r\n\r\n", "closed the connection before it had answered"),
    ],
)
def test_an_answer_that_makes_no_sense_is_one_clear_line(tmp_path: Path, answer: bytes, words: str) -> None:
    with impostor(tmp_path, answer) as daemon, pytest.raises(Refused, match=words):
        daemon.jobs()


def test_a_socket_that_may_not_be_opened_says_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spyweb.cli.client.UnixConnection.connect", refuse)
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    with pytest.raises(NoAccess, match=r"belongs to .* use `sudo -u "):
        find_daemon(tmp_path)
