"""The loop is watched: a stall is logged with its cause and counted, and the innermost frames are found."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.loop_watch import TICK_S, LoopWatch
from spyweb.stalls import STALL_S, Work
from tests.fakes.clock import FakeClock
from tests.fakes.stalling import StallClocks

HELD = """
import re, sys, time
from asyncio import sleep
from structlog.testing import capture_logs
from spyweb.clock import RealClock
from spyweb.daemon import loop_watch
from spyweb.daemon.process import new_loop
from spyweb.stalls import StallRecorder

def backtrack(letters):
    return re.match("(a+)+$", "a" * letters + "!")

def descend(depth):
    return descend(depth - 1) + 1 if depth else 0

def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        descend(50)

async def hold(recorder, seconds):
    with loop_watch.LoopWatch(recorder, RealClock()), capture_logs() as lines:
        backtrack(25)
        await sleep(2 * loop_watch.TICK_S)
    print(*lines[0]["where"], sep="\\n")
    loop_watch.TICK_S = 0.001  # a place is noted a thousand times in the time of one
    with loop_watch.LoopWatch(recorder, RealClock()):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            compute(0.01)
            await sleep(0.002)

recorder = StallRecorder()
new_loop().run_until_complete(hold(recorder, float(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_the_place_where_the_loop_is_held_is_noted_without_danger_to_the_process(torture: bool) -> None:
    seconds = "20" if torture else "1"
    ran = subprocess.run([sys.executable, "-c", HELD, seconds], capture_output=True, text=True, timeout=80)
    assert (ran.returncode, ran.stderr) == (0, "")
    innermost, caller, *_ = ran.stdout.splitlines()
    assert innermost.startswith("__init__.py:")
    assert innermost.endswith(" in match")
    assert caller.endswith(" in backtrack")


@pytest.fixture
def clocks() -> StallClocks:
    return StallClocks()


@pytest.fixture
def unused_alarm() -> Iterator[None]:
    """Take the alarm from the timeout of the tests for a while."""
    handler = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left)


def alarm_s() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


async def test_each_tick_arms_the_alarm_anew_and_the_end_cancels_it(clocks: StallClocks, unused_alarm: None) -> None:
    clock = FakeClock()
    with LoopWatch(clocks.recorder(), clock):
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 100)
            await clock.turn(TICK_S)
            assert 0 < alarm_s() <= 2 * TICK_S
    assert alarm_s() == 0
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


async def test_an_alarm_that_something_else_uses_is_left_alone(clocks: StallClocks, unused_alarm: None) -> None:
    signal.signal(signal.SIGALRM, handler := Mock())
    signal.setitimer(signal.ITIMER_REAL, 100)
    with LoopWatch(clocks.recorder(), FakeClock()):
        assert signal.getsignal(signal.SIGALRM) is handler
    assert alarm_s() > 90


async def test_what_holds_the_loop_up_once_it_is_not_watched_any_more_is_nobody_s_business(clocks: StallClocks) -> None:
    recorder = clocks.recorder()
    with capture_logs() as lines:
        with LoopWatch(recorder, FakeClock()):
            pass
        clocks.compute(2.8)
        recorder.record(Work("taking down"), 0.0)
    assert lines == []


async def test_a_stall_is_logged_with_its_cause_and_place_and_counted(clocks: StallClocks, unused_alarm: None) -> None:
    clock, recorder = FakeClock(), clocks.recorder()
    with LoopWatch(recorder, clock), capture_logs() as lines:
        signal.raise_signal(signal.SIGALRM)
        clocks.compute(2.8)
        recorder.record(Work("op state.set", "prices", 7, 2), 0.0)
        clocks.compute(0.3)
        recorder.record(Work("reload"), 2.8)
    line, without_place = lines
    assert (line["event"], line["log_level"], line["seconds"]) == ("the event loop stood", "warning", 2.8)
    assert line["by"] == "op state.set of prices, run 7"
    assert line["where"][0].endswith(" in test_a_stall_is_logged_with_its_cause_and_place_and_counted")
    assert without_place["where"] == []  # what took the loop before is not blamed on the next
    stats = recorder.stats
    assert (stats.stalls, stats.worst_ms, stats.last) == (2, 2800, "reload, 0.3 s")
    assert stats.last_at_ms == clock.now_ms()


@pytest.mark.parametrize(("how", "level", "stalls"), [("compute", "warning", 1), ("wait", "info", 0)])
async def test_a_late_tick_is_told_and_a_daemon_without_a_processor_has_not_stood(
    clocks: StallClocks, how: str, level: str, stalls: int
) -> None:
    clock, recorder = FakeClock(), clocks.recorder()
    with LoopWatch(recorder, clock), capture_logs() as lines:
        getattr(clocks, how)(TICK_S + STALL_S)
        await clock.turn(TICK_S)
    assert [line["log_level"] for line in lines] == [level]
    assert recorder.stats.stalls == stalls
