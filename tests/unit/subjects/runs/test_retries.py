"""A retry that a person asks for: what it takes over, and why it is refused."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from spyweb.model import Outcome, Run, RunId, RunState, TaskStatus, Trigger, TriggerType
from spyweb.store.model.runs import RunPlan
from spyweb.subjects.runs.retries import first_open, refusal_of, request_of
from tests.fakes.daemon_service import make_run
from tests.fakes.task_rows import FAILED, SKIPPED, row


def failed(**changes: object) -> Run:
    return make_run(12, **{"outcome": Outcome.FAILED, **changes})


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (failed(), ""),
        (failed(outcome=Outcome.LOST), ""),
        (failed(outcome=Outcome.STOPPED), ""),
        (failed(state=RunState.RUNNING, outcome=None), "it has not ended yet"),
        (failed(outcome=Outcome.SUCCESS), "it succeeded; `spyweb trigger prices` starts the job again"),
        (failed(outcome=Outcome.MISSED), "it did not fail, its outcome is missed; `spyweb trigger prices` starts .*"),
        (failed(trigger=Trigger(debug=True)), "it was a dry run or a debug run; `spyweb trigger prices` starts .*"),
        (failed(trigger=Trigger(incident={"id": 1})), "it called an alert hook of its job, not the job itself"),
        (failed(trigger=Trigger(finding="x")), "it was a drift check; `spyweb drift prices` checks again"),
        (failed(trigger=Trigger(event=4)), "the change of state that started it is no longer stored; .*without it"),
        (failed(trigger=Trigger(payload_stored=True)), "its large payload is no longer stored; send it again"),
    ],
)
def test_a_run_that_can_not_be_retried_says_why_and_what_to_do(run: Run, reason: str) -> None:
    assert re.fullmatch(reason, refusal_of(run))


def test_a_retry_has_the_payload_values_and_headers_of_the_run_and_counts_its_attempts_anew() -> None:
    sent = Trigger(type="webhook", payload={"a": 1}, headers={"x-y": "z"}, query={"q": "1"}, values={"place": "here"})
    request = request_of(failed(trigger=sent, attempt=3))
    assert request.trigger == structs.replace(sent, type=TriggerType.RETRY, retry_of=RunId(12))


def test_a_retry_starts_at_the_first_task_that_is_not_finished_also_where_the_run_was_lost() -> None:
    rows = [
        row("build", status=TaskStatus.UNCHANGED), row("lint", status=SKIPPED),
        row("upload", status=FAILED), row("announce", status=SKIPPED, started_ms=None),
    ]  # fmt: skip
    assert first_open(rows, None) == "upload"
    plan = RunPlan(code={}, tasks=[("", "build"), ("", "lint"), ("", "upload")], needs=[[], [], []])
    assert first_open(rows[:2], plan) == "upload"  # it was under way as the daemon died
    assert first_open(rows[:2], None) == ""
