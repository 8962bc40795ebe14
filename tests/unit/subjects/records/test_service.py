"""Records that somebody looks for, over a store in memory."""

from __future__ import annotations

import pytest

from spyweb.model import Field, Monitor
from spyweb.runs.live import LiveJobs
from spyweb.store.model.records import NewRecord, RecordFilter, RecordPage
from spyweb.subjects.records import service as record_search
from spyweb.subjects.records.service import RecordSearch
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.harness import make_job
from tests.fakes.memory_store import MemoryStore


async def known(*titles: str) -> RecordSearch:
    clock = FakeClock()
    store, live = MemoryStore(clock), LiveJobs()
    fields = (Field(name="title", selector="a"), Field(name="price", selector="b"))
    live.add(make_job("prices", monitor=Monitor(urls=("https://a.example",), selector="li", fields=fields)))
    for title in titles:
        await store.records.add(PRICES, [NewRecord(hash=title.encode(), fields={"title": title})])
    return RecordSearch(records=store.records, live=live, clock=clock)


async def test_records_are_found_and_counted() -> None:
    service = await known("tea", "cup", "teapot")
    found = await service.search(RecordFilter(text="TEA"), limit=9)
    assert ([view.fields["title"] for view in found.records], found.before_ns) == (["teapot", "tea"], None)
    assert await service.counts() == {PRICES: 3}


async def test_a_table_has_all_pages_and_the_columns_that_the_job_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "PAGE", 2)
    service = await known("a", "b", "c", "=d", "e")

    lines = "".join([line async for line in service.table(RecordFilter(job=PRICES), for_spreadsheet=True)]).splitlines()
    assert lines[0] == "date_time,job,title,price,keywords,page_url,other_fields"
    assert [line.split(",")[2] for line in lines[1:]] == ["e", "'=d", "c", "b", "a"]


async def test_a_table_of_nothing_is_its_header() -> None:
    lines = [line async for line in (await known()).table(RecordFilter(text="x"))]
    assert lines == ["date_time,job,keywords,page_url,other_fields\r\n"]


async def test_a_search_that_takes_long_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    service = await known()

    async def slowly(wanted: RecordFilter, *, limit: int, before_ns: int | None = None) -> RecordPage:
        assert isinstance(service.clock, FakeClock)
        service.clock.advance(0.15)
        return RecordPage(records=(), before_ns=(before_ns or 9) - 1)

    monkeypatch.setattr(service.records, "search", slowly)
    assert (await service.search(RecordFilter(text="x"), limit=9)).before_ns == 7
