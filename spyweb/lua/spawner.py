"""The client of the zygote, a small process that has imported a worker's modules and forks workers.

A zygote is started with the pool, and again when it has died; its workers die with it.  This module is the daemon's
side; the messages are in wire.py.  Here too is the memory shared with a worker.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import signal
import socket
import tempfile
from asyncio import Future
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import assert_never

import structlog
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.confined.child import ChildOutput, ChildProcess, describe_exit
from spyweb.confined.frames import FrameReader
from spyweb.cooperative import within
from spyweb.errors import PoolError
from spyweb.lua import wire

log = structlog.get_logger()

START_LIMIT = 10.0  # seconds for a zygote to be ready
FORK_LIMIT = 30.0  # seconds for one fork, which takes milliseconds: then the zygote is ended, and its workers with it
END_LIMIT = 2.0  # seconds for a zygote to end its workers and itself
CHUNK = 65_536  # bytes read at once
# How workers allocate (docs/design/0012).  A thread keeps small freed pieces for the next VM; larger ones would add up.
# Threads share one heap: with one each, a leader that takes over would leave what is free in the first unused.  Where
# the kernel gives huge pages on request, the heap requests them.
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=490:glibc.malloc.tcache_max=256:glibc.malloc.hugetlb=1",
}


class Exit(Struct, frozen=True, kw_only=True):
    """The end of a worker's process."""

    how: str
    with_zygote: bool = False  # the worker is not to blame


class Child(Struct, frozen=True, kw_only=True):
    """A worker's process."""

    pid: int
    pidfd: int  # -1 where there is no such thing
    exited: Future[Exit]


class ZygoteClient:
    """The connection to one zygote process."""

    def __init__(self, child: ChildProcess) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: Future[bool] = self._loop.create_future()  # False: it ended before
        self.gone: Future[None] = self._loop.create_future()
        self._child = child
        self._control = child.socket
        self._reader = FrameReader(wire.decode_from_zygote)
        self._tickets = count(1)
        self._forks: dict[int, Future[Child]] = {}
        self._children: dict[int, Child] = {}
        self._loop.add_reader(self._control, self._read)

    async def fork(self, clock: Clock, descriptors: list[int]) -> Child:
        ticket = next(self._tickets)
        forked: Future[Child] = self._loop.create_future()
        self._forks[ticket] = forked
        self._send(wire.ForkWorker(ticket), descriptors)
        try:
            if not await within(clock, FORK_LIMIT, forked):
                log.warning("the zygote hangs")
                self.abandon()
            return forked.result()
        finally:
            forked.cancel()
            self._forks.pop(ticket, None)

    def kill(self, child: Child) -> None:
        if child.exited.done():
            return
        try:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        except (OSError, AttributeError):  # no pidfd here: only the zygote knows that the pid was not reused
            self._send(wire.KillWorker(child.pid))

    def _send(self, message: wire.ToZygote, descriptors: Sequence[int] = ()) -> None:
        if self.gone.done():
            return
        try:
            socket.send_fds(self._control, [wire.frame([message])], descriptors)
        except OSError:  # it does not read any more: it is dead or about to die
            self.abandon()

    def _read(self) -> None:
        try:
            data = self._control.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.abandon()
        for message in self._reader.feed(data):
            self._handle(message)

    def _handle(self, message: wire.FromZygote) -> None:
        match message:
            case wire.ZygoteReady():
                self.ready.set_result(True)
            case wire.WorkerForked(ticket, pid):
                pidfd = -1
                with suppress(OSError, AttributeError):
                    pidfd = os.pidfd_open(pid)
                child = Child(pid=pid, pidfd=pidfd, exited=self._loop.create_future())
                self._children[pid] = child
                forked = self._forks.pop(ticket, None)
                if forked is None or forked.done():
                    self.kill(child)  # nobody waits for it any more
                else:
                    forked.set_result(child)
            case wire.ForkFailed(ticket, reason):
                self._fail(ticket, f"no worker could be forked: {reason}")
            case wire.WorkerExited(pid, exit_code):
                self._reap(pid, Exit(how=describe_exit(exit_code)))
            case unknown:
                assert_never(unknown)

    def _fail(self, ticket: int, reason: str) -> None:
        forked = self._forks.pop(ticket, None)
        if forked and not forked.done():
            forked.set_exception(PoolError(reason))

    def _reap(self, pid: int, exit_: Exit) -> None:
        child = self._children.pop(pid, None)
        if child is None:
            return
        if child.pidfd >= 0:
            os.close(child.pidfd)
        child.exited.set_result(exit_)

    def abandon(self) -> None:
        """Abandon the zygote, which has ended or is to end; the kernel ends its workers with it."""
        if self.gone.done():
            return
        self.gone.set_result(None)
        self._loop.remove_reader(self._control)
        self._child.close()
        if not self.ready.done():
            self.ready.set_result(False)
        for ticket in list(self._forks):
            self._fail(ticket, "the zygote died")
        for pid in list(self._children):
            self._reap(pid, Exit(how="its zygote died", with_zygote=True))

    async def end(self, clock: Clock) -> None:
        if not self.gone.done():
            self._control.shutdown(socket.SHUT_WR)
        await within(clock, END_LIMIT, self.gone)
        self.abandon()


