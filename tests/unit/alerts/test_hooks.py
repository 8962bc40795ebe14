"""The files of jobs are told of their incidents, once each, whatever happens between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from spyweb.alerts.measures import IncidentHooks, functions_in
from spyweb.errors import StoreError
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import Failed, Succeeded
from spyweb.lua.endings import failed
from spyweb.lua.session import Code
from spyweb.model import After, Ending, JobId, Monitor, Never, Outcome, Overlap, Retry, Run
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.store.model.incidents import SubjectEvent
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import FAILED, SUCCESS
from tests.fakes.signs import make_watcher

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
