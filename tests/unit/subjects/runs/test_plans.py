"""The plan of a run: its tasks level by level, each with its state."""

from __future__ import annotations

import pytest

from spyweb.model import RunId, RunState
from spyweb.store.model.runs import RunPlan
from spyweb.subjects.runs.plans import levels_of, view_plan
from spyweb.views.runs import TaskView
from tests.fakes.daemon_service import make_run

PLAN = RunPlan(
    code={},
    tasks=[("site", "build"), ("site", "announce"), ("site", "upload"), ("checks", "audit")],
    needs=[[], [2, 0], [0], []],
)


def ended(task: str, status: str, **fields: object) -> TaskView:
    return TaskView(task=task, workflow="site", status=status, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needs", "levels"),
    [
        ([], []),
        ([[], [], []], [1, 1, 1]),
        ([[1], [2], []], [3, 2, 1]),
        ([[], [0], [0, 0], [1, 2]], [1, 2, 2, 3]),
        ([[1], [0], []], [1, 1, 1]),  # which no script can declare
    ],
)
def test_a_task_is_one_level_above_the_highest_that_it_depends_on(needs: list[list[int]], levels: list[int]) -> None:
    assert levels_of(needs) == levels


def test_each_task_has_the_state_of_its_end_and_the_others_say_that_they_did_not_run() -> None:
    run = make_run(9)
    tasks = [ended("build", "success", taken_from=RunId(7)), ended("upload", "failed", message="bucket answers 503")]

    found = view_plan(run, PLAN, tasks)

    assert found is not None
    assert [(each.workflow, [len(level) for level in each.levels]) for each in found.workflows] == [
        ("site", [1, 1, 1]), ("checks", [1]),
    ]  # fmt: skip
    planned = [task for each in found.workflows for task in each.tasks]
    assert [(task.task, task.mark, task.words, task.after) for task in planned] == [
        ("build", "ok", "succeeded, taken over from run 7", ""),
        ("upload", "bad", "failed", "build"),
        ("announce", "none", "not run", "upload, build"),
        ("audit", "none", "not run", ""),
    ]
    assert [task.why for task in planned] == ["", "bucket answers 503", "", ""]


def test_a_task_of_a_run_under_way_is_pending_and_a_run_without_a_plan_draws_none() -> None:
    run = make_run(9, state=RunState.RUNNING, outcome=None, ended_ms=None)
    found = view_plan(run, PLAN, [])
    assert found is not None
    assert {task.status for each in found.workflows for task in each.tasks} == {"pending"}
    assert view_plan(run, None, []) is None
    assert view_plan(run, RunPlan(code={}), []) is None  # too many tasks to be drawn
