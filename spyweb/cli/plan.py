"""Show the plan of a run of tasks, for `spyweb debug`: nothing of it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import cast

from spyweb.cli import output
from spyweb.settings.units import format_duration
from spyweb.views.runs import RunEnded

Planned = Mapping[str, object]


def plan_in(ended: RunEnded) -> Sequence[Planned] | None:
    """Return the workflows that a debug run gives in place of running them, each with its tasks; None of other runs."""
    result = ended.result
    plan = result.get("plan") if isinstance(result, dict) and result.keys() == {"plan"} else None
    return cast(Sequence[Planned], plan) if isinstance(plan, list) else None


def show_plan(plan: Sequence[Planned]) -> None:
    for workflow in plan:
        if workflow.get("workflow"):
            output.show_branch(0, "", f"{workflow['workflow']}{_described(_rules(workflow))}")
        for step, tasks in groupby(sorted(_tasks(workflow), key=_step), key=_step):
            label = f"{step}."
            for task in tasks:
                output.show_branch(1, "", f"{label:<4}{task['task']}{_described(_facts(task))}")
                label = ""
        if workflow.get("more"):
            output.show_branch(1, "", f"and {workflow['more']} more")


def _tasks(workflow: Planned) -> Sequence[Planned]:
    return cast(Sequence[Planned], workflow["tasks"])


def _step(task: Planned) -> int:
    return cast(int, task["step"])


def _rules(workflow: Planned) -> list[str]:
    at_once = cast(int, workflow["max_parallel_tasks"])
    return [
        *([str(workflow["description"])] if workflow.get("description") else []),
        *([f"{at_once} at a time"] if at_once > 1 else []),
        *_timeout(workflow),
        *(["goes on after a failure"] if workflow["on_failure"] == "continue" else []),
    ]


def _facts(task: Planned) -> list[str]:
    needs = cast(Sequence[str], task.get("depends_on") or ())
    conditions = cast(Sequence[str], task.get("conditions") or ())
    retries = task.get("retries")
    return [
        *([f"after {', '.join(needs)}"] if needs else []),
        *conditions,
        *_timeout(task),
        *([f"{retries} {'retry' if retries == 1 else 'retries'}"] if retries else []),
    ]


def _timeout(planned: Planned) -> list[str]:
    timeout_ms = planned.get("timeout_ms")
    return [f"at most {format_duration(cast(int, timeout_ms))}"] if timeout_ms else []


def _described(facts: Sequence[str]) -> str:
    return f" ({'; '.join(facts)})" if facts else ""
