"""Find out what blocks the event loop: which op of which run, which request, which task.

Each step of a task, and each op's synchronous beginning, is timed.  One that takes longer than `STALL_S` is recorded
with the work that it was done for.  A job whose work has stalled the loop `TOO_OFTEN` times is refused until its file
is edited (`refusal_of`).  Time in which the process had no CPU is not held against any job.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from time import perf_counter, thread_time
from types import FrameType
from typing import Any, Final

from msgspec import Struct

from spyweb.clock import Clock, Handle

STALL_S: Final = 0.25  # well above the steps that the daemon allows itself
TOO_OFTEN: Final = 3
RUNS_REMEMBERED: Final = 1_000  # runs whose note has not been fetched


class Work(Struct, frozen=True):
    """Names the work that the loop is doing."""

    what: str  # "op state.set", "GET /api/runs", "reload"
    job: str = ""
    run: int = 0
    generation: int = 0  # of the job

    def __str__(self) -> str:
        of_job = f" of {self.job}" if self.job else ""
        return f"{self.what}{of_job}, run {self.run}" if self.run else f"{self.what}{of_job}"


class Stall(Struct, frozen=True, kw_only=True):
    """One stall of the loop."""

    work: Work
    seconds: float
    is_computing: bool  # the loop's thread used the CPU for `STALL_S` at least; else it waited for it, or for a device


class LoopStats(Struct, frozen=True, kw_only=True):
    """Figures on how well the loop has kept up since the start."""

    stalls: int = 0  # times that it was blocked for `STALL_S` or longer, and not merely without a CPU
    worst_ms: int = 0
    last_at_ms: int | None = None
    last: str = ""  # what blocked it, and for how long


class _Offender(Struct):
    generation: int
    times: int = 0
    latest: str = ""


_current: ContextVar[Work | None] = ContextVar("current", default=None)


def work_for(work: Work) -> None:
    """Note the work that the current task does from here on."""
    _current.set(work)


class StallRecorder:
    """Records work that blocks the loop for too long.  A daemon has one, used on its loop's thread."""

    def __init__(self, cpu_time: Callable[[], float] = thread_time, wall: Callable[[], float] = perf_counter) -> None:
        self.wall = wall
        self.listen: Callable[[Stall], None] = lambda _stall: None  # called with each stall as soon as it is over
        self.stats = LoopStats()  # kept by the listener
        self._cpu_time = cpu_time
        self._wall_before, self._cpu_before = wall(), cpu_time()
        self._offenders: dict[str, _Offender] = {}
        self._notes: dict[int, str] = {}

    def sample(self) -> None:
        """Note how much CPU the loop's thread has used so far; call this several times a second."""
        self._wall_before, self._cpu_before = self.wall(), self._cpu_time()

    def has_computed(self, started: float) -> bool:
        """Return whether the loop's thread has surely used the CPU for `STALL_S` since `started`.

        How much it used between `sample` and `started` is unknown, and is assumed to be as much as possible.
        """
        earlier = max(0.0, started - self._wall_before)
        return self._cpu_time() - self._cpu_before - earlier >= STALL_S

    def is_stall(self, started: float) -> bool:
        """Return whether work that began at `started` (of `wall`), and is over, has blocked the loop for too long."""
        return self.wall() - started >= STALL_S

    def record(self, work: Work, started: float) -> None:
        """Record that this work, which began at `started`, has blocked the loop for too long."""
        seconds = self.wall() - started
        stall = Stall(work=work, seconds=seconds, is_computing=self.has_computed(started))
        self.sample()
        if stall.is_computing and work.run:
            if work.run not in self._notes and len(self._notes) >= RUNS_REMEMBERED:
                del self._notes[next(iter(self._notes))]
            self._notes[work.run] = f"held the loop {seconds:.1f} s: {work.what}"
        if stall.is_computing and work.job:
            offender = self._offenders.get(work.job)
            if offender is None or offender.generation < work.generation:
                offender = self._offenders[work.job] = _Offender(work.generation)
            offender.times += 1
            offender.latest = f"{work.what}, {seconds:.1f} s"
        self.listen(stall)

    def take_note(self, run: int) -> str:
        """Return the note for the row of an ended run, and forget it."""
        return self._notes.pop(run, "")

    def refusal_of(self, job: str, generation: int) -> str:
        """Return why runs of this version of a job are refused; empty if they are allowed."""
        offender = self._offenders.get(job)
        if offender is None or offender.times < TOO_OFTEN or offender.generation < generation:
            return ""
        return (
            f"it blocked the whole daemon {offender.times} times (the last: {offender.latest}): "
            "no runs until its file is edited"
        )

    def refused(self) -> dict[str, str]:
        """Return the jobs whose runs are refused, each with the reason."""
        return {
            job: self.refusal_of(job, offender.generation)
            for job, offender in self._offenders.items()
            if offender.times >= TOO_OFTEN
        }

    def forget(self, job: str) -> None:
        """Forget the stalls of a job that was removed or edited."""
        self._offenders.pop(job, None)

    def install(self, loop: AbstractEventLoop) -> None:
        """Time each step of every task that this loop runs from now on."""

        def factory(loop: AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Task[Any]:
            return Task(TimedCoroutine(coroutine, self), loop=loop, **options)

        loop.set_task_factory(factory)  # type: ignore[arg-type]


class TimedCoroutine(Coroutine[Any, Any, Any]):
    """Times the steps of a coroutine, and behaves like it to the task that runs it."""

    __slots__ = ("_coroutine", "_recorder")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], recorder: StallRecorder) -> None:
        self._coroutine = coroutine
        self._recorder = recorder

    def send(self, value: Any) -> Any:
        started = self._recorder.wall()
        try:
            return self._coroutine.send(value)
        finally:
            if self._recorder.is_stall(started):
                self._recorder.record(_current_work(), started)

    def throw(self, *error: Any) -> Any:
        started = self._recorder.wall()
        try:
            return self._coroutine.throw(*error)
        finally:
            if self._recorder.is_stall(started):
                self._recorder.record(_current_work(), started)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __repr__(self) -> str:
        return repr(self._coroutine)


