"""Events in words, and their page."""

from __future__ import annotations

import re

import pytest

from spyweb.events import happenings
from spyweb.model import ChangeKind, JobId, Outcome, RunId
from spyweb.runs.live import JobChange
from spyweb.store.model.access import NewAuditLine, Scope
from spyweb.subjects.events.pages import JOB_WORDS, TYPE_WORDS, describe
from spyweb.web.pages.words import NBSP
from tests.fakes.daemon_service import BACKUP, MARKUP, NOW_MS, FakeDaemonService
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, signed_in

PRICES = JobId("prices")


def run(**fields: object) -> happenings.RunHappened:
    return happenings.RunHappened(job=PRICES, **fields)  # type: ignore[arg-type]


def incident(**fields: object) -> happenings.IncidentHappened:
    return happenings.IncidentHappened(incident=4, subject="job:prices", job=PRICES, at_ms=0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("happening", "mark", "words"),
    [
        (run(what="began", run=RunId(1234), late_ms=900), "run", "run 1,234 began"),
        (run(what="began", run=RunId(1), late_ms=2_000), "run", f"run 1 began, 2{NBSP}s late"),
        (run(what="waits", run=RunId(1)), "wait", "run 1 waits"),
        (run(what="skipped", count=3, outcome=Outcome.MISSED), "warn", f"3{NBSP}due times missed"),
        (
            run(what="ended", run=RunId(1), took_ms=1_500, outcome=Outcome.SUCCESS, items_new=2),
            "ok",
            f"run 1 succeeded after 1.5{NBSP}s, 2 new",
        ),
        (run(what="ended", run=RunId(1), outcome=Outcome.LOST), "bad", "run 1 lost"),
        (run(what="ended", run=RunId(1)), "none", "run 1 ended"),
        (happenings.JobHappened(what=JobChange.BROKEN, job=PRICES, error="x"), "bad", "saved with an error"),
        (happenings.HealthHappened(what="began", kind="problem", text="x"), "bad", "began"),
        (happenings.HealthHappened(what="began", kind="warning", text="x"), "warn", "began"),
        (happenings.HealthHappened(what="ended", kind="problem", text="x"), "ok", "ended"),
        (happenings.OutboxHappened(what="given up", message=7, job=PRICES), "bad", "message 7 given up"),
        (
            NewAuditLine(who="anna", source="key", action="POST /x", status=403, at_ms=0, times=3),
            "warn",
            "anna: POST /x 3 times",
        ),
        (incident(what="opened", level="critical", reason="late", text="x"), "bad", "incident 4 began: late"),
        (incident(what="opened", level="info", reason="drift", text="x"), "warn", "incident 4 began: drift"),
        (incident(what="acked", by="me"), "none", "incident 4 was acknowledged by me"),
        (
            happenings.IncidentHappened(what="closed", incident=4, subject="channel:ops", at_ms=0),
            "ok",
            "incident 4 of channel:ops ended",
        ),
    ],
)
def test_what_has_happened_is_said_with_a_mark(happening: happenings.Happening, mark: str, words: str) -> None:
    line = describe(happening)
    assert (line.mark, line.words) == (mark, words)


def test_a_change_of_a_value_names_its_key_cut_where_it_is_long() -> None:
    change = happenings.StateHappened(what=ChangeKind.EXPIRED, namespace="global", key="k" * 100, version=1, at_ms=0)
    line = describe(change)
    assert (len(line.key), line.words, line.more) == (80, "expired", "global")


def test_every_change_and_every_type_has_words() -> None:
    assert set(JOB_WORDS) == set(JobChange)
    assert set(TYPE_WORDS) == set(happenings.EventType) - {happenings.EventType.LOG, happenings.EventType.TASK}


def run_ended(service: FakeDaemonService, number: int, job: JobId = PRICES, reason: str = "") -> None:
    happened = happenings.RunHappened(
        what="ended", job=job, run=RunId(number), took_ms=1_200, outcome=Outcome.FAILED, reason=reason
    )
    service.events.publish(happenings.EventType.RUN, job, happened)


async def lines(service: FakeDaemonService, path: str = "/events", **headers: str) -> list[str]:
    async with dashboard(service) as client:
        status, page = await get_page(client, path, **headers)
        assert status == 200, page
        return re.findall(r"run (\d+) failed after", page)


async def test_it_listens_from_the_first_look_on_and_shows_the_newest_first() -> None:
    service = make_dashboard_service()
    run_ended(service, 1)
    page = await page_of("/events", service)
    assert "No events yet" in page
    run_ended(service, 2)
    run_ended(service, 3)
    assert await lines(service) == ["3", "2"]


async def test_types_and_jobs_are_chosen() -> None:
    service = make_dashboard_service()
    await lines(service)
    run_ended(service, 2)
    run_ended(service, 3, BACKUP)
    happened = happenings.StateHappened(
        what=ChangeKind.UPDATED, namespace="global", key=MARKUP, version=2, at_ms=NOW_MS
    )
    service.events.publish(happenings.EventType.STATE, None, happened)
    assert await lines(service, "/events?job=backup") == ["3"]
    assert await lines(service, "/events?type=state") == []
    page = await page_of(f"/events?type=state&job={MARKUP}", service)
    page = await page_of("/events?type=state", service)
    assert "&lt;script&gt;" in page


async def test_whoever_may_see_some_jobs_hears_of_those_and_actions_are_for_admins() -> None:
    service = make_dashboard_service()
    limited = await signed_in(service, Scope.ADMIN, jobs=("backup",))
    await lines(service, **limited)
    run_ended(service, 2)
    run_ended(service, 3, BACKUP)
    action = NewAuditLine(who="anna", source="key", action="POST /x", status=200, at_ms=NOW_MS, job="backup")
    service.events.publish(happenings.EventType.AUDIT, BACKUP, action)
    assert await lines(service, **limited) == ["3"]
    for path in ("/events", "/events?type=audit"):
        page = await page_of(path, service, limited)
        assert "POST /x" not in page
    await page_of("/events?job=prices", service, limited, status=404)
