"""What a person sees of a run as it goes."""

from __future__ import annotations

from typing import Any

import pytest

from spyweb.cli.run import RunScreen
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.views.runs import RunEnded


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["success prices in 12ms"]),
        ({"result": "fine"}, ["returned fine", "success prices in 12ms"]),
        ({"http_status": 404, "items_found": 0}, ["success prices in 12ms: 404, 0 items"]),
        (
            {"storage_errors": 3, "note": "held the loop 2.8 s"},
            ["success prices in 12ms: 3 storage errors; held the loop 2.8 s"],
        ),
        (
            {"outcome": Outcome.FAILED, "failure": Failure.CPU, "reason": "a.lua:1: too much"},
            ["a.lua:1: too much", "failed prices (cpu) in 12ms"],
        ),
    ],
)
def test_the_end_of_a_run_says_what_there_is_to_say(
    changes: dict[str, Any], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"job": JobId("prices"), "run": RunId(1), "outcome": Outcome.SUCCESS, "duration_ms": 12}
    RunScreen()(RunEnded(**{**given, **changes}))
    assert capsys.readouterr().out.splitlines() == lines
