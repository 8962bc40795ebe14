"""What the parts of a daemon tell of, and that they tell nothing while nobody listens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spyweb.errors import Problem
from spyweb.events.happenings import EventType
from spyweb.events.hub import LINGER_S, EventHub, Follower, Wish
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import SignSeen
from spyweb.logs.job import JobLogs
from spyweb.model import JobId, Never, RunId
from spyweb.ops.world import untold
from spyweb.outbox.sender import OutboxSender
from spyweb.runs.live import JobChange, LiveJobs
from spyweb.store.model.access import NewAuditLine
from spyweb.store.model.incidents import SubjectEvent
from spyweb.subjects.events.sources import LOOK_S, TASKS_S, EventSources
from spyweb.subjects.health.views import HealthProblem
from spyweb.subjects.incidents.service import IncidentService
from spyweb.web.access.audit import AuditService
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.incidents import fail, succeed
from tests.fakes.stores import put
from tests.fakes.task_rows import row

PRICES = JobId("prices")


async def never_sent(_message: object) -> None: ...


@dataclass(slots=True)
class Told:
    """A daemon's parts, and what was told of them."""

    harness: Harness
    job_logs: JobLogs
    sender: OutboxSender
    trail: AuditService
    hub: EventHub
    incidents: IncidentService
    problems: list[HealthProblem] = field(default_factory=list)
    warnings: list[HealthProblem] = field(default_factory=list)

    def follow(self, *types: EventType, job: JobId | None = None) -> Follower:
        follower = self.hub.follow(Wish(types=frozenset(types), job=job), None, lambda: None)
        follower.take()
        return follower


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[Told]:
    async with harness() as t, JobLogs(tmp_path, t.clock) as job_logs:
        sender = OutboxSender(
            outbox=t.store.outbox, send=never_sent, clock=t.clock, random=lambda: 0.5, live=LiveJobs()
        )
        trail = AuditService(t.store.audit, t.clock)
        incidents = IncidentService(t.store.incidents, t.clock)
        problems: list[HealthProblem] = []
        warnings: list[HealthProblem] = []
        sources = EventSources(
            clock=t.clock,
            live=t.live,
            changes=t.store.events,
            outbox_sender=sender,
            job_logs=job_logs,
            trail=trail,
            incidents=incidents,
            troubles=lambda: (problems, warnings),
        )
        yield Told(t, job_logs, sender, trail, EventHub(t.clock, "b", sources.begin), incidents, problems, warnings)


def lines_of(follower: Follower) -> list[str]:
    return [line for line in follower.take().decode().split("\n") if line.startswith("data:")]


async def test_runs_and_jobs_are_told_of_as_long_as_somebody_listens(told: Told) -> None:
    t = told.harness
    await t.settle(job := make_job(schedule=Never()))
    runs, jobs = told.follow(EventType.RUN), told.follow(EventType.JOB)
    await t.start(job)
    assert ['"what":"began"' in line for line in lines_of(runs)] == [True, False]
    assert t.live.listener is not None
    t.live.listener.changed(job, JobChange.PAUSED)
    t.live.listener.broken(JobId("typo"), [Problem("jobs/typo.lua", 3, None, "oops")])
    assert lines_of(jobs) == [
        'data: {"what":"paused","job":"prices","generation":1}',
        'data: {"what":"broken","job":"typo","error":"jobs/typo.lua:3: oops"}',
    ]
    runs.leave()
    await t.clock.turn(LINGER_S)
    assert t.live.listener is not None
    jobs.leave()
    await t.clock.turn(LINGER_S)
    assert t.live.listener is None


async def test_of_the_tasks_of_a_run_that_end_together_the_newest_is_told_of(told: Told) -> None:
    told.harness.live.tell_task(PRICES, RunId(4), untold, row("nobody listens"))
    tasks = told.follow(EventType.TASK)
    for name in ("build", "upload"):
        told.harness.live.tell_task(PRICES, RunId(4), untold, row(name))
    assert lines_of(tasks) == []
    await told.harness.clock.turn(TASKS_S)
    assert lines_of(tasks) == ['data: {"job":"prices","run":4,"task":"upload","status":"success"}']


async def test_changes_of_state_are_told_of_without_values_as_those_of_a_job(told: Told) -> None:
    t = told.harness
    follower = told.follow(EventType.STATE)
    await put(t.store, b"a", b"secret")
    await put(t.store, b"b", b"secret", namespace="job:prices")
    await t.clock.turn()
    assert ["secret" in line for line in lines_of(follower)] == [False, False]
    assert told.hub.number == 3
    of_job = told.hub.newest(Wish(types=frozenset({EventType.STATE}), job=PRICES), limit=9)
    assert [event.number for event in of_job] == [3]
    follower.leave()
    await t.clock.turn(LINGER_S)
    await put(t.store, b"a", 1)
    await t.clock.turn()
    assert told.hub.number == 3


