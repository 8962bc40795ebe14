"""A worker process, from its first message to its end, without a zygote above it."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import WorkerDriver
from tests.fakes.worker_threads import new_slots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a memory without a name is Linux's")

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


def test_a_worker_first_says_which_rights_it_has_given_up() -> None:
    with started() as (_, worker):
        assert worker.rights
        assert all(isinstance(right, str) for right in worker.rights)


def test_it_runs_scripts_and_says_how_they_end() -> None:
    with started() as (_, worker):
        worker.init()

        assert worker.run("return 1 + 1").result == [2]
        assert worker.run("error('no')", run=2, vm=2).ended is Ended.ERROR


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


def test_it_listens_on_both_sockets_and_answers_on_both() -> None:
    long = "x" * 2 * wire.BULK
    with started() as (_, worker):
        worker.init()

        assert worker.run(f"return #echo({long!r})").result == [len(long)]


def test_it_goes_on_when_its_first_thread_has_been_overtaken() -> None:
    with started() as (_, worker):
        worker.init()
        end = worker.run("local t = os.clock() while os.clock() - t < 0.1 do end")
        assert end.ended is Ended.SUCCESS

        worker.say(wire.PingWorker(1))
        worker.wait_for(wire.Pong)
        assert worker.run("return 2", run=2, vm=2).result == [2]


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
