"""How a run, and its tasks, read in lines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spyweb.cli.output import Format
from spyweb.model import Failure, Outcome, Run, RunId, RunState, Trigger
from spyweb.subjects.runs.commands import TaskTree, describe_task, show_runs, show_tree
from spyweb.views.runs import TaskView
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.terminal import open_terminal, shown_lines

RETRY = Trigger(type="retry", of=RunId(1))
BEGAN = "1 prices Wed 2025-12-31 23:59:00 UTC"
DEBUG = Trigger(type="manual", debug=True)


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (make_run(), f"{BEGAN} 1.234s schedule success"),
        (
            make_run(attempt=3, trigger=RETRY, outcome=Outcome.FAILED, failure=Failure.CPU, reason="10s of CPU"),
            f"{BEGAN} 1.234s retry (attempt 3) failed: cpu: 10s of CPU",
        ),
        (
            make_run(outcome=Outcome.FAILED, failure=Failure.TIMEOUT, reason="timeout after 20s"),
            f"{BEGAN} 1.234s schedule failed: timeout after 20s",
        ),
        (
            make_run(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="it is down"),
            f"{BEGAN} 1.234s schedule failed: it is down",
        ),
        (make_run(http_status=404, items_found=0, items_new=0), f"{BEGAN} 1.234s schedule success: 404, 0 items"),
        (make_run(http_status=200, items_found=24, items_new=1), f"{BEGAN} 1.234s schedule success: 24 items, 1 new"),
        (make_run(items_found=9, items_new=1, items_changed=1), f"{BEGAN} 1.234s schedule success: 9 items, 1 changed"),
        (
            make_run(items_found=9, items_new=3, items_changed=1),
            f"{BEGAN} 1.234s schedule success: 9 items, 2 new, 1 changed",
        ),
        (make_run(trigger=DEBUG, result='{"plan":'), f"{BEGAN} 1.234s manual (debug) success: only planned"),
        (make_run(trigger=Trigger(type="retry", retry_of=RunId(9))), f"{BEGAN} 1.234s retry of run 9 success"),
        (make_run(http_status=304), f"{BEGAN} 1.234s schedule success: 304"),
        (make_run(result="open: not asking"), f"{BEGAN} 1.234s schedule success: open: not asking"),
        (
            make_run(storage_errors=3, result="7", note="held the loop 2.8 s"),
            f"{BEGAN} 1.234s schedule success, 3 storage errors: 7; held the loop 2.8 s",
        ),
        (make_run(state=RunState.RUNNING, outcome=None, ended_ms=None), f"{BEGAN} schedule running"),
        (
            make_run(state=RunState.WAITING, outcome=None, ended_ms=None, started_ms=None, due_ms=None),
            "1 prices schedule waiting",
        ),
        (
            make_run(started_ms=None, ended_ms=NOW_MS, outcome=Outcome.SKIPPED, reason="run 7 is under way"),
            f"{BEGAN} schedule skipped: run 7 is under way",
        ),
    ],
)
def test_a_run_is_one_line(run: Run, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_runs(Format.TABLE, [run], "UTC", NOW_MS)
    _, shown = capsys.readouterr().out.splitlines()
    assert shown.split() == line.split()


def view(task: str, status: str = "success", **changes: object) -> TaskView:
    given: dict[str, object] = {"workflow": "", "attempts": 1, "started_at": 1.0, "took_ms": 1200}
    return TaskView(task=task, status=status, **{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (view("build"), "build in 1.2s"),
        (view("build", attempts=3, message="at last"), "build in 1.2s (attempt 3): at last"),
        (view("build", "failed", message="no\n\tluck"), "build in 1.2s: no luck"),
        (
            view("push", "skipped", attempts=0, started_at=None, took_ms=None, message="build failed"),
            "push: build failed",
        ),
        (view("push", "skipped", attempts=0, message="its run_if said no"), "push: its run_if said no"),
        (view("build", attempts=0), "build (taken over from an earlier run)"),
        (view("build", attempts=0, taken_from=7, message="ok"), "build (taken over from run 7): ok"),
        (view("push", "failed", attempts=0, message="aborted"), "push: aborted"),
    ],
)
def test_a_task_is_one_line(task: TaskView, line: str) -> None:
    assert describe_task(task) == line


def shown(tasks: Sequence[TaskView], capsys: pytest.CaptureFixture[str]) -> list[str]:
    show_tree(tasks)
    return capsys.readouterr().out.splitlines()


def test_tasks_stand_below_their_workflow_and_without_one_at_the_margin(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [view("a", workflow="one"), view("b", "failed", workflow="one"), view("c", "unchanged", workflow="two")]
    assert shown(tasks, capsys) == [
        "one",
        "  success   a in 1.2s",
        "  failed    b in 1.2s",
        "two",
        "  unchanged c in 1.2s",
    ]
    assert shown([view("a")], capsys) == ["success   a in 1.2s"]


def test_what_begins_is_shown_on_a_terminal_alone_in_a_line_that_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = [view("a", "running"), view("b", "running")]
    assert shown(begun, capsys) == []

    terminal = open_terminal(monkeypatch, 80)
    tree = TaskTree()
    for task in (*begun, view("a"), view("b")):
        tree.show(task)
    assert "\r\x1b[K\x1b[36mrunning a, b\x1b[0m\r\x1b[K\x1b[32msuccess" in terminal.getvalue()
    assert shown_lines(terminal)[-1].endswith("success   b in 1.2s")