async def test_a_job_s_lines_are_told_of_to_those_who_follow_that_job(told: Told) -> None:
    await told.harness.settle(make_job())
    follower = told.follow(EventType.LOG, job=PRICES)
    other = told.follow(EventType.LOG, job=JobId("gone"))
    told.job_logs.write("jobs/prices", "warn", b"too dear", 7)
    told.job_logs.write("jobs/gone", "info", b"still here")
    assert ['"text":"too dear"' in line and '"run":7' in line for line in lines_of(follower)] == [True]
    assert ["still here" in line for line in lines_of(other)] == [True]


async def test_what_becomes_of_messages_is_told(told: Told) -> None:
    follower = told.follow(EventType.OUTBOX)
    assert told.sender.listener
    told.sender.listener(PRICES, 4, "given up", "404")
    assert lines_of(follower) == ['data: {"what":"given up","message":4,"job":"prices","reason":"404"}']
    follower.leave()
    await told.harness.clock.turn(LINGER_S)
    assert told.sender.listener is None


async def test_each_line_of_the_audit_trail_is_told(told: Told) -> None:
    follower = told.follow(EventType.AUDIT)
    told.trail.note(NewAuditLine(at_ms=1, who="ci", source="key", action="POST /x", job="prices", status=200))
    (line,) = lines_of(follower)
    assert line.startswith('data: {"at_ms":1,"who":"ci","source":"key","action":"POST /x","job":"prices"')
    follower.leave()
    await told.harness.clock.turn(LINGER_S)
    assert told.trail.listener is None


def problem(code: str, text: str, timeless: str = "") -> HealthProblem:
    return HealthProblem(code=code, text=text, remedy="", timeless=timeless)


async def test_a_problem_begins_and_ends_whatever_its_amounts_are(told: Told) -> None:
    told.warnings.append(problem("descriptors", "only 12 file descriptors are left"))
    follower = told.follow(EventType.HEALTH)
    told.problems.append(problem("scheduler", "the scheduler is 59s behind"))
    await told.harness.clock.turn(LOOK_S)
    told.problems[:] = [problem("scheduler", "the scheduler is 1m 2s behind")]
    told.warnings[:] = [problem("descriptors", "only 7 file descriptors are left")]
    await told.harness.clock.turn(LOOK_S)
    told.problems.clear()
    await told.harness.clock.turn(LOOK_S)
    assert lines_of(follower) == [
        'data: {"what":"began","kind":"problem","text":"the scheduler is 59s behind"}',
        'data: {"what":"ended","kind":"problem","text":"the scheduler is 1m 2s behind"}',
    ]
    told.problems[:] = [problem("store", "no due run"), problem("store", "disk full", "full")]
    told.warnings.append(problem("channels", "(web)", "web"))
    await told.harness.clock.turn(LOOK_S)
    told.warnings[1] = problem("channels", "(web, ops)", "web, ops")
    await told.harness.clock.turn(LOOK_S)
    happened = [json.loads(line.removeprefix("data:")) for line in lines_of(follower)]
    assert sorted((each["what"], each["text"]) for each in happened) == [
        ("began", "(web)"),
        ("began", "(web, ops)"),
        ("began", "disk full"),
        ("began", "no due run"),
        ("ended", "(web)"),
    ]
    follower.leave()
    await told.harness.clock.turn(LINGER_S)
    assert told.harness.clock.pending == 0


async def test_incidents_are_told_of_as_those_of_their_jobs_while_somebody_listens(told: Told) -> None:
    store, clock = told.harness.store, told.harness.clock
    await fail(store.incidents, "early")
    await clock.turn()
    follower = told.follow(EventType.INCIDENT)
    await fail(store.incidents, "prices")
    await fail(store.incidents, "prices", "another time")  # it is open: nothing begins
    await clock.turn()
    await told.incidents.acknowledge(2, "me")
    await succeed(store.incidents, "prices")
    await clock.turn()
    of_prices = '"incident":2,"subject":"job:prices","at_ms":1767225600000,"job":"prices"'
    assert lines_of(follower) == [
        f'data: {{"what":"opened",{of_prices},"level":"warning","reason":"failing","text":"no space"}}',
        f'data: {{"what":"acked",{of_prices},"by":"me"}}',
        f'data: {{"what":"closed",{of_prices}}}',
    ]
    of_job = told.hub.newest(Wish(types=frozenset({EventType.INCIDENT}), may_see=lambda job: job == "other"), limit=9)
    assert list(of_job) == []
    follower.leave()
    await clock.turn(LINGER_S)
    assert told.incidents.listener is None
    number = told.hub.number
    await succeed(store.incidents, "early")
    await clock.turn()
    assert told.hub.number == number


async def test_an_incident_of_no_job_is_not_told_to_those_who_may_see_some_jobs_alone(told: Told) -> None:
    wish = Wish(types=frozenset({EventType.INCIDENT}), may_see=lambda _job: True)
    some, everybody = told.hub.follow(wish, None, lambda: None), told.follow(EventType.INCIDENT)
    some.take()
    seen = SubjectEvent(subject="channel:ops", event=SignSeen("down", "x"), policy=AlertPolicy(), at_ms=1)
    await told.harness.store.incidents.note([seen])
    await told.harness.clock.turn()
    assert lines_of(some) == []
    assert ['"subject":"channel:ops"' in line for line in lines_of(everybody)] == [True]
