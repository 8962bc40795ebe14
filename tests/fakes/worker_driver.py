"""Drives a real worker over its sockets, in the daemon's stead, and answers its ops from a table."""

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
from typing import Any, cast

from spyweb.lua import wire
from spyweb.lua.spawner import MALLOC
from spyweb.lua.wire import Ended, Form, FromWorker, FromZygote, ToWorker, ToZygote, Why

PATIENCE = 10.0  # seconds; a test that waits longer has failed
INIT: dict[str, object] = {
    "ops": ["echo", "store_get", "store_set", "state.get", "sleep", "wait", "_require"],
    "engine": {"os": "linux", "version": "0"},
    "env": {"SPYWEB_COLOUR": "green"},
}

Handler = Callable[[Sequence[Any]], Sequence[object]]


class Silence(AssertionError):
    """Nothing was heard in time."""


@dataclass(frozen=True, slots=True)
class End:
    run: int
    ended: Ended
    reason: str
    traceback: str
    cpu_ms: int
    result: list[Any] | None
    discarded: bool


class ZygoteDriver:
    """A zygote of one's own."""

    def __init__(self, environment: dict[str, str] | None = None, *, keeps_user: bool = False) -> None:
        self.control, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spyweb.lua.worker.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=MALLOC | {"TZ": "UTC"} | (environment or {}),
            preexec_fn=_forbid_to_change_user if keeps_user else None,
        )
        theirs.close()
        self._reader = wire.Reader()
        self._heard: list[list[Any]] = []
        self.wait_for(FromZygote.READY)

    def wait_for(self, kind: FromZygote, *start: object) -> list[Any]:
        until = time.monotonic() + PATIENCE
        while True:
            for index, message in enumerate(self._heard):
                if message[0] == kind and message[1 : 1 + len(start)] == list(start):
                    return self._heard.pop(index)
            if not select.select([self.control], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Silence(f"no {kind!r} from the zygote")
            self._heard.extend(self._reader.feed(self.control.recv(65_536)))

    def fork(self) -> WorkerDriver:
        main, their_main = socket.socketpair()
        bulk, their_bulk = socket.socketpair()
        slots = os.memfd_create("slots")
        os.ftruncate(slots, wire.SLOT_BYTES)
        frame = wire.frame([[int(ToZygote.FORK), 7]])
        socket.send_fds(self.control, [frame], [their_main.fileno(), their_bulk.fileno(), slots])
        _, ticket, pid = self.wait_for(FromZygote.FORKED)
        assert ticket == 7
        their_main.close()
        their_bulk.close()
        memory = mmap.mmap(slots, wire.SLOT_BYTES)
        os.close(slots)
        return WorkerDriver(pid, main, bulk, memory)

    def kill(self, pid: int) -> None:
        self.control.sendall(wire.frame([[int(ToZygote.KILL), pid]]))

    def close(self) -> None:
        self.control.close()
        self.process.wait(PATIENCE)


class WorkerDriver:
    """One worker."""

    def __init__(self, pid: int, main: socket.socket, bulk: socket.socket, slots: mmap.mmap) -> None:
        self.pid = pid
        self.slots = slots
        self._sockets = {main: wire.Reader(), bulk: wire.Reader()}
        self._main, self._bulk = main, bulk
        self._heard: list[list[Any]] = []
        self.logs: list[tuple[int, str, bytes]] = []
        self.numbers: dict[int, int] = {}  # of the latest op of each run
        self.asked: list[tuple[int, str, list[Any]]] = []
        self.handlers: dict[str, Handler] = {
            "echo": list,
            "store_get": lambda _: [b"stored"],
            "store_set": lambda _: [],
        }
        self.is_gone = False
        self.credits_logs = True
        self.rights = cast("list[str]", self.wait_for(FromWorker.READY)[1]["rights"])

    def say(self, kind: ToWorker, *values: object) -> None:
        frame = wire.frame([[int(kind), *values]])
        (self._bulk if len(frame) > wire.BULK else self._main).sendall(frame)

    def init(self, **changes: object) -> WorkerDriver:
        self.say(ToWorker.INIT, INIT | changes)
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
        further = [(chunk, text.encode()) for chunk, text in more]
        self.say(ToWorker.LOAD, vm, name, source if isinstance(source, bytes) else source.encode(), limit, further)
        message = self.wait_for(FromWorker.LOADED)
        assert message[1] == vm
        return cast("str | None", message[2])

    def begin(
        self, run: int, vm: int, *, ctx: dict[str, object] | None = None, may_retry: bool = False, cpu_ms: int = 10_000
    ) -> None:
        arguments = wire.pack([ctx if ctx is not None else {b"job": b"x", b"run_id": run}, may_retry])
        self.say(ToWorker.BEGIN, run, vm, "run", arguments, cpu_ms)

    def call(self, run: int, vm: int, procedure: str, *arguments: object, cpu_ms: int = 10_000) -> None:
        self.say(ToWorker.BEGIN, run, vm, procedure, wire.pack(list(arguments)), cpu_ms)

    def cancel(self, run: int, why: Why = Why.CANCELLED) -> None:
        self.say(ToWorker.CANCEL, run, int(why))

    def end(self, run: int, timeout: float = PATIENCE) -> End:
        message = self.wait_for(FromWorker.END, run, timeout=timeout)
        _, _, ended, reason, traceback, cpu_ms, packed, discarded = message
        result = None if packed is None else wire.unpack(packed)
        return End(
            run,
            Ended(ended),
            reason.decode("utf-8", "replace"),
            traceback.decode("utf-8", "replace"),
            cpu_ms,
            result,
            discarded,
        )

    def run(self, source: str, *, run: int = 1, vm: int = 1, **options: Any) -> End:
        """A script in a VM of its own, to its end."""
        limit = options.pop("limit", 64 << 20)
        reason = self.load(vm, source, limit=limit)
        assert reason is None, reason
        self.begin(run, vm, **options)
        return self.end(run)

    def wait_for(self, kind: FromWorker, *start: object, timeout: float = PATIENCE) -> list[Any]:
        until = time.monotonic() + timeout
        while True:
            for index, message in enumerate(self._heard):
                if message[0] == kind and message[1 : 1 + len(start)] == list(start):
                    return self._heard.pop(index)
            if self.is_gone or not self._listen(max(0.0, until - time.monotonic())):
                raise Silence(f"no {kind!r} {start!r} from the worker")

    def expect_silence(self, kind: FromWorker, seconds: float) -> None:
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
                self._hear(cast("list[Any]", message))
        return bool(ready)

    def _hear(self, message: list[Any]) -> None:
        if message[0] == FromWorker.OP:
            self.numbers[message[1]] = message[2]
            self._answer(message[1], message[3], message[4], message[5:])
        elif message[0] == FromWorker.LOG:
            self.logs.append((message[1], message[2], message[3]))
            if self.credits_logs:
                self.say(ToWorker.CREDIT, 1)
        else:
            self._heard.append(message)

    def _answer(self, run: int, name: str, form: int, values: list[Any]) -> None:
        arguments = wire.unpack(values[0]) if form == Form.PACKED else values
        self.asked.append((run, name, arguments))
        handler = self.handlers.get(name)
        if handler is None:
            return
        try:
            self.answer(run, handler(arguments))
        except ValueError as error:
            self.say(ToWorker.RESUME, run, self.numbers[run], int(Form.RAISE), str(error))

    def answer(self, run: int, results: Sequence[object]) -> None:
        if all(isinstance(value, bytes | int | float | None) for value in results):
            self.say(ToWorker.RESUME, run, self.numbers[run], int(Form.PLAIN), *results)
        else:
            self.say(ToWorker.RESUME, run, self.numbers[run], int(Form.PACKED), wire.pack(list(results)))

    def wait_until_asked(self, name: str, run: int | None = None) -> None:
        until = time.monotonic() + PATIENCE
        while not any(asked[1] == name and run in (None, asked[0]) for asked in self.asked):
            if not self._listen(max(0.0, until - time.monotonic())):
                raise Silence(f"nobody asked for {name}")

    def stepped_runs(self) -> set[int]:
        return set(memoryview(self.slots).cast("Q").tolist()) - {0}

    def wait_until_gone(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self.is_gone:
            if not self._listen(max(0.0, until - time.monotonic())):
                raise Silence("the worker is still there")

    def evaluate(self, expressions: str, **options: Any) -> list[Any]:
        """What they are worth in a script."""
        end = self.run(f"echo({expressions})", **options)
        assert end.ended == Ended.SUCCESS, end
        return next(arguments for _, name, arguments in reversed(self.asked) if name == "echo")

    def close(self) -> None:
        self._main.close()
        self._bulk.close()


def _forbid_to_change_user() -> None:
    """Of what is executed by this process: without a right to do so root stays root."""
    pr_capbset_drop, cap_setuid = 24, 7
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_setuid, 0, 0, 0)


@contextmanager
def a_zygote(environment: dict[str, str] | None = None, *, keeps_user: bool = False) -> Iterator[ZygoteDriver]:
    """`keeps_user`: for a test that does to the worker what only its own user may."""
    zygote = ZygoteDriver(environment, keeps_user=keeps_user)
    try:
        yield zygote
    finally:
        zygote.close()
