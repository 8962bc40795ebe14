"""Watch the event loop: report in the log and in health when it was held up, for how long, by what, and where.

A timer of the kernel is armed anew at each tick of the loop.  When a tick does not come, its signal has the loop's own
thread note where it is, between two instructions, or from within a regular expression: any other thread would have to
wait for the interpreter's lock, or to read frames that change meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Final

import structlog

from spyweb.clock import Clock, Handle
from spyweb.stalls import STALL_S, LoopStats, Stall, StallRecorder, Work, listen_to_nothing

log = structlog.get_logger()

TICK_S: Final = STALL_S
FRAMES_SHOWN: Final = 5


class LoopWatch:
    """Watches the running loop in its context."""

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
        self._recorder.listen = listen_to_nothing
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
            work = Work("work that no run or request is known to have asked for")
            self._stalled(Stall(work=work, seconds=late, is_computing=self._recorder.has_computed(self._due - TICK_S)))
        self._arm()

    def _stalled(self, stall: Stall) -> None:
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
