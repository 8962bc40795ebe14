"""The tasks of a run as a tree: a line for each workflow, and below it one for each task."""

from __future__ import annotations

from collections.abc import Iterable

from spyweb.cli import output
from spyweb.settings.units import format_duration
from spyweb.views.runs import TaskView

RUNNING = "running"


class TaskTree:
    """Shows tasks as they end, and on a terminal, in a line that passes, those that are under way."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._workflow = ""  # whose tasks are being shown
        self._under_way: dict[tuple[str, str], None] = {}

    def show(self, task: TaskView) -> None:
        key = (task.workflow, task.task)
        if task.status == RUNNING:
            self._under_way[key] = None
        else:
            self._under_way.pop(key, None)
            self.hide_passing()
            self._show_end(task)
        self.show_passing()

    def show_passing(self) -> None:
        if self._under_way:
            output.show_passing(f"{RUNNING} {', '.join(task for _, task in self._under_way)}")

    def hide_passing(self) -> None:
        output.show_passing("")

    def _show_end(self, task: TaskView) -> None:
        if task.workflow != self._workflow:
            self._workflow = task.workflow
            output.show_branch(self._depth, "", task.workflow)
        output.show_branch(self._depth + bool(task.workflow), task.status, describe_task(task))


def describe_task(task: TaskView) -> str:
    """Return all that there is to say of a task beside its status: `build in 1.2s (attempt 3): pushed`."""
    took = f" in {format_duration(task.took_ms)}" if task.took_ms is not None and task.attempts else ""
    attempts = f" (attempt {task.attempts})" if task.attempts > 1 else ""
    earlier = " (by an earlier run)" if not task.attempts and task.status in ("success", "unchanged") else ""
    return f"{task.task}{took}{attempts}{earlier}{': ' if task.message else ''}{' '.join(task.message.split())}"


def show_tree(tasks: Iterable[TaskView], depth: int = 0) -> None:
    tree = TaskTree(depth)
    for task in tasks:
        tree.show(task)
