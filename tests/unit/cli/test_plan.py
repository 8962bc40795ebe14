"""How the plan of a run of tasks reads."""

from __future__ import annotations

import pytest

from spyweb.cli.plan import plan_in, show_plan
from spyweb.model import JobId, Outcome
from spyweb.views.runs import RunEnded


def ended(result: object) -> RunEnded:
    return RunEnded(job=JobId("a"), run=None, outcome=Outcome.SUCCESS, result=result)


def test_a_plan_is_told_from_what_a_script_returns() -> None:
    assert plan_in(ended({"plan": []})) == []
    assert [plan_in(ended(other)) for other in (None, "x", {"plan": 1}, {"plan": [], "x": 1}, {})] == [None] * 5


def test_steps_are_in_their_order_with_what_there_is_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(
        [
            {
                "workflow": "release",
                "description": "ships it",
                "on_failure": "continue",
                "max_parallel_tasks": 2,
                "timeout_ms": 60_000,
                "tasks": [
                    {"task": "build", "step": 1, "retries": 1},
                    {"task": "lint", "step": 1, "timeout_ms": 1_500, "retries": 3},
                    {"task": "push", "step": 2, "depends_on": ["build", "lint"], "conditions": ["run_if"]},
                ],
            },
            {
                "workflow": "",
                "on_failure": "stop",
                "max_parallel_tasks": 1,
                "tasks": [{"task": "a", "step": 1}],
                "more": 9_999,
            },
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "release (ships it; 2 at a time; at most 1m; goes on after a failure)",
        "  1.  build (1 retry)",
        "      lint (at most 1.5s; 3 retries)",
        "  2.  push (after build, lint; run_if)",
        "  1.  a",
        "  and 9999 more",
    ]
