"""What pages fetch when they are told that something has changed."""

from __future__ import annotations

import asyncio
import re

import pytest

from spyweb.events.changes import LOG_LINES
from spyweb.events.happenings import (
    EventType,
    Happening,
    HealthHappened,
    IncidentHappened,
    JobHappened,
    LogHappened,
    OutboxHappened,
    RunHappened,
    StateHappened,
    TaskHappened,
)
from spyweb.model import ChangeKind, Outcome, RunId, RunState, TaskStatus
from spyweb.runs.live import JobChange
from spyweb.store.model.access import NewAuditLine, Scope
from spyweb.subjects.outbox import pages as outbox
from spyweb.web.pages import site
from tests.fakes.client import Client
from tests.fakes.daemon_service import BACKUP, MARKUP, NOW_MS, FakeDaemonService, make_run
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, signed_in
from tests.fakes.incidents import fail

RAN = RunHappened(what="ended", job=BACKUP, run=RunId(9), outcome=Outcome.FAILED, items_new=1)
EVENTS: dict[EventType, Happening] = {
    EventType.RUN: RAN,
    EventType.JOB: JobHappened(what=JobChange.RELOADED, job=BACKUP),
    EventType.STATE: StateHappened(what=ChangeKind.UPDATED, namespace="global", key="a", version=2, at_ms=NOW_MS),
    EventType.HEALTH: HealthHappened(what="began", kind="warning", text="the disk is full"),
    EventType.OUTBOX: OutboxHappened(what="sent", message=1, job=BACKUP, reason=""),
    EventType.INCIDENT: IncidentHappened(what="opened", incident=1, subject="job:backup", at_ms=NOW_MS, job=BACKUP),
    EventType.AUDIT: NewAuditLine(who="anna", source="key", action="POST /x", status=200, at_ms=NOW_MS),
    EventType.TASK: TaskHappened(job=BACKUP, run=RunId(9), task="build", status=TaskStatus.SUCCESS),
    EventType.LOG: LogHappened(job=BACKUP, level="info", text=MARKUP, at_ms=NOW_MS),
}
BAR = ["count-health", "count-incidents", "count-jobs", "icon"]
SUMMARY = [*BAR, "attention", "title", "verdict"]
HEAD = ["job-alerts", "job-head"]
CASES = [
    ("/", EventType.RUN, [*SUMMARY, "j-backup"]),
    ("/", EventType.HEALTH, SUMMARY),
    ("/", EventType.STATE, []),
    ("/jobs/backup", EventType.RUN, [*BAR, *HEAD, "job-next", "job-plan", "job-runs", "job-why", "title"]),
    ("/jobs/backup", EventType.TASK, ["job-plan"]),
    ("/jobs/backup", EventType.INCIDENT, [*BAR, *HEAD]),
    ("/jobs/prices", EventType.RUN, BAR),
    ("/incidents", EventType.INCIDENT, [*BAR, "incidents-now", "title"]),
    ("/incidents/1", EventType.OUTBOX, ["incident-now", "title"]),
    ("/channels", EventType.OUTBOX, ["channels-now"]),
    ("/maintenance", EventType.INCIDENT, [*BAR, "maintenance-now"]),
    ("/records", EventType.RUN, [*BAR, "records-now"]),
    ("/state?namespace=global&key=a", EventType.STATE, ["keys", "past"]),
    ("/state?namespace=job:backup", EventType.STATE, []),
    ("/outbox", EventType.OUTBOX, ["messages"]),
    ("/health", EventType.HEALTH, [*BAR, "health-now"]),
    ("/keys", EventType.AUDIT, ["audit"]),
    ("/when", EventType.RUN, BAR),
    ("/events", EventType.AUDIT, ["event-list"]),
    ("/events?type=run&job=backup", EventType.RUN, [*BAR, "event-list"]),
    ("/events?type=run&job=prices", EventType.RUN, BAR),
]
PARTS = {part for *_, parts in CASES for part in parts}


def publish(service: FakeDaemonService, kind: EventType) -> None:
    job = BACKUP if "job" in EVENTS[kind].__struct_fields__ else None
    service.events.publish(kind, job, EVENTS[kind], changes_standing=True)


def mark_of(page: str) -> str:
    return str(re.findall(r'data-mark="([^"]+)"', page)[0])


async def changes(client: Client, path: str, mark: str, **headers: str) -> tuple[str | None, str]:
    """Fetch what has changed; return the new mark, None where it is the whole page, and the text."""
    sign = "&" if "?" in path else "?"
    async with client.get(f"{path}{sign}since={mark}", headers={"Accept": "text/html", **headers}) as answer:
        assert answer.status == 200
        return answer.headers.get("Spyweb-Mark"), await answer.text()


@pytest.mark.parametrize(("path", "kind", "parts"), CASES)
async def test_a_page_fetches_what_has_changed_as_the_page_has_it(path: str, kind: EventType, parts: list[str]) -> None:
    service = make_dashboard_service()
    await fail(service.stored_incidents, "backup")
    async with dashboard(service) as client:
        mark = mark_of((await get_page(client, path))[1])
        publish(service, kind)
        reached, html = await changes(client, path, mark)
        assert sorted(PARTS & set(re.findall(r'id="([^"]+)"', html))) == sorted(parts)
        assert reached
        assert await changes(client, path, reached) == (reached, "")
        now = (await get_page(client, path))[1]
    for line in html.splitlines():
        assert line in now


