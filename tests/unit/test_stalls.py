"""What holds the loop is found, told with its cause and place, and after the third time not begun again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from spyweb.stalls import RUNS_REMEMBERED, STALL_S, TICK_S, TOO_OFTEN, LoopWatch, StallRecorder, Work, work_for
from tests.fakes.clock import FakeClock
from tests.fakes.stalling import StallClocks

SET = Work("op state.set", "prices", 7, 2)


@pytest.fixture
def clocks() -> StallClocks:
    return StallClocks()


@pytest.fixture
def recorder(clocks: StallClocks) -> StallRecorder:
    return clocks.recorder()


def hold(clocks: StallClocks, recorder: StallRecorder, work: Work = SET, *, times: int = 1) -> None:
    for _ in range(times):
        started = clocks.wall
        clocks.compute(2.8)
        recorder.record(work, started)


def test_a_step_is_a_stall_from_a_quarter_of_a_second_on(clocks: StallClocks, recorder: StallRecorder) -> None:
    clocks.compute(STALL_S - 0.01)
    assert not recorder.is_stall(0.0)
    clocks.compute(0.01)
    assert recorder.is_stall(0.0)


def test_who_listens_hears_what_it_was_and_for_how_long(clocks: StallClocks) -> None:
    hold(clocks, clocks.recorder())
    (stall,) = clocks.stalls
    assert (str(stall.work), stall.seconds, stall.is_computing) == ("op state.set of prices, run 7", 2.8, True)


def test_the_run_is_given_a_note_once(clocks: StallClocks, recorder: StallRecorder) -> None:
    hold(clocks, recorder)
    assert [recorder.take_note(7), recorder.take_note(7)] == ["held the loop 2.8 s: op state.set", ""]


def test_notes_that_nobody_fetches_do_not_pile_up(clocks: StallClocks, recorder: StallRecorder) -> None:
    for run in range(1, RUNS_REMEMBERED + 2):
        hold(clocks, recorder, Work("op state.set", "prices", run, 2))
    assert recorder.take_note(1) == ""
    assert recorder.take_note(RUNS_REMEMBERED + 1)


def test_a_job_that_does_it_too_often_is_refused_with_the_reason(clocks: StallClocks, recorder: StallRecorder) -> None:
    hold(clocks, recorder, times=TOO_OFTEN - 1)
    assert recorder.refusal_of("prices", 2) == ""
    hold(clocks, recorder)
    assert recorder.refusal_of("prices", 2) == (
        "it blocked the whole daemon 3 times (the last: op state.set, 2.8 s): no runs until its file is edited"
    )
    assert list(recorder.refused()) == ["prices"]


def test_an_edited_job_begins_anew(clocks: StallClocks, recorder: StallRecorder) -> None:
    hold(clocks, recorder, times=TOO_OFTEN)
    assert recorder.refusal_of("prices", 3) == ""
    hold(clocks, recorder, Work("op state.set", "prices", 8, 3))
    assert recorder.refusal_of("prices", 3) == ""
    assert recorder.refused() == {}


def test_a_job_that_is_gone_is_forgotten(clocks: StallClocks, recorder: StallRecorder) -> None:
    hold(clocks, recorder, times=TOO_OFTEN)
    recorder.forget("prices")
    assert recorder.refused() == {}


def test_time_without_a_processor_is_nobodys_fault(clocks: StallClocks, recorder: StallRecorder) -> None:
    for _ in range(TOO_OFTEN):
        started = clocks.wall
        clocks.wait(5.0)
        recorder.record(SET, started)
    assert [stall.is_computing for stall in clocks.stalls] == [False] * TOO_OFTEN
    assert (recorder.take_note(7), recorder.refusal_of("prices", 2)) == ("", "")


async def run_timed(clocks: StallClocks, work: Work | None) -> object:
    async def story() -> str:
        if work:
            work_for(work)
        await asyncio.sleep(0)
        clocks.compute(1.0)
        await asyncio.sleep(0)
        return "done"

    loop = asyncio.get_running_loop()
    clocks.recorder().install(loop)
    try:
        return await loop.create_task(story(), name="prune")
    finally:
        loop.set_task_factory(None)


async def test_each_step_of_a_task_is_timed_for_what_the_task_works_for(clocks: StallClocks) -> None:
    assert await run_timed(clocks, SET) == "done"
    assert [stall.work for stall in clocks.stalls] == [SET]


async def test_a_task_that_says_nothing_is_told_by_its_name(clocks: StallClocks) -> None:
    await run_timed(clocks, None)
    assert [str(stall.work) for stall in clocks.stalls] == ["task 'prune'"]


async def test_a_timed_task_can_be_cancelled_and_fails_as_any_other() -> None:
    loop = asyncio.get_running_loop()
    StallClocks().recorder().install(loop)
    try:
        waiting = loop.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        waiting.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        failing = loop.create_task(asyncio.wait_for(asyncio.Event().wait(), 0))
        with pytest.raises(TimeoutError):
            await failing
    finally:
        loop.set_task_factory(None)


def test_a_busy_machine_that_makes_a_stall_longer_does_not_excuse_it(
    clocks: StallClocks, recorder: StallRecorder
) -> None:
    started = clocks.wall
    clocks.wait(5.0)
    clocks.compute(STALL_S)
    recorder.record(SET, started)
    assert [stall.is_computing for stall in clocks.stalls] == [True]


def test_what_others_computed_before_is_not_counted(clocks: StallClocks, recorder: StallRecorder) -> None:
    clocks.compute(0.2)
    started = clocks.wall
    clocks.compute(0.1)
    clocks.wait(5.0)
    recorder.record(SET, started)
    assert [stall.is_computing for stall in clocks.stalls] == [False]


HELD = """
import re, sys, time
from asyncio import sleep
from structlog.testing import capture_logs
from spyweb.clock import RealClock
from spyweb import stalls
from spyweb.daemon.process import new_loop

def backtrack(letters):
    return re.match("(a+)+$", "a" * letters + "!")

def descend(depth):
    return descend(depth - 1) + 1 if depth else 0

def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        descend(50)

async def hold(recorder, seconds):
    with stalls.LoopWatch(recorder, RealClock()), capture_logs() as lines:
        backtrack(25)
        await sleep(2 * stalls.TICK_S)
    print(*lines[0]["where"], sep="\\n")
    stalls.TICK_S = 0.001  # a place is noted a thousand times in the time of one
    with stalls.LoopWatch(recorder, RealClock()):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            compute(0.01)
            await sleep(0.002)

recorder = stalls.StallRecorder()
new_loop().run_until_complete(hold(recorder, float(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_the_place_where_the_loop_is_held_is_noted_without_danger_to_the_process(torture: bool) -> None:
    seconds = "20" if torture else "0.3"
    ran = subprocess.run([sys.executable, "-c", HELD, seconds], capture_output=True, text=True, timeout=80)
    assert (ran.returncode, ran.stderr) == (0, "")
    innermost, caller, *_ = ran.stdout.splitlines()
    assert innermost.startswith("__init__.py:")
    assert innermost.endswith(" in match")
    assert caller.endswith(" in backtrack")


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
