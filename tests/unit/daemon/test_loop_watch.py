"""The loop is watched: a stall is logged with its cause and counted, and the innermost frames are found."""

from __future__ import annotations

import faulthandler
import tempfile
import threading

import pytest
from structlog.testing import capture_logs

from spyweb.daemon.loop_watch import TICK_S, LoopWatch, frames_of, watch_loop
from spyweb.stalls import STALL_S, Work
from tests.fakes.clock import FakeClock
from tests.fakes.stalling import StallClocks

STACKS = """\
Timeout (0:00:00.500000)!
Thread 0x00007f1ab7fff6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Thread 0x00007f1abe340b80 (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 171 in match
  File "/srv/venv/site-packages/spyweb/ops/arguments.py", line 127 in parse_number
  File "/srv/venv/site-packages/spyweb/ops/host.py", line 52 in op
"""


def test_the_frames_of_the_loops_thread_are_found_the_innermost_first() -> None:
    assert list(frames_of(STACKS, 0x00007F1ABE340B80)) == [
        "__init__.py:171 in match",
        "ops/arguments.py:127 in parse_number",
        "ops/host.py:52 in op",
    ]


@pytest.mark.parametrize("stacks", ["", "Timeout!", STACKS.replace("be340b80", "00000000")])
def test_no_stacks_are_no_frames(stacks: str) -> None:
    assert list(frames_of(stacks, 0x00007F1ABE340B80)) == []


@pytest.fixture
def clocks() -> StallClocks:
    return StallClocks()


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of faulthandler, instead of it: it is one for the process."""
    story: list[str] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, file: story.append(f"arm {seconds}"))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: story.append("cancel"))
    return story


async def test_each_tick_arms_the_dump_anew_and_the_end_cancels_it(clocks: StallClocks, armed: list[str]) -> None:
    clock = FakeClock()
    with watch_loop(clocks.recorder(), clock):
        await clock.turn(TICK_S)
        await clock.turn(TICK_S)
    await clock.turn(10 * TICK_S)
    assert armed == [f"arm {2 * TICK_S}"] * 3 + ["cancel"]


async def test_what_holds_the_loop_up_once_it_is_not_watched_any_more_is_nobody_s_business(
    clocks: StallClocks, armed: list[str]
) -> None:
    recorder = clocks.recorder()
    with capture_logs() as lines:
        with watch_loop(recorder, FakeClock()):
            pass
        clocks.compute(2.8)
        recorder.record(Work("taking down"), 0.0)
    assert lines == []


async def test_a_stall_is_logged_with_its_cause_and_place_and_counted(clocks: StallClocks, armed: list[str]) -> None:
    clock, recorder = FakeClock(), clocks.recorder()
    with tempfile.TemporaryFile(buffering=0) as stacks, capture_logs() as lines:
        watch = LoopWatch(recorder, clock, stacks)
        watch.start()
        stacks.write(STACKS.replace("7f1abe340b80", f"{threading.get_ident():012x}").encode())
        clocks.compute(2.8)
        recorder.record(Work("op state.set", "prices", 7, 2), 0.0)
        watch.stop()
    (line,) = lines
    assert (line["event"], line["log_level"], line["seconds"]) == ("the event loop stood", "warning", 2.8)
    assert (line["by"], line["where"][1]) == ("op state.set of prices, run 7", "ops/arguments.py:127 in parse_number")
    stats = recorder.stats
    assert (stats.stalls, stats.worst_ms, stats.last) == (1, 2800, "op state.set of prices, run 7, 2.8 s")
    assert stats.last_at_ms == clock.now_ms()


async def test_a_late_tick_that_nothing_accounts_for_is_told_too(clocks: StallClocks, armed: list[str]) -> None:
    clock, recorder = FakeClock(), clocks.recorder()
    with watch_loop(recorder, clock), capture_logs() as lines:
        clocks.compute(TICK_S + STALL_S)
        await clock.turn(TICK_S)
    assert [line["event"] for line in lines] == ["the event loop stood"]
    assert recorder.stats.stalls == 1


async def test_a_daemon_without_a_processor_has_not_stood(clocks: StallClocks, armed: list[str]) -> None:
    clock, recorder = FakeClock(), clocks.recorder()
    with watch_loop(recorder, clock), capture_logs() as lines:
        clocks.wait(TICK_S + STALL_S)
        await clock.turn(TICK_S)
    assert [line["log_level"] for line in lines] == ["info"]
    assert recorder.stats.stalls == 0
