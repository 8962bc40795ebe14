"""Fake workers in this very process: they speak the wire over real sockets and do what the test says."""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Sequence
from itertools import count

from spyweb.confined.frames import FrameReader
from spyweb.errors import PoolError
from spyweb.lua import wire
from spyweb.lua.spawner import Child, Exit, Spawner
from spyweb.lua.wire import Ended, FromWorker, ToWorker, Why

TYPO = b"this is not Lua"  # does not compile
SLOW = b"-- slow"  # is not loaded until the test says so


class WorkerSocket(asyncio.Protocol):
    """Holds one of a worker's sockets."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker
        self._reader = FrameReader(wire.decode_to_worker)

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._worker.hear(message)


_STORY: dict[type, str] = {
    wire.BeginRun: "begin {0.run}",
    wire.DropVm: "drop {0.vm}",
    wire.KeepTemplate: "template {0.number}",
    wire.GrantLogCredit: "credit {0.lines}",
}


def raw_frame(*messages: object) -> bytes:
    """Return a frame of any bytes, even where they are no message."""
    body = wire.pack(messages)
    return len(body).to_bytes(4, "little") + body


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
        self.largest: list[tuple[int, int]] = []
        self.init: wire.InitWorker | None = None
        self.files: list[list[str]] = []  # the names of each VM's further files
        self.answers: list[list[object]] = []  # Form, value... of each RESUME
        self._slots = mmap.mmap(slots, wire.SLOT_BYTES)
        self._numbers = count(1)
        self._small: asyncio.Transport | None = None
        self._bulk: asyncio.Transport | None = None

    async def connect(self, small: socket.socket, bulk: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._small, _ = await loop.create_connection(lambda: WorkerSocket(self), sock=small)
        self._bulk, _ = await loop.create_connection(lambda: WorkerSocket(self), sock=bulk)

    def say(self, *messages: FromWorker, bulk: bool = False) -> None:
        self.say_bytes(wire.frame(messages), bulk=bulk)

    def say_bytes(self, data: bytes, *, bulk: bool = False) -> None:
        transport = self._bulk if bulk else self._small
        assert transport is not None
        transport.write(data)

    def hear(self, message: ToWorker) -> None:
        match message:
            case wire.InitWorker():
                self.init = message
                self.say(wire.WorkerReady(["none"]))
            case wire.LoadVm(vm, files):
                self._load(vm, files)
            case wire.PingWorker(number):
                if self.answers_pings:
                    self.say(wire.Pong(number, self.used, self.largest))
            case wire.ResumeRun(run, _, form, values):
                self.answers.append([form, *values])
                self.story.append(f"resume {run}")
            case wire.CancelRun(run, why):
                self.story.append(f"cancel {run} {Why(why).name.lower()}")
            case other:
                told = "fresh {0.run}" if getattr(other, "template", 0) else _STORY[type(other)]
                self.story.append(told.format(other))

    def _load(self, vm: int, files: wire.Files) -> None:
        (chunk, source), *more = files
        self.story.append(f"load {chunk} as {vm}")
        self.files.append([name for name, _ in more])
        if source != SLOW:
            self.loaded(vm, f"{chunk}:3: syntax error" if source == TYPO else None)

    def loaded(self, vm: int, reason: str | None = None) -> None:
        self.say(wire.VmLoaded(vm, reason))

    def op(self, run: int, name: str, *values: wire.Scalar) -> None:
        self.say(wire.OpCall(run, next(self._numbers), name, list(values)))

    def end(self, run: int, ended: Ended = Ended.SUCCESS, reason: bytes = b"", *, discarded: bool = False) -> None:
        self.say(wire.RunEnd(run, ended, reason, b"", 7, wire.pack([reason]), discarded))

    def stuck(self, run: int, why: Why = Why.NOTHING, cpu_ms: int = 0) -> None:
        self.say(wire.RunStuck(run, why, cpu_ms))

    def log(self, run: int, lines: int, padding: bytes = b"") -> None:
        for number in range(lines):
            self.say(wire.ScriptLog(run, "info", b"line %d" % number + padding))

    def step(self, *runs: int, cpu_ms: int = 0) -> None:
        """Pretend that its threads step these runs from now on; each has used that much CPU."""
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


class FakeSpawner(Spawner):
    """Starts fake workers."""

    def __init__(self) -> None:
        self.workers: list[FakeWorker] = []
        self.trouble = ""  # why forks fail
        self.forks = 0
        self.is_mute = False  # forks happen, but such a worker never says a word
        self._pids = count(101)

    async def fork(self, main: socket.socket, bulk: socket.socket, slots: int) -> Child:
        self.forks += 1
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


def _hear_nothing(_message: ToWorker) -> None: ...
