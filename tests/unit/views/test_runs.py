"""What people and machines are shown of runs, also in one letter."""

from __future__ import annotations

import json

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.lua import wire
from spyweb.model import Ending, Failure, Outcome, RunMark, RunState, TaskBegun
from spyweb.views import runs
from tests.fakes.daemon_service import NOW_MS, PRICES, a_watched_run, make_run
from tests.fakes.harness import make_job
from tests.fakes.task_rows import row


def test_a_run_under_way_is_no_last_run() -> None:
    assert runs.last_run(make_run(state=RunState.RUNNING, outcome=None, ended_ms=None)) is None


def test_a_log_line_that_is_no_text_is_shown_all_the_same() -> None:
    assert runs.log_line("info", b"a\xffb", NOW_MS).text == "a\ufffdb"


@pytest.mark.parametrize("event", a_watched_run())
def test_events_come_back_from_their_line_as_they_were(event: runs.RunEvent) -> None:
    line = runs.event_to_json(event)
    assert b"\n" not in line
    assert runs.event_from_json(line) == event


def test_a_log_line_with_newlines_stays_one_line() -> None:
    line = runs.event_to_json(runs.LogLine(level="info", text="a\nb\r\u2028", at_ms=NOW_MS))
    assert len(line.splitlines()) == 1


def test_the_end_of_a_run_tells_all_that_is_known() -> None:
    ending = Ending(
        outcome=Outcome.FAILED, failure=Failure.CPU, reason="too long", traceback="tb", cpu_ms=9, globals_reset=True
    )
    assert runs.run_ended(make_run(5, generation=3), ending, NOW_MS - 59_000) == runs.RunEnded(
        job=PRICES,
        run=make_run(5).id,
        outcome=Outcome.FAILED,
        failure=Failure.CPU,
        reason="too long",
        traceback="tb",
        duration_ms=1_000,
        cpu_ms=9,
        generation=3,
        globals_reset=True,
    )


def task(**changes: object) -> runs.TaskView:
    return runs.view_task(structs.replace(row("build", workflow="w", attempts=2), **changes))


def test_a_task_is_shown_with_when_it_began_and_how_long_it_took() -> None:
    shown = task(started_ms=1_500, ended_ms=2_750, message="fine", output=wire.pack([{"n": [1, b"x"]}]))
    assert shown == runs.TaskView(
        task="build", workflow="w", status="success", attempts=2, started_at=1.5, took_ms=1_250, message="fine",
        output={"n": [1, "x"]},
    )  # fmt: skip
    assert task(started_ms=2_000, ended_ms=1_000).took_ms == 0
    assert (task(started_ms=None).started_at, task(started_ms=None).took_ms) == (None, None)
    begun = runs.view_task(TaskBegun(ordinal=0, workflow="w", name="build"))
    assert begun == runs.TaskView(task="build", workflow="w", status="running")


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x01", b"\x90", b"\x91" * 5000])
def test_an_output_that_can_not_be_read_is_none(packed: bytes) -> None:
    assert runs.show_output(packed) is None


def test_a_task_crosses_as_a_line_without_what_it_does_not_have() -> None:
    line = runs.event_to_json(task(started_ms=None))
    assert json.loads(line) == {
        "event": "task", "task": "build", "workflow": "w", "status": "success", "attempts": 2, "started_at": None,
        "took_ms": None,
    }  # fmt: skip
    for view in (task(), task(message="m", output=wire.pack([False]))):
        assert runs.event_from_json(runs.event_to_json(view)) == view


def test_a_run_with_its_tasks_is_the_run_and_beside_it_tasks() -> None:
    shown = runs.run_with_tasks(make_run(7), [task(message="m")])
    assert (shown["id"], shown["outcome"]) == (7, "success")
    assert [each["message"] for each in shown["tasks"]] == ["m"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({}, RunMark.SUCCESS),
        ({"due_ms": NOW_MS - 62_000}, RunMark.LATE),
        ({"due_ms": NOW_MS - 62_000, "attempt": 2}, RunMark.SUCCESS),
        ({"outcome": Outcome.FAILED, "failure": Failure.TIMEOUT}, RunMark.FAILED),
        ({"outcome": Outcome.FAILED, "failure": Failure.CANCELLED}, RunMark.CANCELLED),
        ({"outcome": Outcome.LOST}, RunMark.LOST),
        ({"outcome": None, "state": RunState.RUNNING}, RunMark.RUNNING),
        ({"outcome": None, "state": RunState.WAITING}, RunMark.WAITING),
    ],
)
def test_a_run_has_one_letter(changes: dict[str, object], mark: RunMark) -> None:
    assert runs.mark_of(make_run(1, **changes)) is mark


def test_jitter_makes_no_run_late() -> None:
    assert (runs.late_after(make_job(jitter_ms=5_000).spec), runs.late_after(None)) == (
        runs.LATE_MS + 5_000,
        runs.LATE_MS,
    )


def test_a_run_that_never_began_took_no_time_and_is_shown_where_it_was_due_last() -> None:
    missed = make_run(outcome=Outcome.MISSED, started_ms=None, last_due_ms=NOW_MS)
    assert (runs.took_of(missed), runs.lateness_of(missed), runs.moment_of(missed)) == (None, 0, NOW_MS)
    assert runs.took_of(make_run(ended_ms=NOW_MS - 90_000)) == 0  # the clock was set back
    waiting = make_run(outcome=None, state=RunState.WAITING, due_ms=None, started_ms=None, ended_ms=None)
    assert runs.moment_of(waiting) is None
    assert runs.moment_of(replace(waiting, due_ms=NOW_MS)) == NOW_MS


def test_the_success_rate_counts_what_came_to_an_end_of_its_own_and_the_median_what_took_time() -> None:
    assert runs.success_rate("sstflxckmprw") == 3 / 5
    assert runs.success_rate("xckmprw") is None
    assert runs.success_rate("") is None
    assert runs.median_ms([-1, 5, 1, -1, 9]) == 5
    assert runs.median_ms([5, 1]) == 1
    assert runs.median_ms([-1]) is None


def test_what_has_the_same_name_is_copied_unless_it_is_given() -> None:
    line = runs.LogLine(level="info", text="one", at_ms=5)
    assert runs.copied(runs.LogLine, line, text="two") == runs.LogLine(level="info", text="two", at_ms=5)
    with pytest.raises(TypeError, match="level"):
        runs.copied(runs.LogLine, object(), text="two", at_ms=5)
