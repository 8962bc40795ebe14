"""The plan of a run with tasks: its tasks level by level, each with its state.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

from msgspec import Struct

from spyweb.model import Run, RunId, RunState, TaskStatus
from spyweb.store.model.runs import RunPlan
from spyweb.views.runs import TaskView
from spyweb.words import cut, first_line

PENDING, NOT_RUN = "pending", "not run"
LONGEST_MESSAGE = 120  # characters in a box
MOST_NAMED = 3  # dependencies of a task that its box names
# The state of a task → the mark that stands for it, and its word.
STATES: Mapping[str, tuple[str, str]] = {
    TaskStatus.SUCCESS.value: ("ok", "succeeded"),
    TaskStatus.UNCHANGED.value: ("ok", "unchanged"),
    TaskStatus.FAILED.value: ("bad", "failed"),
    TaskStatus.SKIPPED.value: ("off", "skipped"),
    PENDING: ("wait", "pending"),
    NOT_RUN: ("none", "not run"),
}


class PlannedTaskView(Struct, frozen=True, kw_only=True):
    """A task of a plan, and its state in one run."""

    task: str
    level: int  # 1: it depends on no other task
    depends_on: Sequence[str] = ()
    status: str  # "pending", "not run", or as in TaskView
    message: str = ""
    taken_from: RunId | None = None  # the run that performed it, where this one has taken over the result

    @property
    def mark(self) -> str:
        return STATES[self.status][0]

    @property
    def words(self) -> str:
        origin = f", taken over from run {self.taken_from}" if self.taken_from else ""
        return STATES[self.status][1] + origin

    @property
    def after(self) -> str:
        """The tasks that it depends on; of many the first ones, and how many more."""
        more = len(self.depends_on) - MOST_NAMED
        return ", ".join(self.depends_on[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

    @property
    def why(self) -> str:
        """The beginning of the message of a task that did not succeed."""
        return cut(first_line(self.message), LONGEST_MESSAGE) if self.mark in ("bad", "off") else ""


class WorkflowPlan(Struct, frozen=True, kw_only=True):
    """The tasks of one workflow, by level."""

    workflow: str  # empty: the tasks belong to none
    tasks: Sequence[PlannedTaskView]

    @property
    def levels(self) -> list[list[PlannedTaskView]]:
        return [list(tasks) for _, tasks in groupby(self.tasks, key=lambda task: task.level)]


class PlanView(Struct, frozen=True, kw_only=True):
    """The plan of a run."""

    run: RunId
    workflows: Sequence[WorkflowPlan]


def view_plan(run: Run, plan: RunPlan | None, ended: Sequence[TaskView]) -> PlanView | None:
    """Return the plan of a run with the states of its tasks; None where none is recorded."""
    if plan is None or not plan.tasks:
        return None
    known = {(task.workflow, task.task): task for task in ended}
    missing = NOT_RUN if run.state is RunState.ENDED else PENDING
    levels = levels_of(plan.needs)
    views: dict[str, list[PlannedTaskView]] = {}
    for (workflow, name), needs, level in zip(plan.tasks, plan.needs, levels, strict=True):
        task = known.get((workflow, name))
        view = PlannedTaskView(
            task=name,
            level=level,
            depends_on=[plan.tasks[need][1] for need in needs],
            status=task.status if task else missing,
            message=task.message if task else "",
            taken_from=task.taken_from if task else None,
        )
        views.setdefault(workflow, []).append(view)
    workflows = [
        WorkflowPlan(workflow=workflow, tasks=sorted(tasks, key=lambda task: task.level))
        for workflow, tasks in views.items()
    ]
    return PlanView(run=run.id, workflows=workflows)


def levels_of(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return the level of each task: one more than the highest of those that it depends on."""
    levels = [1] * len(needs)
    with suppress(CycleError):  # which no script can declare
        for task in TopologicalSorter(dict(enumerate(needs))).static_order():
            levels[task] = 1 + max((levels[need] for need in needs[task]), default=0)
    return levels
