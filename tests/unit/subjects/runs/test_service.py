"""Past runs, and one run for a request however often it is sent, asked of a service over a harness."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from spyweb.errors import KeyReused, Refused, StoreError
from spyweb.logs.output import stamp
from spyweb.model import After, JobId, Never, Overlap, Retry, Run, RunId, RunMark, Trigger, TriggerType
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import Claims, RunRequest
from spyweb.settings.units import HOUR_MS
from spyweb.store.model.records import NewRecord
from spyweb.store.model.runs import Change, RequestKey, RunFilter, RunPage
from spyweb.subjects.runs import service as past_runs
from spyweb.subjects.runs.service import KEPT_MS, NS_IN_MS, OnceService, StartedRun, request_key
from spyweb.subjects.runs.views import TimeSpan
from tests.fakes.changes import make_end, make_run
from tests.fakes.clock import settle
from tests.fakes.harness import HangingRecord, Harness, harness, make_job
from tests.fakes.pool import FAILED, SUCCESS
from tests.fakes.served import Served, serving

PRICES, NEWS = JobId("prices"), JobId("news")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Two jobs by hand: prices, tried twice, and news after it."""
    retry = Retry(retries=1, delay_ms=1_000, jitter=False)
    prices = make_job("prices", schedule=Never(), retry=retry, overlap=Overlap.ALLOW)
    async with serving(tmp_path, prices, make_job("news", schedule=Never(), after=(After(job=PRICES),))) as served:
        yield served


async def latest(served: Served, job: JobId = PRICES) -> Run:
    return (await served.t.store.runs.list(job, limit=1))[0]


def log(served: Served, text: str) -> str:
    """Log a line now; return it as the file has it."""
    path = served.root / "jobs/prices/hooks.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    line = f"{stamp(served.t.clock.now_ms())} INFO {text}"
    with path.open("a") as file:
        file.write(f"{line}\n")
    return line


