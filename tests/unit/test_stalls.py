"""What holds the loop is found, told, and after the third time not begun again."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.stalls import RUNS_REMEMBERED, STALL_S, TOO_OFTEN, StallRecorder, Work, work_for
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
        "it held up the whole daemon 3 times (the last: op state.set, 2.8 s): not begun again until its file is edited"
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
