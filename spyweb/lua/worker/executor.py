"""Carries out one task in a VM: pushes its values, steps the run, and sends the step's result to the daemon.

An error that a script causes in its VM ends the run, and the VM with it; the worker goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any

from msgspec import Struct

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form, OpCall, PackedOpCall, RunEnd, Why
from spyweb.lua.worker import limits
from spyweb.lua.worker.link import Sender
from spyweb.lua.worker.runs import Closing, HostedVm, Phase, Registry, Task, WorkerRun
from spyweb.lua.worker.vm import OUT_OF_MEMORY, LuaError, StepKind

Result = tuple[Any, ...]

_OP, _END, _AFTERMATH = int(StepKind.OP), int(StepKind.END), int(StepKind.AFTERMATH)
_PLAIN, _RAISE = int(Form.PLAIN), int(Form.RAISE)
_SEQUEL, _TURN, _WAIT = int(StepKind.SEQUEL), int(StepKind.TURN), int(StepKind.WAIT)
_CPU, _MEMORY = int(Why.CPU), int(Why.MEMORY)
_SHORT = 0.0005  # seconds; a shorter step used the CPU for as long as it took
_BEFORE = {
    Why.CPU: b"over its CPU limit before it began",
    Why.TIMEOUT: b"timed out before it began",
    Why.CANCELLED: b"cancelled before it began",
    Why.STOPPED: b"stopped before it began",
    Why.MEMORY: b"not enough memory to begin",
}


class ThreadState(Struct, kw_only=True):
    """The state of one thread that steps VMs."""

    ident: int
    slot: int  # of the shared memory, where it writes which run it steps
    cpu: float  # its CPU clock, when last asked
    now: float = 0.0  # the clock, when last asked


class Executor:
    """Carries out tasks, for any thread."""

    def __init__(self, registry: Registry, sender: Sender, slots: memoryview) -> None:
        self._registry = registry
        self._sender = sender
        self._slots = slots
        self.leading: WorkerRun | None = None  # the run that the leader is stepping

    def perform(self, task: Task, thread: ThreadState, *, leading: bool = False) -> Task | None:
        """Carry out a task whose VM is claimed; return the next task of this VM, still claimed, if one waits."""
        run = task.run
        if run is None:
            self._registry.awake.set()
            self.close(task.hosted)
            return None
        cpu_before = run.cpu
        self._enter(run, thread, leading=leading)
        try:
            result = self._first_step(run, task)
            while result is not None and result[0] != _END:
                result = self._next_step(run, thread, result)
        except (MemoryError, LuaError) as error:
            result = _failed(run, error)
        if result is not None:
            self._finish(run, thread, result)
        return self._leave(run, thread, run.cpu - cpu_before + run.waited)

    def _enter(self, run: WorkerRun, thread: ThreadState, *, leading: bool) -> None:
        run.thread, run.cpu_base = thread.ident, thread.cpu
        run.slot = thread.slot
        self._slots[thread.slot], self._slots[wire.SLOTS + thread.slot] = run.id, int(run.cpu * 1000)
        run.hosted.stepped = run
        run.waited = 0.0
        run.started = thread.now = time.monotonic()
        if leading:
            self.leading = run
        else:
            self._watch(run)

    def _leave(self, run: WorkerRun, thread: ThreadState, took: float) -> Task | None:
        """Note the end of a step that took this long; return the next task of this VM, still claimed, if one waits."""
        hosted = run.hosted
        with self._registry.lock:
            self._slots[thread.slot] = 0
            run.started = 0.0
            hosted.stepped = None
            if self.leading is run:
                self.leading = None
            if took > limits.LIGHT or hosted.heavy:
                self._update_heavy(hosted, took)
            if hosted.pending:
                return hosted.pending.pop(0)
            if hosted.closing and not hosted.runs:
                return Task(hosted=hosted)
            hosted.busy = False
            return None

    def _update_heavy(self, hosted: HostedVm, took: float) -> None:
        """Mark a VM as heavy after one long step, and as light after many short ones."""
        if took > limits.HEAVY:
            hosted.light_steps = 0
            self._registry.set_heavy(hosted, heavy=True)
        elif took >= limits.LIGHT:
            hosted.light_steps = 0
        else:
            hosted.light_steps += 1
            if hosted.heavy and hosted.light_steps >= limits.LIGHT_STEPS:
                self._registry.set_heavy(hosted, heavy=False)

    def _first_step(self, run: WorkerRun, task: Task) -> Result | None:
        """Take the step that the task asks for; return its result, or None if the run has ended or moved on since."""
        vm = run.hosted.vm
        if run.phase is Phase.WAITING:
            return self._begin(run)
        if run.phase is Phase.ENDED:
            return None
        if run.why:
            return self._kill(run)
        if run.branch is not None:
            told = vm.turn(run.id, task.op) if task.op else vm.next(run.id, 0)
            if not task.op or told[0] == _WAIT:
                return told
            self._turn(run, told)
        elif task.op != run.ops:
            return None  # it waited for a busy VM, and meanwhile a kill has ended its op or the run
        if vm.has_room(_size_of(task.values)):
            return vm.step(run.id, task.form, task.values)
        run.why = run.why or _MEMORY
        return self._kill(run)

    def _begin(self, run: WorkerRun) -> Result:
        vm = run.hosted.vm
        if run.hosted.discarded:
            return _end(Ended.UNBEGUN, b"its VM was discarded", discarded=True)
        if not run.why and not vm.has_room(len(run.arguments)):
            run.why = _MEMORY
        if run.why:
            return _end(Ended(run.why), _BEFORE[Why(run.why)], discarded=run.why == _MEMORY)
        pointer = vm.begin(run.id, run.procedure, run.arguments)
        run.phase, run.arguments = Phase.BEGUN, b""
        self._set_address(run, pointer)
        return vm.start(run.id)

    def _kill(self, run: WorkerRun) -> Result:
        """End a run that waits.  Its VM is lost with it, so it may use the memory that its end takes."""
        run.hosted.vm.stretch()
        return run.hosted.vm.kill(run.id, run.why)

    def _next_step(self, run: WorkerRun, thread: ThreadState, result: Result) -> Result | None:
        """Act on the result of a step and take the next one; return its result, or None if the run waits for an op."""
        kind = result[0]
        if kind == _OP:
            return self._ask(run, thread, result)
        if kind == _AFTERMATH:
            self._allow_aftermath(run, thread, result)
        elif kind == _SEQUEL:
            run.branch = None
            self._set_address(run, result[1])
        elif kind == _TURN:
            self._turn(run, result)
        elif kind == _WAIT:
            return self._wait(run, thread)
        else:  # STARVED
            run.hosted.vm.stretch()
        return run.hosted.vm.start(run.id)

    def _ask(self, run: WorkerRun, thread: ThreadState, result: Result) -> Result | None:
        """Send an op to the daemon; if the run must end, kill it instead and return what that results in."""
        branch = run.branch
        message, size = _op_message(run, result, branch or 0)
        if size > wire.LARGEST:  # an error in the script: the daemon would kill the worker for sending it
            text = f"{message.name}: {size} bytes can't be handed over at once, {wire.LARGEST} at most"
            return run.hosted.vm.step(run.id, _RAISE, [text.encode()])
        run.ops += 1
        with self._registry.lock:
            _account(run, thread)
            if run.cpu > run.cpu_limit and not run.why:
                run.why = run.first_why = _CPU
                run.limit_at = time.monotonic()
            if not run.why:
                run.asks = run.ops
                (self._sender.post_bulk if size > wire.BULK else self._sender.post)(message)
                if branch is None:
                    return None
        return self._kill(run) if run.why else run.hosted.vm.next(run.id, run.ops)

    def _turn(self, run: WorkerRun, result: Result) -> None:
        """Turn to the coroutine that the VM is to go on with."""
        _, branch, pointer, is_alone = result
        with self._registry.lock:
            run.branch = None if is_alone else branch
            if is_alone:
                run.overdue.clear()
            run.address = int(pointer, 16)
            if run.why or run.overdue:
                limits.arm(run.address)

    def _wait(self, run: WorkerRun, thread: ThreadState) -> Result | None:
        """End the step, since all branches wait, unless one of them or the run is to end."""
        with self._registry.lock:
            _account(run, thread)
            if not run.why and not run.overdue:
                run.address = 0
                return None
        return self._kill(run) if run.why else run.hosted.vm.next(run.id, 0)

    def _allow_aftermath(self, run: WorkerRun, thread: ThreadState, result: Result) -> None:
        """Give the hooks that follow a kill a separate time limit, and no CPU limit."""
        run.branch = None
        if result[2] == Ended.MEMORY:
            run.hosted.vm.stretch()
        with self._registry.lock:
            _account(run, thread)
            run.address, run.why, run.cpu_limit = int(result[1], 16), 0, float("inf")
            run.deadline = time.monotonic() + limits.AFTERMATH
            run.limit_at = run.limit_at or run.deadline
        self._watch(run)

    def _set_address(self, run: WorkerRun, pointer: bytes) -> None:
        with self._registry.lock:
            run.address = int(pointer, 16)
            if run.why:  # it was asked to end while there was no coroutine to arm
                limits.arm(run.address)

    def _finish(self, run: WorkerRun, thread: ThreadState, result: Result) -> None:
        registry, hosted = self._registry, run.hosted
        with registry.lock:
            _account(run, thread)
            run.phase = Phase.ENDED
            registry.runs.pop(run.id, None)
            registry.watched.pop(run.id, None)
            hosted.runs -= 1
            if result[5]:
                hosted.discarded = True
                registry.retire(hosted)
            self._sender.post(_end_message(run, result))

    def _watch(self, run: WorkerRun) -> None:
        self._registry.watched[run.id] = run
        self._registry.awake.set()

    def close(self, hosted: HostedVm) -> None:
        """Close a VM while the follower watches, since no hook can interrupt Lua then."""
        registry, thread = self._registry, get_ident()
        registry.closings[thread] = Closing(hosted.vm.used)
        hosted.vm.close()
        with registry.lock:  # the follower holds it while it reads the clock of this thread
            del registry.closings[thread]
            registry.closing.discard(hosted)


def _op_message(run: WorkerRun, result: Result, branch: int) -> tuple[OpCall | PackedOpCall, int]:
    """Return the message of an op, and about how many bytes it takes."""
    _, name, form, *passed = result
    if form == _PLAIN:
        return OpCall(run.id, run.ops + 1, _text(name), passed, branch), _size_of(passed)
    packed, elements = passed
    return PackedOpCall(run.id, run.ops + 1, _text(name), packed, elements, branch), len(packed)


@lru_cache
def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _size_of(values: Sequence[wire.Scalar]) -> int:
    return sum(len(value) for value in values if type(value) is bytes)


def _end_message(run: WorkerRun, result: Result) -> RunEnd:
    _, ended, reason, traceback, packed, discarded, scalar = result
    if scalar is not None:
        packed = wire.pack([scalar])
        packed = packed if len(packed) <= wire.RESULT else None
    cpu_ms = max(0, round(run.cpu * 1000))
    reason, traceback = reason[: wire.REASON], traceback[: wire.TRACEBACK]
    return RunEnd(run.id, ended, reason, traceback, cpu_ms, packed, discarded, run.reads)


def _end(ended: Ended, reason: bytes, *, discarded: bool) -> Result:
    return (_END, int(ended), reason, b"", None, discarded, None)


def _failed(run: WorkerRun, error: MemoryError | LuaError) -> Result:
    """Return the end of a run whose step raised this error, perhaps for lack of the memory to say why it ended."""
    if isinstance(error, MemoryError) or str(error) == OUT_OF_MEMORY:
        return _end(Ended(run.why or Ended.MEMORY), OUT_OF_MEMORY.encode(), discarded=True)
    return _end(Ended.ERROR, str(error).encode("utf-8", "replace")[:4096], discarded=True)


def _account(run: WorkerRun, thread: ThreadState) -> None:
    now = time.monotonic()
    took = now - run.started
    if took > _SHORT:
        cpu = time.thread_time()
        took, thread.cpu = min(took, cpu - thread.cpu), cpu
    run.cpu += took
    run.started = thread.now = now
    run.cpu_base = thread.cpu
