"""One run in words and bars."""

from __future__ import annotations

from spyweb.model import Outcome, TriggerType
from spyweb.subjects.runs.views import CauseStep
from spyweb.subjects.runs.words import (
    causes_of,
    facts_of,
    said_of,
    scale_of,
    task_bars,
    whole_of,
)
from tests.fakes.daemon_service import make_run
from tests.fakes.dashboard import make_run_detail

FAILED = make_run(7, outcome=Outcome.FAILED, reason="no")


def test_tasks_are_bars_beside_their_run() -> None:
    detail = make_run_detail(FAILED)
    bars = task_bars(detail)
    assert [(bar.tone, bar.took_ms) for bar in bars] == [("ok", 600), ("bad", 100)]
    assert whole_of(detail) == 1_234
    assert (bars[1].span.x, bars[1].span.width) == (0.4862, 0.081)
    assert scale_of(1_200) == [0, 300, 600, 900, 1_200]
    assert task_bars(make_run_detail(make_run(3, started_ms=None, outcome=Outcome.MISSED))) == []


def test_attempts_stand_for_the_retries_that_they_are() -> None:
    retry = CauseStep(kind=TriggerType.RETRY, words="attempt 2, of run 6")
    detail = make_run_detail(FAILED, causes=[CauseStep(kind=TriggerType.SCHEDULE, words="due"), retry])
    words = [cause.words for cause in causes_of(detail)]
    assert words[:3] == ["due", "attempt 1: this one", "attempt 2: succeeded"]
    assert words[3].startswith("then ")
    assert said_of(detail) == "Attempt 1 of 2."
    alone = make_run_detail(FAILED, causes=[retry], attempts=[], followers=[], is_there=False)
    assert [cause.words for cause in causes_of(alone)] == ["attempt 2, of run 6"]
    assert said_of(alone) == "The job is gone."


def test_facts_stand_beside_their_limits() -> None:
    run = make_run(7, outcome=Outcome.FAILED, storage_errors=3, http_status=404, items_found=5, note="odd", attempt=2)
    facts = {fact.name: fact for fact in facts_of(make_run_detail(run))}
    assert facts["time"].words.replace("\N{NO-BREAK SPACE}", " ") == "20.4 s of 1 m"
    assert facts["time"].tone == "bad"
    assert facts["memory"].words.replace("\N{NO-BREAK SPACE}", " ") == "at most 64 MB"
    assert (facts["storage errors"].words, facts["page"].words, facts["note"].words) == ("3", "status 404", "odd")
    assert facts["items"].words == "5, of them 0 new"
    assert facts["attempt"].words == "2"
    assert "late" not in facts
    assert facts["began"].at_ms == run.started_ms