class Spawner:
    """Forks workers through a zygote, and starts another zygote when one has died."""

    def __init__(self, clock: Clock, timezone: str) -> None:
        self._clock = clock
        self._timezone = timezone
        self._zygote = launch_zygote(clock, timezone)

    async def fork(self, main: socket.socket, bulk: socket.socket, slots: int) -> Child:
        zygote = await self._ready_zygote()
        return await zygote.fork(self._clock, [main.fileno(), bulk.fileno(), slots])

    async def _ready_zygote(self) -> ZygoteClient:
        if self._zygote.gone.done():
            log.warning("the zygote died and is started again")
            self._zygote = launch_zygote(self._clock, self._timezone)
        zygote = self._zygote
        if not await within(self._clock, START_LIMIT, zygote.ready):
            zygote.abandon()
            raise PoolError(f"the zygote was not ready within {START_LIMIT:.0f} s")
        if not zygote.ready.result():
            raise PoolError("the zygote ended before it was ready; its output is in the log")
        return zygote

    def kill(self, child: Child) -> None:
        self._zygote.kill(child)  # the workers of one that died ended with it

    async def close(self) -> None:
        await self._zygote.end(self._clock)


def launch_zygote(clock: Clock, timezone: str) -> ZygoteClient:
    """Start a zygote.  Raises OSError, and then leaves nothing open."""
    return ZygoteClient(
        ChildProcess(
            "spyweb.lua.worker.zygote",
            libraries=("lupa", "msgspec"),
            variables=MALLOC | {"TZ": timezone},  # without files to look at, local time would silently be UTC
            output=ChildOutput("a worker process", clock),  # of its workers too
        )
    )


class Slots:
    """Memory that outlives a worker, in which it records the run that each of its threads is stepping (see wire.py)."""

    def __init__(self) -> None:
        """Map the memory.  Raises OSError, and then leaves nothing open: without descriptors the caller tries often."""
        with ExitStack() as on_failure:
            if hasattr(os, "memfd_create"):
                self.descriptor = os.memfd_create("spyweb-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            else:
                with tempfile.TemporaryFile() as file:
                    self.descriptor = os.dup(file.fileno())
            on_failure.callback(os.close, self.descriptor)
            os.ftruncate(self.descriptor, wire.SLOT_BYTES)
            with suppress(OSError, AttributeError):  # where a worker can shrink it, that ends the daemon by SIGBUS
                seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
            self._memory = mmap.mmap(self.descriptor, wire.SLOT_BYTES)
            on_failure.pop_all()

    def stepped(self) -> dict[int, int]:
        """Return the runs being stepped, and how many milliseconds of CPU each of them has used."""
        with memoryview(self._memory) as view, view.cast("Q") as numbers:
            runs, cpu = numbers[: wire.SLOTS], numbers[wire.SLOTS :]
            return {run: min(ms, wire.MOST_CPU_MS) for run, ms in zip(runs, cpu, strict=True) if run}

    def given(self) -> None:
        """Close the descriptor once the worker has it; the memory stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self._memory.close()
        self.given()
