"""One job in words and charts."""

from __future__ import annotations

from spyweb.model import Outcome, RunMark
from spyweb.subjects.jobs.overview import Standing
from spyweb.subjects.jobs.words import (
    HEADINGS,
    SPAN_WORDS,
)
from spyweb.subjects.runs.views import TimeSpan
from spyweb.subjects.runs.words import show_run
from spyweb.web.pages.charts import KINDS
from tests.fakes.daemon_service import make_run


def test_every_standing_outcome_and_span_has_words() -> None:
    assert set(HEADINGS) == set(Standing)
    assert set(KINDS) == set(RunMark)
    assert set(SPAN_WORDS) == set(TimeSpan)


def test_a_run_is_shown_with_how_late_it_was_where_that_is_known() -> None:
    shown = show_run(make_run(1), 1_000)
    assert (shown.word, shown.tone, shown.mark, shown.took_ms, shown.late_ms) == ("succeeded", "ok", "ok", 1_234, 0)
    missed = show_run(make_run(3, started_ms=None, outcome=Outcome.MISSED, count=7), 1_000)
    assert (missed.word, missed.tone, missed.took_ms, missed.late_ms) == ("missed 7 times", "warn", None, None)
    assert show_run(make_run(2, attempt=2), 1_000).late_ms is None
