"""How a run reads in one line."""

from __future__ import annotations

import pytest

from spyweb.cli.runs import show_runs
from spyweb.model import Failure, Outcome, Run, RunState
from tests.fakes.desk import NOW_MS, make_run

RETRY = {"type": "retry", "of": 1}


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (make_run(), "1 prices Wed 2025-12-31 23:59:00 UTC 1.234s schedule success"),
        (
            make_run(attempt=3, trigger=RETRY, outcome=Outcome.FAILED, failure=Failure.CPU, reason="10s of CPU"),
            "1 prices Wed 2025-12-31 23:59:00 UTC 1.234s retry (attempt 3) failed cpu: 10s of CPU",
        ),
        (
            make_run(outcome=Outcome.FAILED, failure=Failure.TIMEOUT, reason="timeout after 20s"),
            "1 prices Wed 2025-12-31 23:59:00 UTC 1.234s schedule failed timeout after 20s",
        ),
        (
            make_run(state=RunState.RUNNING, outcome=None, ended_ms=None),
            "1 prices Wed 2025-12-31 23:59:00 UTC schedule running",
        ),
        (
            make_run(state=RunState.WAITING, outcome=None, ended_ms=None, started_ms=None, due_ms=None),
            "1 prices schedule waiting",
        ),
        (
            make_run(started_ms=None, ended_ms=NOW_MS, outcome=Outcome.SKIPPED, reason="run 7 is under way"),
            "1 prices Wed 2025-12-31 23:59:00 UTC schedule skipped run 7 is under way",
        ),
    ],
)
def test_a_run_is_one_line(run: Run, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_runs([run], "UTC")
    _, shown = capsys.readouterr().out.splitlines()
    assert shown.split() == line.split()
