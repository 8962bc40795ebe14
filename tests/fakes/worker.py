"""Workers made of Python, in this very process: they speak the wire over real sockets and do what the test says."""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Sequence
from itertools import count

from spyweb.clock import Clock
from spyweb.errors import PoolError
from spyweb.lua import wire
from spyweb.lua.spawner import Child, Exit
from spyweb.lua.wire import Ended, Form, FromWorker, ToWorker, Why

TYPO = b"this is not Lua"  # does not compile
SLOW = b"-- slow"  # is not loaded until the test says so


class Ear(asyncio.Protocol):
    """One of a worker's sockets."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker
        self._reader = wire.Reader()

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._worker.hear(message)


class FakeWorker:
    """Loads every VM at once and answers pings; the test tells it what its runs do.

    `story` is what it was told, as short texts.
    """

    def __init__(self, pid: int, slots: int) -> None:
        self.pid = pid
        self.story: list[str] = []
        self.child = Child(pid=pid, pidfd=-1, exited=asyncio.get_running_loop().create_future())
        self.answers_pings = True
        self.used = 0
        self.largest: list[list[int]] = []
        self.init: object = None
        self.files: list[list[object]] = []  # the names of each VM's further files
        self.answers: list[list[object]] = []  # Form, value... of each RESUME
        self._slots = mmap.mmap(slots, wire.SLOT_BYTES)
        self._numbers = count(1)
        self._small: asyncio.Transport | None = None
        self._bulk: asyncio.Transport | None = None

    async def connect(self, small: socket.socket, bulk: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._small, _ = await loop.create_connection(lambda: Ear(self), sock=small)
        self._bulk, _ = await loop.create_connection(lambda: Ear(self), sock=bulk)

    def say(self, *message: object, bulk: bool = False) -> None:
        self.say_bytes(wire.frame([list(message)]), bulk=bulk)

    def say_bytes(self, data: bytes, *, bulk: bool = False) -> None:
        transport = self._bulk if bulk else self._small
        assert transport is not None
        transport.write(data)

    def hear(self, message: list[object]) -> None:
        kind, *rest = message
        match ToWorker(kind):  # type: ignore[arg-type]
            case ToWorker.INIT:
                self.init = rest[0]
                self.say(FromWorker.READY, {"rights": ["none"]})
            case ToWorker.LOAD | ToWorker.CHECK as asked:
                self._load(asked, *rest)
            case ToWorker.PING:
                if self.answers_pings:
                    self.say(FromWorker.PONG, rest[0], self.used, self.largest)
            case ToWorker.RESUME:
                self.answers.append(rest[2:])
                self.story.append(f"resume {rest[0]}")
            case ToWorker.CANCEL:
                self.story.append(f"cancel {rest[0]} {wire.Why(rest[1]).name.lower()}")  # type: ignore[arg-type]
            case other:
                self.story.append(f"{other.name.lower()} {rest[0]}")

    def _load(self, asked: ToWorker, vm: object, chunk: object, source: object, _limit: object, more: object) -> None:
        self.story.append(f"{asked.name.lower()} {chunk} as {vm}")
        self.files.append([name for name, _ in more])  # type: ignore[attr-defined]
        if source != SLOW:
            self.loaded(vm, f"{chunk}:3: syntax error" if source == TYPO else None)

    def loaded(self, vm: object, reason: str | None = None) -> None:
        self.say(FromWorker.LOADED, vm, reason)

    def op(self, run: int, name: str, *values: object) -> None:
        self.say(FromWorker.OP, run, next(self._numbers), name, Form.PLAIN, *values)

    def end(self, run: int, ended: Ended = Ended.SUCCESS, reason: bytes = b"", *, discarded: bool = False) -> None:
        self.say(FromWorker.END, run, ended, reason, b"", 7, wire.pack([reason]), discarded)

    def stuck(self, run: int, why: Why = Why.NOTHING, cpu_ms: int = 0) -> None:
        self.say(FromWorker.STUCK, run, why, cpu_ms)

    def log(self, run: int, lines: int, padding: bytes = b"") -> None:
        for number in range(lines):
            self.say(FromWorker.LOG, run, "info", b"line %d" % number + padding)

    def step(self, *runs: int, cpu_ms: int = 0) -> None:
        """From now on these are what its threads are stepping, and each has used that much CPU."""
        with memoryview(self._slots) as view, view.cast("Q") as numbers:
            for index, run in enumerate(runs):
                numbers[index], numbers[wire.SLOTS + index] = run, cpu_ms

    def die(self, how: str = "it was ended by SIGKILL", *, with_zygote: bool = False) -> None:
        if self.child.exited.done():
            return
        self.child.exited.set_result(Exit(how=how, with_zygote=with_zygote))
        for transport in (self._small, self._bulk):
            if transport is not None:
                transport.close()
        self._slots.close()


class FakeSpawner:
    """Gives birth to fake workers."""

    def __init__(self, _clock: Clock, _timezone: str) -> None:
        self.workers: list[FakeWorker] = []
        self.trouble = ""  # why births fail
        self.births = 0
        self.is_mute = False  # births happen, but such a worker never says a word
        self._pids = count(101)

    async def fork(self, main: socket.socket, bulk: socket.socket, slots: int) -> Child:
        self.births += 1
        if self.trouble:
            raise PoolError(self.trouble)
        worker = FakeWorker(next(self._pids), slots)
        self.workers.append(worker)
        small, big = main.dup(), bulk.dup()
        if self.is_mute:
            worker.hear = _hear_nothing  # type: ignore[assignment,method-assign]
        await worker.connect(small, big)
        return worker.child

    def kill(self, child: Child) -> None:
        worker = self.find(child.pid)
        if not child.exited.done():
            worker.story.append("killed")
        worker.die()

    def find(self, pid: int) -> FakeWorker:
        return next(worker for worker in self.workers if worker.pid == pid)

    @property
    def living(self) -> Sequence[FakeWorker]:
        return [worker for worker in self.workers if not worker.child.exited.done()]

    async def close(self) -> None:
        for worker in self.living:
            worker.die()


def _hear_nothing(_message: list[object]) -> None: ...
