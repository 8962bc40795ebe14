"""Trying a job."""

from __future__ import annotations

from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.views.runs import LogLine, RunEnded, RunEvent, TaskView
from spyweb.web.pages.trial import MOST_LINES
from tests.fakes.daemon_service import NOW_MS
from tests.fakes.dashboard import MARKUP, make_dashboard_service, post_form


async def tried(events: list[RunEvent]) -> tuple[str, list[str]]:
    service = make_dashboard_service()
    service.watched = events
    status, _, page = await post_form(service, "/jobs/prices/try", back="/jobs/prices")
    assert status == 200
    return page, service.story


def ended(**changes: object) -> RunEnded:
    known = {"job": JobId("prices"), "run": RunId(9), "outcome": Outcome.SUCCESS, "duration_ms": 12}
    return RunEnded(**{**known, **changes})  # type: ignore[arg-type]


async def test_a_trial_shows_what_was_logged_and_found() -> None:
    line = LogLine(level="info", text=MARKUP, at_ms=NOW_MS)
    tasks = [TaskView(task=MARKUP, workflow="", status=status, message=MARKUP) for status in ("running", "failed")]
    page, story = await tried([line, *tasks, ended(result={"items": [MARKUP]})])
    assert "Succeeded after 12\N{NO-BREAK SPACE}ms</h1>" in page
    assert story[0] == "debug prices", "it has pages, so it is a monitor"
    assert story[-1] == "closed"
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert 'name="back" value="/jobs/prices"' in page


async def test_a_trial_that_fails_says_why() -> None:
    failed = ended(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=MARKUP, traceback=MARKUP)
    page, _ = await tried([failed])
    assert "Failed after" in page
    assert "It logged nothing." in page
    assert page.count("&lt;script&gt;") >= 2


async def test_a_trial_that_logs_much_is_cut_off() -> None:
    lines: list[RunEvent] = [LogLine(level="info", text="x", at_ms=NOW_MS)] * (MOST_LINES + 3)
    page, _ = await tried([*lines, ended()])
    assert page.count('data-as="exact"') == MOST_LINES
    assert "3\N{NO-BREAK SPACE}further lines" in page
