"""Drive a real worker over its sockets, in place of the daemon, and answer its ops from a table."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import astuple

from spyweb.confined.frames import FrameReader
from spyweb.lua import wire
from spyweb.lua.spawner import MALLOC
from spyweb.lua.wire import Ended, Form, Message, Why

PATIENCE = 25.0  # seconds; a deadline for a hang, not a measure
INIT: dict[str, Any] = {
    "ops": ["echo", "store_get", "store_set", "state.get", "sleep", "wait", "_require"],
    "engine": {"os": "linux", "version": "0"},
}

Handler = Callable[[Sequence[Any]], Sequence[object]]


Heard = TypeVar("Heard", bound=Message)


class Silence(AssertionError):
    """Raised when nothing was heard in time."""


@dataclass(frozen=True, slots=True)
class End:
    run: int
    ended: Ended
    reason: str
    traceback: str
    cpu_ms: int
    result: list[Any] | None
    discarded: bool
    reads: wire.Reads


def take(heard: list[Message], kind: type[Heard], about: int | None) -> Heard | None:
    for index, message in enumerate(heard):
        if isinstance(message, kind) and about in (None, astuple(message)[0]):
            del heard[index]
            return message
    return None


class ZygoteDriver:
    """Starts a zygote and speaks to it."""

    def __init__(self, environment: dict[str, str] | None = None, *, keeps_user: bool = False) -> None:
        self.control, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spyweb.lua.worker.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=MALLOC | {"TZ": "UTC"} | (environment or {}),
            preexec_fn=_forbid_to_change_user if keeps_user else None,
        )
        theirs.close()
        self._reader = FrameReader(wire.decode_from_zygote)
        self._heard: list[Message] = []
        self.wait_for(wire.ZygoteReady)

    def wait_for(self, kind: type[Heard], about: int | None = None) -> Heard:
        """Wait for the next message of this kind, and with this first field if `about` is given."""
        until = time.monotonic() + PATIENCE
        while True:
            found = take(self._heard, kind, about)
            if found is not None:
                return found
            if not select.select([self.control], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Silence(f"no {kind!r} from the zygote")
            self._heard.extend(self._reader.feed(self.control.recv(65_536)))

    def fork(self) -> WorkerDriver:
        main, their_main = socket.socketpair()
        bulk, their_bulk = socket.socketpair()
        slots = os.memfd_create("slots")
        os.ftruncate(slots, wire.SLOT_BYTES)
        frame = wire.frame([wire.ForkWorker(7)])
        socket.send_fds(self.control, [frame], [their_main.fileno(), their_bulk.fileno(), slots])
        pid = self.wait_for(wire.WorkerForked, 7).pid
        their_main.close()
        their_bulk.close()
        memory = mmap.mmap(slots, wire.SLOT_BYTES)
        os.close(slots)
        return WorkerDriver(pid, main, bulk, memory)

    def kill(self, pid: int) -> None:
        self.control.sendall(wire.frame([wire.KillWorker(pid)]))

    def close(self) -> None:
        self.control.close()
        self.process.wait(PATIENCE)


class WorkerDriver:
    """Speaks to one worker."""

    def __init__(self, pid: int, main: socket.socket, bulk: socket.socket, slots: mmap.mmap) -> None:
        self.pid = pid
        self.slots = slots
        self._sockets = {sock: FrameReader(wire.decode_from_worker) for sock in (main, bulk)}
        self._main, self._bulk = main, bulk
        self._heard: list[Message] = []
        self.logs: list[tuple[int, str, bytes]] = []
        self.numbers: dict[int, int] = {}  # of the latest op of each run
        self.asked: list[tuple[int, str, list[Any]]] = []
        self.open: dict[object, tuple[int, int]] = {}  # first argument of an op without a handler → run, number
        self.handlers: dict[str, Handler] = {
            "echo": list,
            "store_get": lambda _: [b"stored"],
            "store_set": lambda _: [],
        }
        self.is_gone = False
        self.credits_logs = True
        self.rights = self.wait_for(wire.WorkerReady).rights

    def say(self, message: Message) -> None:
        frame = wire.frame([message])
        (self._bulk if len(frame) > wire.BULK else self._main).sendall(frame)

    def init(self, **changes: object) -> WorkerDriver:
        self.say(wire.InitWorker(**(INIT | changes)))
        return self

    def load(
        self,
        vm: int,
        source: str | bytes,
        *,
        name: str = "jobs/x.lua",
        limit: int = 64 << 20,
        more: Sequence[tuple[str, str]] = (),
    ) -> str | None:
        main = (name, source if isinstance(source, bytes) else source.encode())
        self.say(wire.LoadVm(vm, [main, *((chunk, text.encode()) for chunk, text in more)], limit))
        loaded = self.wait_for(wire.VmLoaded)
        assert loaded.vm == vm
        return loaded.reason

    def begin(
        self,
        run: int,
        vm: int,
        *,
        ctx: dict[str, object] | None = None,
        may_retry: bool = False,
        cpu_ms: int = 10_000,
        until: str = "",
        reads: wire.Reads | None = None,
    ) -> None:
        """Begin a run, and wait until it asks for that op."""
        arguments = wire.pack([ctx if ctx is not None else {b"job": b"x", b"run_id": run}, may_retry])
        self.say(wire.BeginRun(run, vm, "run", arguments, cpu_ms, reads=reads))
        if until:
            self.wait_until_asked(until, run)

    def start(self, source: str, *, until: str = "", run: int = 1, vm: int = 1, **options: Any) -> None:
        """Begin a run of a script, and wait until it asks for that op."""
        reason = self.load(vm, source)
        assert reason is None, reason
        self.begin(run, vm, until=until, **options)

    def call(
        self, run: int, vm: int, procedure: str, *arguments: object, cpu_ms: int = 10_000, until: str = ""
    ) -> None:
        self.say(wire.BeginRun(run, vm, procedure, wire.pack(list(arguments)), cpu_ms))
        if until:
            self.wait_until_asked(until, run)

    def cancel(self, run: int, why: Why = Why.CANCELLED) -> None:
        self.say(wire.CancelRun(run, int(why)))

    def end(self, run: int, timeout: float = PATIENCE) -> End:
        end = self.wait_for(wire.RunEnd, run, timeout=timeout)
        return End(
            run,
            end.ended,
            end.reason.decode("utf-8", "replace"),
            end.traceback.decode("utf-8", "replace"),
            end.cpu_ms,
            None if end.result is None else wire.unpack(end.result),
            end.discarded,
            end.reads,
        )

    def run(self, source: str, *, run: int = 1, vm: int = 1, **options: Any) -> End:
        """Run a script in a VM of its own to its end."""
        limit = options.pop("limit", 64 << 20)
        reason = self.load(vm, source, limit=limit)
        assert reason is None, reason
        self.begin(run, vm, **options)
        return self.end(run)

    def wait_for(self, kind: type[Heard], about: int | None = None, *, timeout: float = PATIENCE) -> Heard:
        until = time.monotonic() + timeout
        while True:
            found = take(self._heard, kind, about)
            if found is not None:
                return found
            if self.is_gone or not self._listen(max(0.0, until - time.monotonic())):
                raise Silence(f"no {kind!r} {about!r} from the worker")

    def expect_silence(self, kind: type[Message], seconds: float) -> None:
        try:
            message = self.wait_for(kind, timeout=seconds)
        except Silence:
            return
        raise AssertionError(f"heard {message!r}")

    def _listen(self, timeout: float) -> bool:
        ready, _, _ = select.select(list(self._sockets), [], [], timeout)
        for sock in ready:
            try:
                data = sock.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self.is_gone = True
            for message in self._sockets[sock].feed(data):
                self._hear(message)
        return bool(ready)

    def _hear(self, message: wire.FromWorker) -> None:
        match message:
            case wire.OpCall(run, number, name, values):
                self.numbers[run] = number
                self._answer(run, name, values)
            case wire.PackedOpCall(run, number, name, packed):
                self.numbers[run] = number
                self._answer(run, name, wire.unpack(packed))
            case wire.ScriptLog(run, level, text):
                self.logs.append((run, level, text))
                if self.credits_logs:
                    self.say(wire.GrantLogCredit(1))
            case other:
                self._heard.append(other)

    def _answer(self, run: int, name: str, arguments: Sequence[Any]) -> None:
        self.asked.append((run, name, list(arguments)))
        handler = self.handlers.get(name)
        if handler is None:
            self.open[arguments[0] if arguments else None] = (run, self.numbers[run])
            return
        try:
            self.answer(run, handler(arguments))
        except ValueError as error:
            self.resume(run, Form.RAISE, str(error).encode())

    def answer(self, run: int, results: Sequence[object]) -> None:
        if all(isinstance(value, bytes | int | float | None) for value in results):
            self.resume(run, Form.PLAIN, *results)
        else:
            self.resume(run, Form.PACKED, wire.pack(list(results)))

    def resume(self, run: int, form: Form, *values: Any) -> None:
        self.say(wire.ResumeRun(run, self.numbers[run], int(form), list(values)))

    def answer_open(self, argument: object, *results: wire.Scalar) -> None:
        """Answer the op that had this first argument and has no handler."""
        run, number = self.open.pop(argument)
        self.say(wire.ResumeRun(run, number, int(Form.PLAIN), list(results)))

    def wait_until_open(self, *arguments: object) -> None:
        """Wait until ops without a handler with these first arguments have come."""
        until = time.monotonic() + PATIENCE
        while not all(argument in self.open for argument in arguments):
            if not self._listen(max(0.0, until - time.monotonic())):
                raise Silence(f"of {arguments} there are {list(self.open)}")

    def wait_until_asked(self, name: str, run: int | None = None) -> None:
        until = time.monotonic() + PATIENCE
        while not any(asked[1] == name and run in (None, asked[0]) for asked in self.asked):
            if not self._listen(max(0.0, until - time.monotonic())):
                raise Silence(f"nobody asked for {name}")

    @property
    def lines(self) -> list[str]:
        """What was logged, of any level."""
        return [text.decode() for _, _, text in self.logs]

    def stepped_runs(self) -> set[int]:
        return set(memoryview(self.slots).cast("Q")[: wire.SLOTS].tolist()) - {0}  # behind them is CPU time

    def wait_until_gone(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self.is_gone:
            if not self._listen(max(0.0, until - time.monotonic())):
                raise Silence("the worker is still there")

    def evaluate(self, expressions: str, **options: Any) -> list[Any]:
        """Return the values of these expressions in a script."""
        end = self.run(f"echo({expressions})", **options)
        assert end.ended == Ended.SUCCESS, end
        return next(arguments for _, name, arguments in reversed(self.asked) if name == "echo")

    def close(self) -> None:
        self._main.close()
        self._bulk.close()


def _forbid_to_change_user() -> None:
    """Take the right to change the user from what this process executes: root then stays root."""
    pr_capbset_drop, cap_setuid = 24, 7
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_setuid, 0, 0, 0)


@contextmanager
def a_zygote(environment: dict[str, str] | None = None, *, keeps_user: bool = False) -> Iterator[ZygoteDriver]:
    """Start a zygote; `keeps_user` is for a test that does to the worker what only its own user may."""
    zygote = ZygoteDriver(environment, keeps_user=keeps_user)
    try:
        yield zygote
    finally:
        zygote.close()