@pytest.mark.parametrize("path", ["/", "/when", "/maintenance"])
async def test_with_another_list_of_jobs_the_whole_page_comes(path: str) -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        mark = mark_of((await get_page(client, path))[1])
        service.events.publish(EventType.JOB, BACKUP, JobHappened(what=JobChange.REMOVED, job=BACKUP))
        reached, page = await changes(client, path, mark)
    assert (reached is None, "<!doctype html>" in page) == (path != "/maintenance", path != "/maintenance")


async def test_a_run_is_followed_until_it_ends() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(9, state=RunState.RUNNING, outcome=None, ended_ms=None)]
    async with dashboard(service) as client:
        mark = mark_of((await get_page(client, "/runs/9"))[1])
        service.known_runs = [make_run(9)]
        publish(service, EventType.RUN)
        reached, page = await changes(client, "/runs/9", mark)
    assert reached is None
    assert "data-mark" not in page


async def test_a_log_gets_the_lines_that_it_lacks() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        mark = mark_of((await get_page(client, "/jobs/backup"))[1])
        for _ in range(3):
            publish(service, EventType.LOG)
        reached, html = await changes(client, "/jobs/backup", mark)
        assert html.count('data-into="log-lines"') == html.count("&lt;script&gt;") == 3
        publish(service, EventType.LOG)
        publish(service, EventType.RUN)
        reached, html = await changes(client, "/jobs/backup", str(reached))
        assert (html.count('data-into="log-lines"'), 'id="job-head"' in html) == (1, True)
        for _ in range(LOG_LINES + 5):
            publish(service, EventType.LOG)
        _, html = await changes(client, "/jobs/backup", str(reached))
    assert "5\xa0lines came faster than they could be shown" in html


async def test_nothing_is_kept_for_an_address_that_is_no_page() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        topics = len(service.events._kept)
        assert (await get_page(client, "/jobs/nobody"))[0] == 404
        assert len(service.events._kept) == topics


async def test_a_name_with_braces_is_a_name() -> None:
    async with dashboard(make_dashboard_service()) as client:
        assert (await get_page(client, "/state?namespace=scope:user%7B1%7D"))[0] == 200
        assert (await get_page(client, "/events?type=run&job=%7Bx%7D"))[0] in (200, 404)


async def test_each_viewer_gets_what_was_made_for_it() -> None:
    service = make_dashboard_service()
    await fail(service.stored_incidents, "backup")
    viewers = {}
    for name in ("alice", "bob"):
        made = await service.access.add(name, [Scope.RUN])
        viewers[name] = {"X-SpyWeb-Key": made.token}
    limited = await signed_in(service, Scope.READ, jobs=("prices",))
    async with dashboard(service) as client:
        mark = mark_of((await get_page(client, "/incidents/1", **viewers["bob"]))[1])
        publish(service, EventType.INCIDENT)
        for name in ("alice", "bob", "alice"):
            _, html = await changes(client, "/incidents/1", mark, **viewers[name])
            assert f"as <bdi>{name}</bdi>" in html
        assert (await get_page(client, f"/incidents/1?since={mark}", **limited))[0] == 404
        mark = mark_of((await get_page(client, "/", **limited))[1])
        publish(service, EventType.RUN)
        assert "backup" not in (await changes(client, "/", mark, **limited))[1]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/incidents/1", 404),
        ("/runs/2", 404),
        ("/jobs/backup", 404),
        ("/events?job=backup", 404),
        ("/health", 403),
        ("/keys", 403),
        ("/records?job=backup", 404),
        ("/state?namespace=job:backup", 403),
    ],
)
async def test_a_stream_is_for_whom_the_page_is_for(path: str, status: int) -> None:
    service = make_dashboard_service()
    await fail(service.stored_incidents, "backup")
    limited = await signed_in(service, Scope.READ, jobs=("prices",))
    admin = {"X-SpyWeb-Key": (await service.access.add("admin", [Scope.ADMIN])).token}
    async with dashboard(service) as client:
        await get_page(client, path, **admin)  # so that something is kept for it
        mark = service.events.mark()
        for how in ("live", "since"):
            sign = "&" if "?" in path else "?"
            assert (await get_page(client, f"{path}{sign}{how}={mark}", **limited))[0] == status


async def test_a_page_that_hangs_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_of: object, **_limits: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(site, "PATIENCE_S", 0.01)
    service = make_dashboard_service()
    async with dashboard(service) as client:
        mark = mark_of((await get_page(client, "/outbox"))[1])
        publish(service, EventType.OUTBOX)
        with monkeypatch.context() as patch:
            patch.setattr(outbox, "messages_of", hang)
            assert (await get_page(client, f"/outbox?since={mark}"))[0] == 503
        assert (await changes(client, "/outbox", mark))[0]


async def test_the_keys_of_nowhere_are_those_of_the_first_place() -> None:
    async with dashboard() as client, client.get("/state?prefix=a", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/state?namespace=global&prefix=a")