async def test_a_search_goes_on_over_pages_that_hold_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [RunPage(runs=(), before=RunId(7)), RunPage(runs=(), before=RunId(3)), RunPage(runs=(), before=None)]
    asked: list[object] = []

    async def search(wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        asked.append(before)
        return pages[len(asked) - 1]

    monkeypatch.setattr(served.t.store.past_runs, "search", search)
    assert (await served.past.search(RunFilter(), limit=9)).before is None
    assert asked == [None, 7, 3]

    async def slowly(wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        served.t.clock.advance(1)
        return pages[0]

    monkeypatch.setattr(served.t.store.past_runs, "search", slowly)
    assert (await served.past.search(RunFilter(), limit=9)).before == 7


async def test_a_run_shows_how_it_came_about_and_what_came_of_it(served: Served) -> None:
    served.t.pool.endings[PRICES] = [FAILED, SUCCESS]
    first = await served.start(PRICES)
    await served.t.clock.turn(2)
    second, news = await latest(served), await latest(served, NEWS)

    of_first, of_second = await served.past.detail(first), await served.past.detail(second.id)
    assert (of_first.words, of_first.mark, of_second.words) == ("Failed", RunMark.FAILED, "Succeeded")
    assert [each.run for each in of_first.attempts] == [each.run for each in of_second.attempts] == [first, second.id]
    assert ([each.run for each in of_second.followers], list(of_first.followers)) == ([news.id], [])
    assert (of_first.before, of_first.after, of_second.before) == (None, second.id, first)

    of_news = await served.past.detail(news.id)
    assert [step.kind for step in of_news.causes] == [TriggerType.MANUAL, TriggerType.RETRY, TriggerType.AFTER]
    assert of_news.causes[-1].words == "prices ended: success"
    assert list(of_news.attempts) == []


async def test_an_error_is_shown_in_its_source_beside_the_limits(served: Served) -> None:
    served.t.pool.endings[PRICES] = [replace(FAILED, reason="jobs/prices.lua:2: boom")]
    served.job(PRICES).code = replace(served.job(PRICES).code, source=b"one\ntwo")
    found = await served.past.detail(await served.start(PRICES))

    assert found.source is not None
    assert (found.source.lines, found.source.line) == (["one", "two"], 2)
    assert [limit.name for limit in found.limits] == ["time", "CPU", "memory"]


async def test_the_lines_that_a_run_logged_are_those_of_its_time(served: Served) -> None:
    log(served, "before")
    served.t.clock.advance(1)
    served.t.pool.held.add(PRICES)
    run = await served.start(PRICES)
    logged = log(served, "of it")
    assert (await served.past.detail(run)).log.lines == (logged,)

    served.t.clock.advance(1)
    served.t.pool.finish(run)
    await served.t.clock.turn()
    served.t.clock.advance(1)
    log(served, "later")
    found = (await served.past.detail(run)).log
    assert [text.rpartition("INFO ")[2] for text in found.lines] == ["of it"]
    assert (found.is_shared, found.is_cut) == (False, False)


async def test_lines_of_runs_that_were_under_way_together_are_said_to_be_mixed(served: Served) -> None:
    served.t.pool.held.add(PRICES)
    first = await served.start(PRICES)
    served.t.clock.advance(1)
    second = await served.start(PRICES)
    log(served, "of one of them")
    served.t.clock.advance(1)
    assert [(await served.past.detail(run)).log.is_shared for run in (first, second)] == [True, True]

    served.t.pool.finish(first)
    served.t.pool.finish(second)
    await served.t.clock.turn()
    assert [(await served.past.detail(run)).log.is_shared for run in (first, second)] == [True, True]


async def test_what_a_run_found_is_shown_with_it(served: Served) -> None:
    run = await served.start(PRICES)
    now_ms = served.t.clock.now_ms()
    for found_ms in (now_ms - 5_000, now_ms):
        item = NewRecord(hash=b"%d" % found_ms, fields={"title": str(found_ms)}, found_ns=found_ms * NS_IN_MS)
        await served.t.store.records.add(PRICES, [item])
    assert (await served.past.detail(run)).records == []

    served.t.store.execute("UPDATE run SET items_new = 2 WHERE id = ?", run)
    assert [each.fields["title"] for each in (await served.past.detail(run)).records] == [str(now_ms)]


async def test_a_run_of_a_job_that_is_gone_is_shown_without_its_source_and_one_that_is_not_there_refused(
    served: Served,
) -> None:
    run = await served.start(PRICES)
    served.t.live.remove(PRICES)
    found = await served.past.detail(run)

    assert (found.is_there, found.name, list(found.limits), found.log.lines) == (False, "prices", [], ())
    with pytest.raises(Refused, match="there is no run 99"):
        await served.past.detail(RunId(99))


async def began(served: Served, *hours_ago: int) -> None:
    """Record runs that began so many hours ago."""
    for hours in hours_ago:
        at_ms = served.t.clock.now_ms() - hours * HOUR_MS
        (run,) = await served.t.store.runs.record(Change(new=[make_run(due_ms=at_ms)]))
        assert run is not None
        await served.t.store.runs.record(Change(end=[make_end(run, ended_ms=at_ms + 500)]))


async def test_a_span_has_the_runs_that_began_in_it_oldest_first(served: Served) -> None:
    await began(served, 200, 30, 20, 1)
    figures = served.past.statistics
    found = {span: (await figures(PRICES, span)).runs for span in TimeSpan}
    assert found == {TimeSpan.DAY: 2, TimeSpan.WEEK: 3, TimeSpan.MONTH: 4}
    points = (await figures(PRICES, TimeSpan.DAY)).points
    assert [point.took_ms for point in points] == [500, 500]
    assert points[0].at_ms < points[1].at_ms


@pytest.mark.parametrize(("most", "runs", "is_partial"), [(9, 5, False), (4, 4, True)])
async def test_very_many_runs_are_read_in_pages_up_to_a_bound(
    served: Served, monkeypatch: pytest.MonkeyPatch, most: int, runs: int, is_partial: bool
) -> None:
    monkeypatch.setattr(past_runs, "POINTS_PAGE", 2)
    monkeypatch.setattr(past_runs, "MOST_RUNS", most)
    await began(served, 5, 4, 3, 2, 1)
    found = await served.past.statistics(PRICES, TimeSpan.DAY)
    assert (found.runs, found.is_partial) == (runs, is_partial)


@dataclass(slots=True)
class Asked:
    t: Harness
    job: LiveJob
    once: OnceService

    async def ask(self, key: str | None = "k1", asked: bytes = b"body") -> StartedRun:
        known = None if key is None else request_key("hook prices", key, asked, self.t.clock.now_ms())
        return await self.once.start(known, self._start)

    def _start(self, key: RequestKey | None) -> Claims:
        return self.t.runner.start_by_hand(self.job, RunRequest(trigger=Trigger(type="webhook"), key=key))

    async def count(self) -> int:
        return len(await self.t.record())

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[tuple[HangingRecord, Future[StartedRun]]]:
        """Ask, of a store that does not answer until the end of the block."""
        runs = self.t.store.runs
        with patch.object(runs, "record", HangingRecord(runs.record)) as hanging:
            first = asyncio.ensure_future(self.ask())
            await settle()
            yield hanging, first


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    async with harness() as t:
        await t.settle(job := make_job(schedule=Never(), overlap=Overlap.ALLOW))
        yield Asked(t, job, OnceService(t.store.runs, t.clock))
        await t.clock.turn()


async def test_requests_without_a_key_or_with_another_start_a_run_each(asked: Asked) -> None:
    runs = [(await asked.ask(key)).run for key in (None, None, "k1", "k2")]
    assert len(set(runs)) == 4


async def test_a_key_is_forgotten_after_a_day(asked: Asked) -> None:
    first = await asked.ask()
    await asked.t.clock.turn(KEPT_MS / 1000 - 1)
    assert (await asked.ask()).run == first.run
    await asked.t.clock.turn(2)
    assert (await asked.ask()).run != first.run


async def test_a_request_that_comes_while_the_first_is_under_way_is_refused(asked: Asked) -> None:
    async with asked.hanging() as (hanging, first):
        with pytest.raises(Refused, match="under way"):
            await asked.ask()
        with pytest.raises(KeyReused):
            await asked.ask(asked=b"another body")
    await hanging.grant()
    assert (await asked.ask()).run == (await first).run


async def test_a_client_that_has_hung_up_may_repeat_its_request_and_starts_no_second_run(asked: Asked) -> None:
    async with asked.hanging() as (hanging, first):
        first.cancel()
        await settle()
        with pytest.raises(Refused, match="under way"):
            await asked.ask()
    await hanging.grant()
    assert (await asked.ask()).is_repeated
    assert await asked.count() == 1


async def test_what_the_store_refused_may_be_tried_again_with_the_same_key(asked: Asked) -> None:
    async with asked.hanging() as (hanging, first):
        await hanging.refuse()
        with pytest.raises(StoreError):
            await first
    assert not (await asked.ask()).is_repeated


async def test_what_the_job_refused_may_be_tried_again_with_the_same_key(asked: Asked) -> None:
    def refuse(_: RequestKey | None) -> Claims:
        raise Refused("busy")

    key = request_key("hook prices", "k1", b"body", asked.t.clock.now_ms())
    with pytest.raises(Refused, match="busy"):
        await asked.once.start(key, refuse)
    assert not (await asked.ask()).is_repeated
    assert await asked.count() == 1


def test_keys_of_any_text_are_told_apart() -> None:
    keys = ["a", "A", "", " ", "ü", "\udcff", "a" * 10_000]
    assert len({request_key("s", key, b"", 0).key for key in keys}) == len(keys)
