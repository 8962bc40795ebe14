from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spyweb.daemon.options import Options
from spyweb.daemon.serve import serve
from spyweb.daemon.threads import NAME, Threads
from spyweb.errors import ConfigError


@pytest.fixture
def no_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a limit of processes is reached: what has been started goes on."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def occupied(threads: ThreadPoolExecutor) -> threading.Event:
    """Its only thread is at work until the event is set."""
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait()

    threads.submit(work)
    begun.wait()
    return release


def test_where_no_thread_can_be_started_work_waits_for_one_that_is_there(request: pytest.FixtureRequest) -> None:
    threads = Threads()
    release = occupied(threads)
    request.getfixturevalue("no_thread_left")

    second = threads.submit(lambda: "done")

    assert not second.done()
    release.set()
    assert second.result() == "done"
    threads.shutdown()


@pytest.mark.usefixtures("no_thread_left")
def test_without_any_thread_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Threads().submit(lambda: None)


async def test_it_is_these_threads_that_a_daemon_waits_in(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[daemon]\nworkers = 'many'\n")
    with pytest.raises(ConfigError):
        await serve(Options(root=tmp_path, flags={}))

    assert (await asyncio.to_thread(threading.current_thread)).name.startswith(NAME)


CONNECT = """
import asyncio, os, socket, uvloop
from spyweb.daemon.threads import prepare_threads

async def main():
    await prepare_threads()
    prepared = set(os.listdir("/proc/self/task"))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, server.getsockname())
    assert set(os.listdir("/proc/self/task")) == prepared

uvloop.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of a process so")
def test_the_first_connection_of_a_daemon_starts_no_thread() -> None:
    """In a process of its own: here some other test may have been first."""
    pytest.importorskip("uvloop")
    subprocess.run([sys.executable, "-c", CONNECT], check=True)
