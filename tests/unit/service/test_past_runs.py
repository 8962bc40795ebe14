"""Past runs, asked of a service over a harness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from spyweb.errors import Refused
from spyweb.logs.render import stamp
from spyweb.model import After, Ending, JobId, Never, Outcome, Overlap, Retry, Run, RunId, RunMark, TriggerType
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.service.past_runs import NS_IN_MS, PastRunsService
from spyweb.store.model.records import NewRecord
from spyweb.store.model.runs import RunFilter, RunPage
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import FAILED, SUCCESS

PRICES, NEWS = JobId("prices"), JobId("news")


@dataclass(slots=True, kw_only=True)
class Looked:
    """The past runs of a harness, and what jobs have logged."""

    harness: Harness
    root: Path
    past: PastRunsService

    def job(self, job: JobId = PRICES) -> LiveJob:
        found = self.harness.live.find(job)
        assert found is not None
        return found

    async def start(self, job: JobId = PRICES) -> RunId:
        (run,) = await self.harness.runner.start(self.job(job), [by_hand()])
        await self.harness.clock.turn()
        assert run is not None
        return run

    async def latest(self, job: JobId = PRICES) -> Run:
        return (await self.harness.store.runs.list(job, limit=1))[0]

    def log(self, text: str) -> None:
        path = self.root / "jobs/prices/hooks.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{stamp(self.harness.clock.now_ms())} INFO {text}\n")


@pytest.fixture
async def looked(tmp_path: Path) -> AsyncIterator[Looked]:
    """Two jobs by hand: prices, tried twice, and news after it."""
    async with harness() as t:
        past = PastRunsService(
            root=tmp_path,
            live=t.live,
            past_runs=t.store.past_runs,
            records=t.store.records,
            stored_tasks=t.store.tasks,
            clock=t.clock,
        )
        retry = Retry(retries=1, delay_ms=1_000, jitter=False)
        after = (After(job=PRICES),)
        await t.settle(
            make_job("prices", schedule=Never(), retry=retry, overlap=Overlap.ALLOW),
            make_job("news", schedule=Never(), after=after),
        )
        yield Looked(harness=t, root=tmp_path, past=past)


async def test_runs_are_found_by_outcome_and_trigger(looked: Looked) -> None:
    await looked.start()
    failed = (await looked.past.search(RunFilter(outcomes=[Outcome.FAILED]), limit=9)).runs
    after = (await looked.past.search(RunFilter(triggers=[TriggerType.AFTER]), limit=9)).runs

    assert failed == []
    assert [run.job for run in after] == [NEWS]


async def test_a_search_goes_on_over_pages_that_hold_nothing(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [RunPage(runs=(), before=RunId(7)), RunPage(runs=(), before=RunId(3)), RunPage(runs=(), before=None)]
    asked: list[object] = []

    async def search(wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        asked.append(before)
        return pages[len(asked) - 1]

    monkeypatch.setattr(looked.harness.store.past_runs, "search", search)
    assert (await looked.past.search(RunFilter(), limit=9)).before is None
    assert asked == [None, 7, 3]

    async def slowly(wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        looked.harness.clock.advance(1)
        return pages[0]

    monkeypatch.setattr(looked.harness.store.past_runs, "search", slowly)
    assert (await looked.past.search(RunFilter(), limit=9)).before == 7


async def test_a_run_shows_how_it_came_about_and_what_came_of_it(looked: Looked) -> None:
    looked.harness.pool.endings[PRICES] = [FAILED, SUCCESS]
    first = await looked.start()
    await looked.harness.clock.turn(2)
    second, news = await looked.latest(), await looked.latest(NEWS)

    of_first, of_second = await looked.past.detail(first), await looked.past.detail(second.id)
    assert (of_first.words, of_first.mark, of_second.words) == ("Failed", RunMark.FAILED, "Succeeded")
    assert [each.run for each in of_first.attempts] == [each.run for each in of_second.attempts] == [first, second.id]
    assert ([each.run for each in of_second.followers], list(of_first.followers)) == ([news.id], [])
    assert (of_first.before, of_first.after, of_second.before) == (None, second.id, first)

    of_news = await looked.past.detail(news.id)
    assert [step.kind for step in of_news.causes] == [TriggerType.MANUAL, TriggerType.RETRY, TriggerType.AFTER]
    assert of_news.causes[-1].words == "prices ended: success"
    assert list(of_news.attempts) == []


async def test_an_error_is_shown_in_its_source_beside_the_limits(looked: Looked) -> None:
    looked.harness.pool.endings[PRICES] = [replace_reason("jobs/prices.lua:2: boom")]
    looked.job().code = replace(looked.job().code, source=b"one\ntwo")
    found = await looked.past.detail(await looked.start())

    assert found.source is not None
    assert (found.source.lines, found.source.line) == (["one", "two"], 2)
    assert [limit.name for limit in found.limits] == ["time", "CPU", "memory"]


def replace_reason(reason: str) -> Ending:
    return changed(FAILED, reason=reason)


async def test_the_lines_that_a_run_logged_are_those_of_its_time(looked: Looked) -> None:
    looked.log("before")
    looked.harness.clock.advance(1)
    looked.harness.pool.held.add(PRICES)
    run = await looked.start()
    looked.log("of it")
    assert (await looked.past.log(run)).lines == (line(looked, "of it"),)

    looked.harness.clock.advance(1)
    looked.harness.pool.finish(run)
    await looked.harness.clock.turn()
    looked.harness.clock.advance(1)
    looked.log("later")
    found = (await looked.past.detail(run)).log
    assert [text.rpartition("INFO ")[2] for text in found.lines] == ["of it"]
    assert (found.is_shared, found.is_cut) == (False, False)


def line(looked: Looked, text: str) -> str:
    return f"{stamp(looked.harness.clock.now_ms())} INFO {text}"


async def test_lines_of_runs_that_were_under_way_together_are_said_to_be_mixed(looked: Looked) -> None:
    looked.harness.pool.held.add(PRICES)
    first = await looked.start()
    looked.harness.clock.advance(1)
    second = await looked.start()
    looked.log("of one of them")
    looked.harness.clock.advance(1)
    assert [(await looked.past.log(run)).is_shared for run in (first, second)] == [True, True]

    looked.harness.pool.finish(first)
    looked.harness.pool.finish(second)
    await looked.harness.clock.turn()
    assert [(await looked.past.log(run)).is_shared for run in (first, second)] == [True, True]


async def test_what_a_run_found_is_shown_with_it(looked: Looked) -> None:
    run = await looked.start()
    now_ms = looked.harness.clock.now_ms()
    for found_ms in (now_ms - 5_000, now_ms):
        item = NewRecord(hash=b"%d" % found_ms, fields={"title": str(found_ms)}, found_ns=found_ms * NS_IN_MS)
        await looked.harness.store.records.add(PRICES, [item])
    assert (await looked.past.detail(run)).records == []

    looked.harness.store.execute("UPDATE run SET items_new = 2 WHERE id = ?", run)
    assert [each.fields["title"] for each in (await looked.past.detail(run)).records] == [str(now_ms)]


async def test_a_run_of_a_job_that_is_gone_is_shown_without_its_source(looked: Looked) -> None:
    run = await looked.start()
    looked.harness.live.remove(PRICES)
    found = await looked.past.detail(run)

    assert (found.is_there, found.name, list(found.limits), found.log.lines) == (False, "prices", [], ())


async def test_a_run_that_is_not_there_is_refused(looked: Looked) -> None:
    for ask in (looked.past.detail(RunId(99)), looked.past.log(RunId(99))):
        with pytest.raises(Refused, match="there is no run 99"):
            await ask
