"""Which jobs are run because another is failing, and what files of jobs are told: once each, whatever happens between.

That jobs are paused is tested with the watcher as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs, to_builtins
from msgspec.structs import replace

from spyweb.alerts.measures import PAUSED_TOGETHER, IncidentHooks, JobMeasures, functions_in, shows_nothing_new
from spyweb.errors import StoreError
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import FAILING, Failed, Paused, Sign, Succeeded
from spyweb.lua.endings import failed
from spyweb.lua.session import Code
from spyweb.model import After, Ending, JobId, Monitor, Never, Outcome, Overlap, Retry, Run
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import RunRequest, by_hand
from spyweb.store.model.incidents import SubjectChange, SubjectEvent
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import FAILED, SUCCESS
from tests.fakes.signs import make_watcher

NET, WEB = JobId("net"), JobId("web")
AT_ONCE = AlertPolicy(depends_on=("job:net", "job:gone"))


@dataclass
class Measured:
    harness: Harness
    measures: JobMeasures

    def job(self, job: JobId) -> LiveJob:
        found = self.harness.live.find(job)
        assert found
        return found

    async def open(self, job: str = "web", since_s: float = 0) -> None:
        """Let an incident of a job open that began to fail some time ago."""
        since_ms = self.harness.clock.now_ms() - round(since_s * 1000)
        self.measures.take(
            SubjectChange(
                subject=f"job:{job}", is_known=True, incident=7, opened=True, signs={FAILING: Sign(since_ms, "x")}
            )
        )
        await self.measures.run_parents()
        await self.harness.clock.turn(0.1)

    async def runs(self) -> list[object]:
        return [to_builtins(run.trigger) for run in await self.harness.store.runs.list(NET, limit=99)]


@asynccontextmanager
async def measured(**net: object) -> AsyncIterator[Measured]:
    """A job that depends on another, both started by hand alone."""
    async with harness() as h:
        await h.settle(make_job("net", schedule=Never(), **net), make_job("web", schedule=Never(), alerts=AT_ONCE))
        await h.clock.turn(60)
        yield Measured(h, JobMeasures(h.live, h.scheduler.pause_together, h.runner.start_by_hand, h.store.runs))


@pytest.fixture
async def m() -> AsyncIterator[Measured]:
    async with measured() as opened:
        yield opened


async def test_what_jobs_depend_on_is_run_once_as_their_incidents_open_however_many_there_are(m: Measured) -> None:
    others = [make_job(f"web{number}", schedule=Never(), alerts=AT_ONCE) for number in range(5)]
    await m.harness.settle(*others)
    failing = {FAILING: Sign(m.harness.clock.now_ms(), "x")}
    for name in [f"job:{job.id}" for job in others] + ["job:web"] * 2:
        m.measures.take(SubjectChange(subject=name, is_known=True, incident=3, opened=True, signs=failing))
    await m.open()
    assert await m.runs() == [{"type": "depends", "job": "web0", "incident_id": 3}]
    await m.measures.run_parents()
    await m.harness.clock.turn(60)
    assert len(await m.runs()) == 1


async def test_one_that_has_run_since_the_other_began_to_fail_is_not_run_again(m: Measured) -> None:
    m.harness.runner.start(m.job(NET), [by_hand()])
    await m.harness.clock.turn(30)
    await m.open(since_s=60)
    assert len(await m.runs()) == 1
    await m.open(since_s=10)
    assert len(await m.runs()) == 2


async def test_a_run_of_an_earlier_daemon_counts_too(m: Measured) -> None:
    m.harness.runner.start(m.job(NET), [by_hand()])
    await m.harness.clock.turn(30)
    net = m.job(NET)
    net.started_ms = 0
    (net.last,) = await m.harness.store.runs.list(NET, limit=1)
    assert shows_nothing_new(net, m.harness.clock.now_ms() - 60_000)
    assert not shows_nothing_new(net, m.harness.clock.now_ms())


@pytest.mark.parametrize("why", ["paused", "disabled", "gone", "running"])
async def test_one_that_may_not_run_or_runs_already_is_left_alone(why: str) -> None:
    async with measured(enabled=why != "disabled") as m:
        net = m.job(NET)
        net.gone = why == "gone"
        if why == "paused":
            await m.harness.scheduler.pause(net)
        if why == "running":
            m.harness.pool.held.add(NET)
            m.harness.runner.start(net, [by_hand()])
            await m.harness.clock.turn(0.1)
        before = len(await m.runs())
        await m.open()
        assert len(await m.runs()) == before


async def test_one_that_comes_before_the_other_is_not_run_again_with_all_that_follows_it(m: Measured) -> None:
    web = m.job(WEB)
    web.spec = replace(web.spec, after=(After(job=NET),))
    await m.open()
    assert await m.runs() == []


async def test_where_the_daemon_stops_or_the_store_refuses_nothing_is_run_and_nobody_is_held_up() -> None:
    for trouble in (None, StoreError("disk full")):
        async with measured() as m:

            async def refuse(_job: LiveJob, _request: RunRequest, trouble: StoreError | None = trouble) -> None:
                if trouble:
                    raise trouble

            if trouble is None:
                await m.harness.runner.drain(0)
            else:
                m.measures = JobMeasures(
                    m.harness.live, m.harness.scheduler.pause_together, refuse, m.harness.store.runs
                )
            await m.open()
            assert await m.runs() == []


async def test_incidents_of_other_subjects_start_nothing(m: Measured) -> None:
    signs = {"down": Sign(0, "x")}
    assert not m.measures.take(SubjectChange(subject="channel:web", is_known=True, opened=True, signs=signs))
    await m.measures.run_parents()
    assert await m.runs() == []


async def test_a_job_that_was_paused_before_the_crash_is_noted_as_paused_after_it(m: Measured) -> None:
    await m.harness.scheduler.pause_together({m.job(NET).id: "3 failures in a row"}, [m.job(NET)])
    m.measures.load({"job:net": 3, "job:gone": 3})
    assert await m.measures.pause() == [("job:net", Paused("3 failures in a row"))]
    m.measures.load({"job:net": 4})
    assert await m.measures.pause() == [("job:net", Paused())], "it failed by hand meanwhile"


async def test_very_many_jobs_are_paused_in_few_commits(m: Measured) -> None:
    jobs = [make_job(f"job{number}", schedule=Never()) for number in range(2 * PAUSED_TOGETHER + 1)]
    await m.harness.settle(*jobs)
    m.measures.load({f"job:{job.id}": 5 for job in jobs})
    counts = []
    while noted := await m.measures.pause():
        counts.append(len(noted))
        m.measures.noted(subject for subject, _ in noted)
    assert counts == [PAUSED_TOGETHER, PAUSED_TOGETHER, 1]
    assert all(job.cursor.paused_for == "5 failures in a row" for job in jobs)
    assert not m.job(NET).cursor.paused


async def test_a_job_that_is_not_on_its_schedule_yet_is_paused_later(m: Measured) -> None:
    net = m.job(NET)
    cursor, net.cursor = net.cursor, structs.replace(net.cursor, schedule="")
    m.measures.load({"job:net": 3})
    assert await m.measures.pause() == []
    net.cursor = cursor
    assert len(await m.measures.pause()) == 1
    assert net.cursor.paused


async def test_a_job_that_was_resumed_after_its_last_failure_is_not_paused_for_it(m: Measured) -> None:
    before_ms = m.harness.clock.now_ms()
    await m.harness.scheduler.pause(m.job(WEB))
    await m.harness.clock.turn(1)
    await m.harness.scheduler.resume(m.job(WEB))
    m.measures.take(SubjectChange(subject="job:web", is_known=True, pauses=3, at_ms=before_ms))
    assert await m.measures.pause() == [("job:web", Paused(""))]
    assert not m.job(WEB).cursor.paused
    m.measures.take(SubjectChange(subject="job:web", is_known=True, pauses=4, at_ms=m.harness.clock.now_ms()))
    assert await m.measures.pause() == [("job:web", Paused("4 failures in a row"))]
    assert m.job(WEB).cursor.paused


BACKUP = JobId("backup")
ONE = AlertPolicy(after_failures=1, remind_ms=None)
BOTH = b"function on_down(i) end function on_up(i) end"


@dataclass
class Told:
    harness: Harness
    job: LiveJob

    async def run(self, *endings: Ending, seconds: float = 2) -> None:
        """Let the job run once, and the next runs of it end so."""
        self.harness.pool.endings[BACKUP] = list(endings)
        self.harness.runner.start(self.job, [by_hand()])
        await self.harness.clock.turn(seconds)

    async def later(self, seconds: float = 2) -> None:
        await self.harness.clock.turn(seconds)

    @property
    def calls(self) -> list[tuple[str, int]]:
        """Return which functions were called, with which incident."""
        asked = [each.arguments for each in self.harness.pool.requests if each.procedure == "alert"]
        return [(str(hook), incident["id"]) for _, _, hook, incident, *_ in asked]  # type: ignore[index]

    async def runs(self) -> Sequence[Run]:
        found = await self.harness.store.runs.list(BACKUP, limit=100)
        return [run for run in reversed(found) if run.trigger.incident]

    async def told(self) -> list[str | None]:
        return [each.told.get("lua") for each in reversed(await self.harness.store.incidents.list())]


@asynccontextmanager
async def told(source: bytes = BOTH, before: Harness | None = None, **spec: Any) -> AsyncIterator[Told]:
    """Watch one job that is started by hand alone; `before` is an earlier daemon with the same store."""
    async with harness(before.store if before else None, before.clock if before else None) as h:
        watcher = make_watcher(h)
        watcher.hooks = IncidentHooks(h.store.incidents, h.live, h.runner, h.clock)
        await watcher.load()
        job = make_job("backup", **{"alerts": ONE, "schedule": Never(), **spec})
        job.code = replace(job.code, source=source)
        await h.settle(job)
        await h.runner.take_up(await h.store.runs.open())
        planning = h.tasks.create_task(watcher.keep_up())
        await h.clock.turn(2)
        yield Told(h, job)
        planning.cancel()


@pytest.fixture
async def t() -> AsyncIterator[Told]:
    async with told() as opened:
        yield opened


async def test_what_a_function_is_given_says_what_is_wrong_and_since_when(t: Told) -> None:
    began_ms = t.harness.clock.now_ms()
    await t.run(FAILED)
    await t.run(SUCCESS)
    down, up = [run.trigger for run in await t.runs()]
    what = {"job": "backup", "subject": "job:backup", "reason": "failing", "text": "jobs/x.lua:1: boom"}
    since = {"since": began_ms / 1000, "opened": began_ms / 1000}
    assert (down.type, down.hook) == ("alert", "on_down")
    assert down.incident == {"id": 1, **what, "level": "warning", **since, "failures": 1, "run": 1}
    assert up.incident["closed"] > began_ms / 1000  # type: ignore[operator]  # a number


async def test_a_function_that_fails_counts_for_no_incident_and_is_on_record(t: Told) -> None:
    await t.run(FAILED, failed("on_down itself"))
    assert [(run.outcome, run.reason) for run in await t.runs()] == [(Outcome.FAILED, "on_down itself")]
    (incident,) = await t.harness.store.incidents.list()
    assert incident.failures == 1
    assert t.job.last
    assert t.job.last.reason == "jobs/x.lua:1: boom", "the job stands as its own runs left it"
    await t.run(SUCCESS, failed("on_up itself"))
    assert t.calls == [("on_down", 1), ("on_up", 1)], "no incident opens, so nothing goes round"
    assert await t.harness.store.incidents.known() == {}


async def test_a_function_that_succeeds_ends_no_incident(t: Told) -> None:
    await t.run(FAILED, SUCCESS, seconds=0.01)
    await t.later(60)
    assert len(await t.harness.store.incidents.list(is_open=True)) == 1
    assert (await t.harness.store.runs.succeeded()).get(BACKUP) is None
    assert (await t.harness.store.runs.latest())[BACKUP].id == 1


async def test_it_is_tried_again_as_its_job_is() -> None:
    async with told(retry=Retry(retries=1, delay_ms=1_000, jitter=False)) as t:
        await t.run(FAILED, FAILED, failed("on_down itself"), SUCCESS, seconds=0.01)
        await t.later(4)
        assert t.calls == [("on_down", 1), ("on_down", 1)]
        assert [(run.trigger.type, run.attempt) for run in await t.runs()] == [("alert", 1), ("retry", 2)]


@pytest.mark.parametrize(
    ("source", "calls", "told_then"),
    [(b"-- on_down\nlocal text = 'on_up'", [], [None]), (b"on_up = function() end", [("on_up", 1)], ["closed"])],
)
async def test_what_a_job_has_of_the_functions_is_called_and_its_incident_is_settled(
    source: bytes, calls: list[tuple[str, int]], told_then: list[str | None]
) -> None:
    async with told(source) as t:
        await t.run(FAILED)
        await t.run(SUCCESS)
        assert (t.calls, await t.told()) == (calls, told_then)
        assert await t.harness.store.incidents.unsettled() == []


async def test_what_came_and_went_before_it_could_be_told_is_told_in_its_order(t: Told) -> None:
    t.harness.store.incidents.for_scripts = refuse_once(t.harness)  # type: ignore[method-assign]
    await t.run(FAILED, seconds=0.01)
    await t.run(SUCCESS, seconds=0.01)
    await t.later(10)
    assert t.calls == [("on_down", 1), ("on_up", 1)]


def refuse_once(h: Harness) -> Any:
    ask = h.store.incidents.for_scripts

    async def refuse_and_go_on(_: Sequence[str]) -> None:
        h.store.incidents.for_scripts = ask  # type: ignore[method-assign]
        raise StoreError("disk full")

    return refuse_and_go_on


async def test_a_function_that_a_crash_cut_short_is_called_again_with_the_same_incident() -> None:
    async with told(resume=True) as t:
        t.harness.pool.held.add(BACKUP)
        await t.run(seconds=0.01)
        t.harness.pool.finish(1, FAILED)
        await t.later()
        assert t.calls == [("on_down", 1)]
        store = t.harness.store
        open_runs = await store.runs.open()
        async with told(before=t.harness, resume=True) as later:
            await later.later()
            assert later.calls == [("on_down", 1)]
            runs = await later.runs()
        assert [run.outcome for run in runs] == [Outcome.LOST, Outcome.SUCCESS]
        assert len(open_runs) == 1
        t.harness.pool.finish(open_runs[0].id)
        await t.later()


@pytest.mark.parametrize("overlap", Overlap)
async def test_it_waits_for_the_run_under_way_whatever_overlap_says_and_none_is_skipped_for_it(
    overlap: Overlap,
) -> None:
    async with told(overlap=overlap) as t:
        t.harness.pool.held.add(BACKUP)
        await t.run(seconds=0.01)
        t.harness.pool.finish(1, FAILED)
        await t.later()
        down = (await t.runs())[-1]
        t.harness.runner.start(t.job, [by_hand()])
        await t.later()
        manual = (await t.harness.store.runs.list(BACKUP, limit=1))[0]
        assert manual.outcome is None, "it waits, or runs beside"
        t.harness.pool.finish(down.id)
        await t.later()
        assert (await t.runs())[0].outcome is Outcome.SUCCESS
        t.harness.pool.finish(manual.id)
        await t.later()


async def test_a_paused_job_is_told_and_one_that_is_switched_off_is_not(t: Told) -> None:
    t.job.cursor = replace(t.job.cursor, paused=True)
    await t.run(FAILED)
    assert t.calls == [("on_down", 1)]
    t.job.spec = replace(t.job.spec, enabled=False)
    t.harness.live.link()
    await t.later()
    assert t.calls == [("on_down", 1)]
    assert await t.harness.store.incidents.unsettled() == [], "its incident is over with it"


async def test_no_job_follows_it(t: Told) -> None:
    await t.harness.settle(make_job("next", schedule=Never(), after=(After(job=BACKUP, outcomes=frozenset(Outcome)),)))
    await t.run(FAILED)
    assert t.calls == [("on_down", 1)]
    assert await t.harness.record("next") == ["next after success"], "of the run that failed"


async def test_a_file_that_can_t_be_loaded_is_told_once_it_can(t: Told) -> None:
    await t.run(FAILED)
    t.harness.live.remove(BACKUP)
    t.harness.live.set_unloadable(frozenset({"backup"}))
    now_ms = t.harness.clock.now_ms()
    event = SubjectEvent(subject="job:backup", event=Succeeded(), policy=ONE, at_ms=now_ms)
    await t.harness.store.incidents.note([event])
    await t.later()
    assert (t.calls, await t.told()) == ([("on_down", 1)], ["open"])
    t.harness.live.add(t.job)
    t.harness.live.set_unloadable(frozenset())
    await t.later()
    assert t.calls == [("on_down", 1), ("on_up", 1)]


async def test_a_function_that_is_added_later_is_told_of_what_is_still_so() -> None:
    async with told(b"return 1") as t:
        await t.run(FAILED)
        t.job.code = replace(t.job.code, source=BOTH)
        t.harness.live.link()
        await t.later()
        assert t.calls == [("on_down", 1)]


async def test_monitors_are_told_too() -> None:
    monitor = Monitor(urls=("http://example.com/",), selector="p", fields=())
    async with told(monitor=monitor) as t:
        now_ms = t.harness.clock.now_ms()
        event = SubjectEvent(subject="job:backup", event=Failed("x"), policy=ONE, at_ms=now_ms)
        await t.harness.store.incidents.note([event])
        await t.later()
        assert [context["trigger"]["hook"] for context in t.harness.monitors.contexts] == ["on_down"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (b"_G.on_down = print; on_up = print", {"on_down", "on_up"}),
        (b"function on_down() end -- on_up\nlocal x = 'on_up' --[[ on_up ]]", {"on_down"}),
        (b"local on_downtime = 1", set()),
    ],
)
def test_a_function_is_found_where_the_code_names_it(source: bytes, found: set[str]) -> None:
    assert functions_in(Code(job=BACKUP, generation=1, chunk="x", source=source)) == found
    assert functions_in(Code(job=BACKUP, generation=1, chunk="x", source=b"", more=(("y", source),))) == found


async def test_a_job_of_another_node_is_left_to_that_once_unless_it_has_run_since_or_is_paused(m: Measured) -> None:
    rung: list[str] = []
    m.harness.store.runs.ring = lambda: rung.append("runs")
    m.job(NET).mine = False
    await m.open(since_s=5)
    await m.open(since_s=5)
    assert await m.runs() == [{"type": "depends", "job": "web", "incident_id": 7}]
    assert rung == ["runs"]

    (waiting,) = await m.harness.store.runs.open()
    m.job(NET).mine = True
    await m.harness.runner.take_up([waiting])
    await m.harness.clock.turn(1)
    m.job(NET).mine = False
    await m.open(since_s=5)
    assert len(await m.runs()) == 1, "it has run since"

    m.job(NET).mine = True
    await m.harness.scheduler.pause_together({NET: "by hand"}, [m.job(NET)])
    m.job(NET).mine = False
    await m.harness.clock.turn(60)
    await m.open()
    assert len(await m.runs()) == 1
