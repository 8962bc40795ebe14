"""Watch the event loop: report in the log and in health when it was held up, for how long, by what, and where.

Python code can't watch: while `re` or a conversion holds the interpreter, no other thread of ours runs.  faulthandler's
thread needs no interpreter.  It is armed anew at each tick of the loop, and writes all stacks into memory when a tick
does not come.
"""

from __future__ import annotations

import faulthandler
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Final

import structlog

from spyweb.clock import Clock, Handle
from spyweb.stalls import STALL_S, LoopStats, Stall, StallRecorder, Work, listen_to_nothing

log = structlog.get_logger()

TICK_S: Final = STALL_S
FRAMES_SHOWN: Final = 5
STACKS_READ: Final = 64 * 1024  # bytes

_FRAME = re.compile(r'  File "(?P<file>[^"]{1,1000})", line (?P<line>[0-9]{1,9}) in (?P<function>.{1,200})')


class LoopWatch:
    def __init__(self, recorder: StallRecorder, clock: Clock, stacks: IO[bytes]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._stacks = stacks
        self._due = 0.0
        self._is_told = False  # of what made this tick late
        self._timer: Handle | None = None
        recorder.listen = self._stalled

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        self._recorder.listen = listen_to_nothing
        if self._timer:
            self._timer.cancel()
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        self._is_told = False
        self._recorder.sample()
        self._due = self._recorder.wall() + TICK_S
        faulthandler.dump_traceback_later(2 * TICK_S, file=self._stacks)
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        late = self._recorder.wall() - self._due
        if late >= STALL_S and not self._is_told:
            work = Work("work that no run or request is known to have asked for")
            self._stalled(Stall(work=work, seconds=late, is_computing=self._recorder.has_computed(self._due - TICK_S)))
        self._arm()

    def _stalled(self, stall: Stall) -> None:
        self._is_told = True
        where = list(islice(frames_of(self._take_stacks(), threading.get_ident()), FRAMES_SHOWN))
        if not stall.is_computing and not stall.work.job:
            log.info(
                "the daemon had no processor, or waited for a device", seconds=round(stall.seconds, 2), where=where
            )
            return
        seconds, milliseconds = round(stall.seconds, 2), round(stall.seconds * 1000)
        log.warning("the event loop stood", seconds=seconds, by=str(stall.work), where=where)
        before = self._recorder.stats
        self._recorder.stats = LoopStats(
            stalls=before.stalls + 1,
            worst_ms=max(before.worst_ms, milliseconds),
            last_at_ms=self._clock.now_ms(),
            last=f"{stall.work}, {seconds} s",
        )

    def _take_stacks(self) -> str:
        text = os.pread(self._stacks.fileno(), STACKS_READ, 0).decode("utf-8", "replace")
        if text:
            os.ftruncate(self._stacks.fileno(), 0)
            os.lseek(self._stacks.fileno(), 0, os.SEEK_SET)
        return text


def frames_of(stacks: str, thread: int) -> Iterator[str]:
    """Yield the frames of one thread in faulthandler's output, innermost first: `ops/state.py:31 in set`."""
    _, _, ours = stacks.rpartition(f"0x{thread:016x} ")
    for line in ours.splitlines()[1:]:
        frame = _FRAME.match(line)
        if not frame:
            return
        yield f"{_in_package(frame['file'])}:{frame['line']} in {frame['function']}"


def _in_package(path: str) -> str:
    _, found, rest = path.rpartition("/spyweb/")
    return rest if found else os.path.basename(path)


def _memory_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("stacks"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


@contextmanager
def watch_loop(recorder: StallRecorder, clock: Clock) -> Iterator[LoopWatch]:
    """Watch the running loop until the context is left."""
    with _memory_file() as stacks:
        watch = LoopWatch(recorder, clock, stacks)
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()