def _current_work() -> Work:
    """Return the work that the current task has named, otherwise the task's name."""
    work = _current.get()
    if work is not None:
        return work
    task = asyncio.current_task()
    return Work(f"task '{task.get_name()}'" if task else "a callback")


TICK_S: Final = STALL_S
FRAMES_SHOWN: Final = 5


class LoopWatch:
    """Watches the running loop in its context: reports when it was blocked, for how long, by what, and where.

    A timer of the kernel is restarted at each tick of the loop.  When a tick does not come, its signal has the loop's
    own thread note where it is, between two instructions, or from within a regular expression: any other thread would
    have to wait for the interpreter's lock, or to read frames that change meanwhile.
    """

    def __init__(self, recorder: StallRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._where: list[str] = []  # the loop's frames when a tick had not come, innermost first
        self._alarm_before: int | None = None  # how SIGALRM was handled; None: it is not ours
        self._due = 0.0
        self._is_told = False  # of what made this tick late
        self._timer: Handle | None = None

    def __enter__(self) -> None:
        self._recorder.listen = self._stalled
        before = signal.getsignal(signal.SIGALRM)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before in (signal.SIG_DFL, signal.SIG_IGN):  # else stalls are reported without a place
            self._alarm_before = before
            signal.signal(signal.SIGALRM, self._note_place)
        self._arm()

    def __exit__(self, *_: object) -> None:
        self._recorder.listen = lambda _stall: None
        if self._timer:
            self._timer.cancel()
        if self._alarm_before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm_before)

    def _arm(self) -> None:
        self._is_told = False
        self._recorder.sample()
        self._due = self._recorder.wall() + TICK_S
        self._where = []
        if self._alarm_before is not None:
            signal.setitimer(signal.ITIMER_REAL, 2 * TICK_S)
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        late = self._recorder.wall() - self._due
        if late >= STALL_S and not self._is_told:
            work = Work("work of no known run or request")
            self._stalled(Stall(work=work, seconds=late, is_computing=self._recorder.has_computed(self._due - TICK_S)))
        self._arm()

    def _stalled(self, stall: Stall) -> None:
        import structlog  # `spyweb health` does not need it

        log = structlog.get_logger()
        self._is_told = True
        where, self._where = self._where, []
        if not stall.is_computing and not stall.work.job:
            log.info(
                "the daemon had no processor, or waited for a device", seconds=round(stall.seconds, 2), where=where
            )
            return
        seconds = round(stall.seconds, 2)
        log.warning("the event loop stood", seconds=seconds, by=str(stall.work), where=where)
        before = self._recorder.stats
        self._recorder.stats = LoopStats(
            stalls=before.stalls + 1,
            worst_ms=max(before.worst_ms, round(stall.seconds * 1000)),
            last_at_ms=self._clock.now_ms(),
            last=f"{stall.work}, {seconds} s",
        )

    def _note_place(self, _signal: int, frame: FrameType | None) -> None:
        """Note a frame and its callers, innermost first: `ops/state.py:31 in set`."""
        where: list[str] = []
        while frame is not None and len(where) < FRAMES_SHOWN:
            path = frame.f_code.co_filename
            _, is_ours, below = path.rpartition("/spyweb/")
            where.append(f"{below if is_ours else os.path.basename(path)}:{frame.f_lineno} in {frame.f_code.co_name}")
            frame = frame.f_back
        self._where = where
