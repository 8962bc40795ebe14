"""A zygote over its socket: what it forks, what it kills, and how it ends."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from spyweb.confined.frames import FrameReader
from spyweb.lua import wire
from tests.fakes.worker_driver import WorkerDriver, ZygoteDriver, a_zygote
from tests.fakes.worker_threads import new_slots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what a worker may do is taken away on Linux")


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygoteDriver]:
    with a_zygote() as zygote:
        yield zygote


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def open_descriptors(pid: int) -> set[str]:
    return set(os.listdir(f"/proc/{pid}/fd"))


def test_each_fork_is_answered_with_the_process_it_made_and_leaves_nothing_open(zygote: ZygoteDriver) -> None:
    before = open_descriptors(zygote.process.pid)
    first, second = zygote.fork(), zygote.fork()

    assert first.pid != second.pid
    assert is_alive(first.pid)
    assert is_alive(second.pid)
    assert open_descriptors(zygote.process.pid) == before
    first.close()
    second.close()


def test_a_worker_that_has_ended_is_reported_with_its_exit_code(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.close()

    assert zygote.wait_for(wire.WorkerExited, worker.pid).exit_code == 0


def test_a_worker_is_killed_once_when_the_daemon_asks_for_it(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()

    zygote.kill(worker.pid)

    assert zygote.wait_for(wire.WorkerExited, worker.pid).exit_code == -9
    assert not is_alive(worker.pid)
    worker.close()
    zygote.kill(worker.pid)  # another process may have its number by now; ProcessLookupError would end the zygote
    zygote.fork().close()


def test_no_stranger_is_killed(zygote: ZygoteDriver) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        zygote.kill(stranger.pid)
        worker = zygote.fork()  # which it does after what came before

        assert stranger.poll() is None
        stranger.kill()
    worker.close()


def test_forks_that_come_at_once_are_each_given_their_own_descriptors(zygote: ZygoteDriver) -> None:
    small = [socket.socketpair() for _ in range(3)]
    bulk = [socket.socketpair() for _ in range(3)]
    slots = os.memfd_create("slots")
    os.ftruncate(slots, wire.SLOT_BYTES)
    descriptors = [fd for (_, a), (_, b) in zip(small, bulk, strict=True) for fd in (a.fileno(), b.fileno(), slots)]

    socket.send_fds(zygote.control, [wire.frame([wire.ForkWorker(ticket) for ticket in range(3)])], descriptors)
    pids = [zygote.wait_for(wire.WorkerForked, ticket).pid for ticket in range(3)]

    for mine, _ in small:
        mine.settimeout(10)
        (ready,) = FrameReader(wire.decode_from_worker).feed(mine.recv(1 << 16))
        assert isinstance(ready, wire.WorkerReady)
    for _, theirs in (*small, *bulk):
        theirs.close()
    zygote.kill(pids[2])
    assert small[2][0].recv(1) == b"", "a sibling would keep its socket open"
    os.close(slots)
    for mine, _ in (*small, *bulk):
        mine.close()


def test_where_no_process_can_be_had_the_reason_is_told() -> None:
    program = """
import errno, os, runpy, sys
def fork():
    raise OSError(errno.EAGAIN, "no process left")
os.fork = fork
sys.argv = ["zygote", sys.argv[1]]
runpy.run_module("spyweb.lua.worker.zygote", run_name="__main__")
"""
    mine, theirs = socket.socketpair()
    with (
        mine,
        subprocess.Popen([sys.executable, "-c", program, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as it,
    ):
        theirs.close()
        mine.settimeout(10)
        socket.send_fds(mine, [wire.frame([wire.ForkWorker(5)])], [mine.fileno()] * 3)
        reader = FrameReader(wire.decode_from_zygote)
        heard: list[wire.FromZygote] = []
        while len(heard) < 2:
            heard += reader.feed(mine.recv(1 << 16))

        assert heard[1] == wire.ForkFailed(5, "fork: no process left")
        assert it.poll() is None, "it goes on"
        it.kill()


PROGRAM = """
import sys
from spyweb.lua.worker.zygote import work
from spyweb.lua.worker.vm import compile_lua_files

work(*map(int, sys.argv[1:]), compile_lua_files())
"""
# The same, but in place of its threads stands what prints the environment.
SHOWS_ENVIRONMENT = """
import os
from spyweb.lua.worker import zygote

class Threads:
    def __init__(self, registry, handler, console, sender, shared):
        self._sender = sender
    def run(self, *_):
        print(*os.environ, flush=True)
        self._sender.flush()
        os._exit(0)

zygote.Threads = Threads
""" + PROGRAM  # fmt: skip


@contextmanager
def started(program: str = PROGRAM) -> Iterator[tuple[subprocess.Popen[str], WorkerDriver]]:
    (small, its_small), (bulk, its_bulk) = socket.socketpair(), socket.socketpair()
    slots = new_slots()
    theirs = (its_small.detach(), its_bulk.detach(), slots)
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, theirs)],
        pass_fds=theirs,
        env=os.environ | {"TZ": "Asia/Tokyo", "SECRET": "x"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        memory = mmap.mmap(slots, wire.SLOT_BYTES)
        for descriptor in theirs:
            os.close(descriptor)
        try:
            worker = WorkerDriver(process.pid, small, bulk, memory)
            yield process, worker
            worker.close()
        finally:
            process.kill()


def test_a_big_message_that_overtakes_the_first_one_waits_for_it() -> None:
    script = f"return echo('x') -- {'x' * 2 * wire.BULK}"
    with started() as (_, worker):
        worker.say(wire.LoadVm(1, [("jobs/x.lua", script.encode())], 64 << 20))
        worker.say(wire.PingWorker(1))
        worker.wait_for(wire.Pong)
        worker.init()
        assert worker.wait_for(wire.VmLoaded).reason is None
        worker.begin(1, 1)

        assert worker.end(1).result == [b"x"]
    assert "no core, no further descriptors, no file growth" in worker.rights


@pytest.mark.parametrize("lost", [0, 1])
def test_it_ends_in_silence_when_either_socket_is_lost(lost: int) -> None:
    with started() as (process, worker):
        worker.init()
        [worker._main, worker._bulk][lost].close()

        said, complaint = process.communicate(timeout=10)

    assert (process.returncode, said, complaint) == (0, "", "")


def test_nothing_is_left_of_the_environment_but_the_time_zone() -> None:
    with started(SHOWS_ENVIRONMENT) as (process, _):
        shown, _ = process.communicate(timeout=10)

    assert shown.split() == ["TZ"]
