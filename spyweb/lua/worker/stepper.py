"""Carries out one task in a VM: pushes what it brings, steps the run, and says what came of it.

What a script does to its VM is one run's affair: the run ends, and the VM with it; the worker goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident

from msgspec import Struct

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form, Why
from spyweb.lua.worker import limits, values
from spyweb.lua.worker.link import Outlet
from spyweb.lua.worker.runs import Closing, Ledger, Phase, Run, Task, Tenancy
from spyweb.lua.worker.values import Told
from spyweb.lua.worker.vm import OUT_OF_MEMORY, LuaError

Result = tuple[object, ...]

_OP, _END, _AFTERMATH = int(Told.OP), int(Told.END), int(Told.AFTERMATH)
_RAISE = int(Form.RAISE)
_STARVED, _SEQUEL = int(Told.STARVED), int(Told.SEQUEL)
_CPU, _MEMORY = int(Why.CPU), int(Why.MEMORY)
_NO_MEMORY = OUT_OF_MEMORY.encode()
_SHORT = 0.0005  # seconds; a shorter step used the CPU for as long as it took: asking the thread's clock costs 0.6 µs
_BEFORE = {
    Why.CPU: (Ended.CPU, b"over its CPU limit before it began"),
    Why.TIMEOUT: (Ended.TIMEOUT, b"timed out before it began"),
    Why.CANCELLED: (Ended.CANCELLED, b"cancelled before it began"),
    Why.STOPPED: (Ended.STOPPED, b"stopped before it began"),
    Why.MEMORY: (Ended.MEMORY, b"not enough memory to begin"),
}


class Seat(Struct, kw_only=True):
    """A thread that steps VMs."""

    thread: int
    slot: int
    cpu: float  # its CPU clock, when last asked
    now: float = 0.0  # the clock, when last asked


class Stepper:
    def __init__(self, ledger: Ledger, outlet: Outlet, slots: memoryview, wake: Callable[[], None]) -> None:
        self._ledger = ledger
        self._outlet = outlet
        self._slots = slots
        self._wake = wake  # there is a run to be watched
        self.leading: Run | None = None  # the run that the leader is stepping

    def perform(self, task: Task, seat: Seat, *, leading: bool = False) -> Task | None:
        """Gives the task that has been waiting for the same VM."""
        run = task.run
        if run is None:
            self._wake()
            self.close(task.home)
            return None
        before = run.cpu
        self._enter(run, seat, leading=leading)
        try:
            told = self._open(run, task)
        except (MemoryError, LuaError) as error:
            told = _failed(run, error)
        while told is not None:
            told = self._ask(run, seat, told) if told[0] == _OP else self._settle(run, seat, told)
        return self._leave(run, seat, run.cpu - before + run.waited)

    # Entering and leaving

    def _enter(self, run: Run, seat: Seat, *, leading: bool) -> None:
        run.thread, run.cpu_base = seat.thread, seat.cpu
        run.slot = seat.slot
        self._slots[seat.slot], self._slots[wire.SLOTS + seat.slot] = run.id, int(run.cpu * 1000)
        run.home.stepped = run
        run.waited = 0.0
        run.started = seat.now = time.monotonic()
        if leading:
            self.leading = run
        else:
            self._watch(run)

    def _leave(self, run: Run, seat: Seat, took: float) -> Task | None:
        """`took`: of the CPU, or waiting; a step that had to wait for the CPU is not a long one."""
        home = run.home
        with self._ledger.lock:
            self._slots[seat.slot] = 0
            run.started = 0.0
            home.stepped = None
            if self.leading is run:
                self.leading = None
            if took > limits.LIGHT or home.heavy:
                self._weigh(home, took)
            if home.pending or home.closing:
                return _next_task(home)
            home.busy = False
            return None

    def _weigh(self, home: Tenancy, took: float) -> None:
        """Into the slow lane after one heavy step, out of it after many light ones."""
        if took > limits.HEAVY:
            home.light_steps = 0
            self._ledger.weigh(home, heavy=True)
        elif took >= limits.LIGHT:
            home.light_steps = 0
        else:
            home.light_steps += 1
            if home.heavy and home.light_steps >= limits.LIGHT_STEPS:
                self._ledger.weigh(home, heavy=False)

    # What is done to the VM

    def _open(self, run: Run, task: Task) -> Result | None:
        vm = run.home.vm
        if run.phase is Phase.BEGUN:
            if run.why:
                return self._kill(run)
            if task.op != run.ops:
                return None  # it waited behind a busy VM, and a kill has cut its op short or has been done already
            pushed, size = values.for_lua(task.values)
            if vm.has_room(size):
                return vm.step(run.id, task.form, pushed)
            return self._end_for_memory(run)
        return self._begin(run) if run.phase is Phase.WAITING else None

    def _begin(self, run: Run) -> Result:
        if run.home.discarded:
            return _end(Ended.UNBEGUN, b"its VM was discarded", discarded=True)
        vm = run.home.vm
        if not run.why and not vm.has_room(len(run.arguments)):
            run.why = _MEMORY
        if run.why:
            return _end(*_BEFORE[Why(run.why)], discarded=run.why == _MEMORY)
        self._set_out(run, values.address(vm.begin(run.id, run.procedure, run.arguments)))
        return vm.start(run.id)

    def _set_out(self, run: Run, address: int) -> None:
        with self._ledger.lock:
            run.phase, run.address, run.arguments = Phase.BEGUN, address, b""
            if run.why:  # it was told to end when there was nothing to be armed yet
                limits.arm(address)

    def _end_for_memory(self, run: Run) -> Result:
        run.why = run.why or _MEMORY
        return self._kill(run)

    def _kill(self, run: Run) -> Result:
        """The VM is lost with it, so it may have the memory that its end takes."""
        run.home.vm.stretch()
        return run.home.vm.kill(run.id, run.why)

    # What came of it

    def _settle(self, run: Run, seat: Seat, told: Result) -> Result | None:
        """What the VM tells next; None when the step is over."""
        kind = told[0]
        if kind == _AFTERMATH:
            return self._guarded(run, self._begin_aftermath, run, seat, told)
        if kind == _STARVED:
            return self._guarded(run, self._say_where, run)
        if kind == _SEQUEL:
            return self._guarded(run, self._begin_sequel, run, told)
        self._finish(run, seat, told)
        return None

    def _ask(self, run: Run, seat: Seat, told: Result) -> Result | None:
        message = values.op_message(run.id, run.ops + 1, told)
        size = values.size_of(message)
        if size > wire.LARGEST:
            return self._guarded(run, self._refuse, run, message, size)
        run.ops += 1
        with self._ledger.lock:
            _account(run, seat)
            if run.cpu > run.cpu_limit and not run.why:
                run.why = run.first_why = _CPU
                run.limit_at = time.monotonic()
            if not run.why:
                run.asks = run.ops
                (self._outlet.post_bulk if size > wire.BULK else self._outlet.post)(message)
                return None
        return self._guarded(run, self._kill, run)

    def _refuse(self, run: Run, message: list[object], size: int) -> Result:
        """The daemon would take it for nonsense, at the price of every run in this worker."""
        text = f"{message[3]}: {size} bytes can't be handed over at once, {wire.LARGEST} at most"
        return run.home.vm.step(run.id, _RAISE, [text.encode()])

    def _begin_aftermath(self, run: Run, seat: Seat, told: Result) -> Result:
        if told[2] == Ended.MEMORY:
            run.home.vm.stretch()
        with self._ledger.lock:
            _account(run, seat)
            run.address, run.why, run.cpu_limit = values.address(told[1]), 0, float("inf")  # type: ignore[arg-type]
            run.deadline = time.monotonic() + limits.AFTERMATH
            run.limit_at = run.limit_at or run.deadline
        self._watch(run)
        return run.home.vm.start(run.id)

    def _say_where(self, run: Run) -> Result:
        run.home.vm.stretch()
        return run.home.vm.start(run.id)

    def _begin_sequel(self, run: Run, told: Result) -> Result:
        with self._ledger.lock:
            run.address = values.address(told[1])  # type: ignore[arg-type]
            if run.why:  # it was told to end while there was nothing to be armed
                limits.arm(run.address)
        return run.home.vm.start(run.id)

    def _finish(self, run: Run, seat: Seat, told: Result) -> None:
        ledger, home = self._ledger, run.home
        with ledger.lock:
            _account(run, seat)
            run.phase = Phase.ENDED
            ledger.runs.pop(run.id, None)
            ledger.watched.pop(run.id, None)
            home.runs -= 1
            if told[5]:
                home.discarded = True
                ledger.retire(home)
            self._outlet.post(values.end_message(run.id, told, run.cpu))

    def _guarded(self, run: Run, call: Callable[..., Result | None], *arguments: object) -> Result | None:
        try:
            return call(*arguments)
        except (MemoryError, LuaError) as error:
            return _failed(run, error)

    def _watch(self, run: Run) -> None:
        self._ledger.watched[run.id] = run
        self._wake()

    def close(self, home: Tenancy) -> None:
        """Close its VM, while the follower watches: no hook ends what Lua does then."""
        ledger, thread = self._ledger, get_ident()
        ledger.closings[thread] = Closing(home.vm.used)
        home.vm.close()
        with ledger.lock:  # who asks for the clock of this thread holds it
            del ledger.closings[thread]
            ledger.closing.discard(home)


def _end(ended: Ended, reason: bytes, *, discarded: bool) -> Result:
    return (_END, int(ended), reason, b"", None, discarded, None)


def _failed(run: Run, error: MemoryError | LuaError) -> Result:
    """What a step came to that told nothing."""
    if isinstance(error, MemoryError) or str(error) == OUT_OF_MEMORY:
        return _out_of_memory(run)
    return _end(Ended.ERROR, str(error).encode("utf-8", "replace")[:4096], discarded=True)


def _out_of_memory(run: Run) -> Result:
    """There was not even enough to say why it ended."""
    ended = _BEFORE[Why(run.why)][0] if run.why else Ended.MEMORY
    return _end(ended, _NO_MEMORY, discarded=True)


def _account(run: Run, seat: Seat) -> None:
    now = time.monotonic()
    took = now - run.started
    if took > _SHORT:
        cpu = time.thread_time()
        took, seat.cpu = min(took, cpu - seat.cpu), cpu
    run.cpu += took
    run.started = seat.now = now
    run.cpu_base = seat.cpu


def _next_task(home: Tenancy) -> Task | None:
    if home.pending:
        return home.pending.pop(0)
    if home.closing and not home.runs:
        return Task(home=home)
    home.busy = False
    return None
