from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spyweb.daemon import process
from spyweb.daemon.process import THREADS, start_threads
from spyweb.daemon.serve import Options
from spyweb.errors import Refused


def refuse(_thread: threading.Thread) -> None:
    """Refuse as where a limit of processes is reached: what has been started goes on."""
    raise RuntimeError("can't start new thread")


def test_a_daemon_that_can_start_no_thread_any_more_ends_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_options: Options) -> None:
        await asyncio.to_thread(lambda: None)
        monkeypatch.setattr(threading.Thread, "start", refuse)

    monkeypatch.setattr(process, "serve", serve)

    assert process.main(["--root", "."]) == 0


@pytest.mark.parametrize(("is_journal", "mark"), [(True, "<3>"), (False, "")])
def test_a_start_that_is_refused_is_an_error_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_journal: bool, mark: str
) -> None:
    async def refuse(_options: Options) -> None:
        raise Refused("no")

    monkeypatch.setattr(process, "serve", refuse)
    with (tmp_path / "errors").open("w+") as errors:
        found = os.fstat(errors.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}" if is_journal else "1:2")
        monkeypatch.setattr(sys, "stderr", errors)
        assert process.main(["--root", "."]) == 2
        assert (tmp_path / "errors").read_text() == f"{mark}spyweb: no\n"


async def test_where_no_thread_can_be_started_later_work_waits_for_one_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await start_threads()
    with monkeypatch.context() as no_thread_left:
        no_thread_left.setattr(threading.Thread, "start", refuse)
        names = await asyncio.gather(*(asyncio.to_thread(lambda: threading.current_thread().name) for _ in range(99)))

    assert all(name.startswith("spyweb") for name in names)


@pytest.mark.parametrize("allowed", [0, THREADS - 1])
async def test_a_system_that_lets_too_few_threads_be_started_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_some(thread: threading.Thread) -> None:
        if len(started) >= allowed:
            refuse(thread)
        started.append(thread)
        start(thread)

    with monkeypatch.context() as few_threads:
        few_threads.setattr(threading.Thread, "start", start_some)
        with pytest.raises(Refused, match=f"fewer than {THREADS} threads"):
            await start_threads()


CONNECT = """
import asyncio, os, socket, uvloop
from spyweb.daemon.process import start_threads

async def main():
    await start_threads()
    prepared = set(os.listdir("/proc/self/task"))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, server.getsockname())
        await asyncio.to_thread(lambda: None)
    assert set(os.listdir("/proc/self/task")) == prepared

uvloop.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of a process so")
def test_the_first_connection_of_a_daemon_starts_no_thread() -> None:
    """In a process of its own: here some other test may have been first."""
    pytest.importorskip("uvloop")
    subprocess.run([sys.executable, "-c", CONNECT], check=True)
