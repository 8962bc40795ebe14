"""A worker's threads, message handler and executor as they are, around VMs that stand still until the test goes on.

`HeldVm` stops in every call that a thread makes into it, so a test can place whatever else happens at that very point.
Looks of the follower, which come every 10 ms in a worker, come here when the test asks for one.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form, FromWorker, ToWorker, Why
from spyweb.lua.worker import limits, priority, threads
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Receiver, Sender
from spyweb.lua.worker.message_handler import MessageHandler
from spyweb.lua.worker.runs import HostedVm, Registry
from spyweb.lua.worker.vm import VM, StepKind

PATIENCE = 10.0  # seconds that a thread may take for what it does at once
OP: tuple[object, ...] = (int(StepKind.OP), b"echo", int(Form.PLAIN))
WAIT: tuple[object, ...] = (int(StepKind.WAIT), 0)
AFTERMATH: tuple[object, ...] = (int(StepKind.AFTERMATH), b"0", int(Ended.CANCELLED))


def end(ended: Ended = Ended.SUCCESS) -> tuple[object, ...]:
    return (int(StepKind.END), int(ended), b"", b"", None, ended is not Ended.SUCCESS, None)


def turn(branch: int, *, is_alone: bool = False) -> tuple[object, ...]:
    """Return what a step gives that goes on with a branch, whose address is one at which nothing is armed."""
    return (int(StepKind.TURN), branch, b"0", is_alone)


class TestIsOver(Exception):
    """Ends a thread of the worker."""


class HeldVm(VM):
    """A VM that stands still: `calls` are the calls that threads are in; `go_on` has the latest one return."""

    def __init__(self) -> None:
        self.calls: queue.Queue[str] = queue.Queue()
        self.story: list[str] = []
        self.size = 100
        self._results: queue.Queue[tuple[object, ...]] = queue.Queue()

    def wait_for_call(self, call: str) -> None:
        assert self.calls.get(timeout=PATIENCE) == call

    def go_on(self, result: tuple[object, ...] = ()) -> None:
        self._results.put(result)

    def answer(self, call: str, result: tuple[object, ...] = ()) -> None:
        """Wait for a call, and have it return."""
        self.wait_for_call(call)
        self.go_on(result)

    def _hold(self, call: str) -> tuple[object, ...]:
        self.story.append(call)
        self.calls.put(call)
        return self._results.get(timeout=PATIENCE)

    def begin(self, run: int, procedure: str, arguments: bytes) -> bytes:
        return b"0"  # an address at which nothing is armed

    def start(self, run: int) -> tuple[object, ...]:
        return self._hold(f"start {run}")

    def step(self, run: int, form: int, values: Sequence[object]) -> tuple[object, ...]:
        return self._hold(" ".join([f"step {run}", *map(str, values)]))

    def turn(self, run: int, number: int) -> tuple[object, ...]:
        return self._hold(f"turn {run} {number}")

    def next(self, run: int, number: int) -> tuple[object, ...]:
        return self._hold(f"next {run} {number}")

    def kill(self, run: int, why: int) -> tuple[object, ...]:
        return self._hold(f"kill {run} {Why(why).name.lower()}")

    def close(self) -> None:
        self._hold("close")

    def has_room(self, size: int) -> bool:
        return True

    def stretch(self) -> None:
        pass

    @property
    def used(self) -> int:
        return self.size


class FakeReceiver(Receiver):
    """StallClocks over whole batches of messages."""

    def __init__(self) -> None:
        self.batches: queue.Queue[list[ToWorker] | None] = queue.Queue()

    def read(self) -> list[ToWorker]:
        batch = self.batches.get()
        if batch is None:
            raise TestIsOver
        return batch


class FakeSender(Sender):
    """Keeps what would go to the daemon, once it is flushed."""

    def __init__(self) -> None:
        self.sent: queue.Queue[FromWorker] = queue.Queue()
        self.posted: queue.SimpleQueue[FromWorker] = queue.SimpleQueue()
        self.post = self.post_bulk = self.posted.put  # type: ignore[assignment,method-assign]
        self.flushed = 0.0

    @property
    def waiting(self) -> int:
        return self.posted.qsize()

    def flush(self) -> None:
        while not self.posted.empty():
            self.sent.put(self.posted.get())
        self.flushed = time.monotonic()


class HeldWorker:
    """A worker with so many VMs, numbered from 1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slots: int, *, vms: int = 2) -> None:
        self.registry = Registry()
        self.sender = FakeSender()
        self.small, self.bulk = FakeReceiver(), FakeReceiver()
        self.slots = threads.ThreadSlots(slots)
        self.vms = {number: HeldVm() for number in range(1, vms + 1)}
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self._looks: queue.Queue[bool] = queue.Queue()
        self._is_at_gate: queue.Queue[None] = queue.Queue()
        monkeypatch.setattr(threads, "start_thread", self._start_thread)
        monkeypatch.setattr(threads, "could_start_thread", self._start_thread)
        monkeypatch.setattr(priority, "make_give_way", lambda _: None)
        monkeypatch.setattr(priority, "give_way", lambda: None)
        monkeypatch.setattr(threads, "_IDLE_HELPER", 0.0)
        monkeypatch.setattr(limits, "TAKE_OVER", 0.0)
        monkeypatch.setattr(threads, "time", _TimeOf(self._wait_at_gate))
        console = Console(self.sender)
        for number, vm in self.vms.items():
            self.registry.vms[number] = HostedVm(number, f"jobs/{number}.lua", console.emit, self.sender.post)
            self.registry.vms[number].vm = vm
        handler = MessageHandler(self.registry, self.sender, console, {})
        worker = threads.Threads(self.registry, handler, console, self.sender, self.slots)
        self._start_thread("leader", lambda: worker.run(self.small, self.bulk))

    # What the daemon says

    def say(self, *messages: ToWorker) -> None:
        """Send one batch on the main socket."""
        self.small.batches.put(list(messages))

    def tell(self, *messages: ToWorker) -> None:
        """Send one batch, and wait until it has been read."""
        self.say(*messages, self.ping())
        assert self.hear() == "pong 200 bytes"

    def begin(self, run: int, vm: int, *, cpu_ms: int = 1_000_000) -> ToWorker:
        return wire.BeginRun(run, vm, "run", b"", cpu_ms)

    def resume(self, run: int, op: int = 1) -> ToWorker:
        """Make the answer to an op, which is its number."""
        return wire.ResumeRun(run, op, int(Form.PLAIN), [op])

    def end_branch(self, run: int, branch: int) -> ToWorker:
        return wire.EndBranch(run, branch)

    def cancel(self, run: int) -> ToWorker:
        return wire.CancelRun(run, int(Why.CANCELLED))

    def drop(self, vm: int) -> ToWorker:
        return wire.DropVm(vm)

    def ping(self) -> ToWorker:
        return wire.PingWorker(7)

    # What the daemon hears

    def hear(self) -> str:
        """Return the next message to the daemon, as a short text."""
        match self.sender.sent.get(timeout=PATIENCE):
            case wire.RunEnd(run, ended):
                return f"end {run} {Ended(ended).name.lower()}"
            case wire.RunStuck(run, why):
                return f"stuck {run} {Why(why).name.lower()}"
            case wire.OpCall(run, branch=branch):
                return f"op {run}.{branch}" if branch else f"op {run}"
            case wire.Pong(_, used):
                return f"pong {used} bytes"
            case other:
                return type(other).__name__

    def heard_nothing(self) -> bool:
        return self.sender.sent.empty() and self.sender.posted.empty()

    # What the follower does

    def look(self) -> None:
        """Let the follower look once, to its end: then it, or the one that took over, waits again."""
        self._is_at_gate.get(timeout=PATIENCE)
        self._looks.put(True)
        self._is_at_gate.get(timeout=PATIENCE)
        self._is_at_gate.put(None)

    def stepped_runs(self) -> list[int]:
        return [run for run in self.slots.runs[: wire.SLOTS] if run]

    def close(self) -> None:
        self.registry.awake.set()
        self._looks.put(False)
        for vm in self.vms.values():
            for _ in range(3):
                vm.go_on(end())
        for receiver in (self.small, self.bulk):
            receiver.batches.put(None)
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not self.errors, self.errors
        assert not [thread.name for thread in self.threads if thread.is_alive()]

    def _wait_at_gate(self, _seconds: float) -> None:
        self._is_at_gate.put(None)
        if not self._looks.get():
            self._looks.put(False)  # for whoever follows
            raise TestIsOver

    def _start_thread(self, name: str, work: Callable[[], object]) -> bool:
        def guarded() -> None:
            try:
                work()
            except TestIsOver:
                pass
            except BaseException as error:  # noqa: BLE001 - the test hears of it
                self.errors.append(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()
        return True


class _TimeOf:
    """Replaces the module `time`, but a sleep waits for the test."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


def new_slots() -> int:
    descriptor = os.memfd_create("slots")
    os.ftruncate(descriptor, wire.SLOT_BYTES)
    return descriptor
