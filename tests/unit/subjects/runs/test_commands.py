"""How a run reads in one line."""

from __future__ import annotations

import pytest

from spyweb.model import Failure, Outcome, Run, RunId, RunState, Trigger
from spyweb.subjects.runs.commands import show_runs
from tests.fakes.daemon_service import NOW_MS, make_run

RETRY = Trigger(type="retry", of=RunId(1))
BEGAN = "1 prices Wed 2025-12-31 23:59:00 UTC"


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
    show_runs([run], "UTC", NOW_MS)
    _, shown = capsys.readouterr().out.splitlines()
    assert shown.split() == line.split()
