"""Records, in every kind of store: what is new is recorded once, and what was seen stays seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.errors import StoreError
from spyweb.store.model.records import NewRecord, Record, RecordFilter
from spyweb.store.sqlite import records
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.changes import NEWS, PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.findings import item, listed, message, titles
from tests.fakes.stores import ENGINES

STORES = ENGINES

DAY_S = 86_400.0
DAY_MS = 86_400_000


async def test_an_item_is_told_back_whole_with_its_fields_in_their_order(store: Store, clock: FakeClock) -> None:
    fields = {"title": 'Tea "ä" 漢字', "price": "", "a": "\0\n", "fields": "x"}
    new = NewRecord(hash=b"\0\xff", fields=fields, matches=["sale", "ein"], url="https://shop.example/?a=1")
    (added,) = await store.records.add(PRICES, [new])
    (record,) = await store.records.list(PRICES)

    assert record == Record(
        timestamp_ns=clock.now_ms() * 1_000_000,
        job=PRICES,
        hash=b"\0\xff",
        fields=fields,
        matches=("sale", "ein"),
        url="https://shop.example/?a=1",
    )
    assert list(record.fields) == ["title", "price", "a", "fields"]
    assert added == record
    assert record.created_ms == clock.now_ms()


async def test_an_item_that_was_seen_is_not_recorded_again(store: Store, clock: FakeClock) -> None:
    first = await store.records.add(PRICES, [item("tea"), item("cup")])
    clock.advance(60)
    again = await store.records.add(PRICES, [item("tea", price="changed"), item("pot"), item("cup")])

    assert all(first)
    assert [number is None for number in again] == [True, False, True]
    assert await listed(store) == ["pot", "cup", "tea"]


async def test_of_two_that_are_the_same_in_one_page_the_first_is_recorded(store: Store) -> None:
    added = await store.records.add(PRICES, [item("tea", price="1"), item("cup"), item("tea", price="2")])

    assert [number is None for number in added] == [False, False, True]
    assert [record.fields.get("price") for record in await store.records.list()] == [None, "1"]


async def test_the_newest_come_first_of_one_job_and_of_all(store: Store, clock: FakeClock) -> None:
    await store.records.add(PRICES, [item("a"), item("b")])
    await store.records.add(NEWS, [item("c")])
    clock.advance(1)
    await store.records.add(PRICES, [item("d")])

    assert await listed(store) == ["d", "c", "b", "a"]
    assert await listed(store, PRICES) == ["d", "b", "a"]
    assert await listed(store, limit=2) == ["d", "c"]
    assert await listed(store, limit=0) == []


async def test_pages_follow_each_other_without_a_gap_and_without_a_repetition(store: Store) -> None:
    await store.records.add(PRICES, [item(str(number)) for number in range(25)])
    pages, before_ns = [], None
    while page := await store.records.list(PRICES, limit=10, before_ns=before_ns):
        pages += titles(page)
        before_ns = page[-1].timestamp_ns

    assert pages == [str(number) for number in reversed(range(25))]


async def test_timestamps_grow_even_where_the_clock_was_set_back_and_doubles_tell_them_apart(
    store: Store, clock: FakeClock
) -> None:
    await store.records.add(PRICES, [item(str(number)) for number in range(3)])
    clock.jump(-3600)
    await store.records.add(NEWS, [item("late")])
    found = await store.records.list()

    assert titles(found) == ["late", "2", "1", "0"]
    numbers = [record.timestamp_ns for record in found]
    assert numbers == sorted(numbers, reverse=True)
    assert len({float(number) for number in numbers}) == 4


async def test_text_that_is_no_unicode_is_refused_and_nothing_of_its_page_recorded(store: Store) -> None:
    with pytest.raises(StoreError, match="no Unicode"):
        await store.records.add(PRICES, [item("tea"), item("cup", price="\ud800")])

    assert await listed(store) == []
    added = await store.records.add(PRICES, [item("tea"), item("cup")])
    assert all(added)


async def test_a_page_of_any_length_is_known_when_it_comes_again(store: Store) -> None:
    for count in (1, 31, 32, 33, 100):
        page = [item(f"{count} {number}") for number in range(count)]
        assert all(await store.records.add(PRICES, page))
        assert await store.records.add(PRICES, page) == [None] * count


async def test_pruning_deletes_what_is_too_old_though_it_is_owed(store: Store, clock: FakeClock) -> None:
    await store.records.add(PRICES, [item("old"), item("older")], owed=True)
    clock.advance(10)
    moment = clock.now_ms()
    await store.records.add(PRICES, [item("in time")])

    assert await store.records.prune(keep=100, older_than_ms=moment, unseen_since_ms=0) == 2
    assert await listed(store) == ["in time"]
    assert await store.records.owed(PRICES, 10) == []


async def test_an_item_whose_record_was_pruned_is_no_news(store: Store) -> None:
    await store.records.add(PRICES, [item("a"), item("b")])
    await store.records.prune(keep=0, older_than_ms=None, unseen_since_ms=0)

    assert await listed(store) == []
    assert await store.records.add(PRICES, [item("a"), item("b")]) == [None, None]


async def test_an_item_that_stays_on_its_page_is_never_forgotten(store: Store, clock: FakeClock) -> None:
    await store.records.add(PRICES, [item("stays"), item("goes")])
    for _ in range(40):
        clock.advance(DAY_S)
        assert await store.records.add(PRICES, [item("stays")]) == [None]
        unseen_since_ms = clock.now_ms() - 30 * DAY_MS
        await store.records.prune(keep=100, older_than_ms=None, unseen_since_ms=unseen_since_ms)

    stays, goes = await store.records.add(PRICES, [item("stays"), item("goes")])
    assert stays is None
    assert goes is not None


async def test_what_is_new_is_owed_until_its_messages_are_added(store: Store) -> None:
    tea, cup = await store.records.add(PRICES, [item("tea"), item("cup", matches=["sale"])], owed=True)
    await store.records.add(PRICES, [item("pot")])
    await store.records.add(NEWS, [item("tea")], owed=True)
    await store.records.add(PRICES, [item("tea")], owed=True)
    owed = await store.records.owed(PRICES, 10)

    assert titles(owed) == ["tea", "cup"]
    assert owed[1] == next(record for record in await store.records.list(PRICES) if record == cup)
    assert titles(await store.records.owed(PRICES, 1)) == ["tea"]
    assert tea is not None
    await store.outbox.add([message()], settles=[tea.timestamp_ns])
    assert titles(await store.records.owed(PRICES, 10)) == ["cup"]
    assert titles(await store.records.owed(NEWS, 10)) == ["tea"]
    assert cup is not None
    await store.outbox.add([], settles=[cup.timestamp_ns])  # it was found not to be worth a message
    assert await store.records.owed(PRICES, 10) == []


async def test_what_is_owed_is_kept_though_it_is_more_than_is_to_be_kept(store: Store) -> None:
    await store.records.add(PRICES, [item("a"), item("b")], owed=True)
    await store.records.add(PRICES, [item("c"), item("d")])
    await store.records.add(NEWS, [item("only")])

    assert await store.records.prune(keep=1, older_than_ms=None, unseen_since_ms=0) == 1
    assert titles(await store.records.owed(PRICES, 10)) == ["a", "b"]
    assert await listed(store) == ["only", "d", "b", "a"]


async def test_a_renamed_job_keeps_its_records_and_what_it_has_seen(store: Store) -> None:
    await store.records.add(PRICES, [item("both"), item("old")], owed=True)
    await store.records.add(NEWS, [item("both"), item("new")])

    await store.records.move(PRICES, PRICES)  # which changes nothing
    assert await store.records.move(PRICES, NEWS) == 2
    assert await listed(store, PRICES) == []
    assert await store.records.owed(PRICES, 10) == []
    assert sorted(await listed(store, NEWS)) == ["both", "both", "new", "old"]
    assert titles(await store.records.owed(NEWS, 10)) == ["both", "old"]
    assert await store.records.add(NEWS, [item("both"), item("old"), item("new")]) == [None] * 3
    assert all(await store.records.add(PRICES, [item("both"), item("old")]))


async def test_what_another_program_found_keeps_its_moment_and_is_seen_from_then_on(
    store: Store, clock: FakeClock
) -> None:
    then_ns = 1_700_000_000_000_000_123
    (now,) = await store.records.add(PRICES, [item("new")])
    old = [
        replace(item("b"), found_ns=then_ns + 1_000),
        replace(item("a"), found_ns=then_ns),
        replace(item("c"), found_ns=then_ns),
    ]
    added = [record and record.timestamp_ns for record in await store.records.add(PRICES, old)]
    assert added == [then_ns + 1_000, then_ns, then_ns + 2_000]
    assert await store.records.add(PRICES, [*old, item("a")]) == [None, None, None, None]
    assert titles(await store.records.list(PRICES)) == ["new", "c", "b", "a"]
    assert await store.records.owed(PRICES, 10) == []
    (later,) = await store.records.add(PRICES, [item("later")])
    assert later is not None
    assert now is not None
    assert later.timestamp_ns > now.timestamp_ns


async def found(store: Store, wanted: RecordFilter, limit: int = 99) -> list[str]:
    return titles((await store.records.search(wanted, limit=limit)).records)


async def test_records_are_found_by_a_text_in_a_field_a_keyword_or_the_address(store: Store) -> None:
    tea = NewRecord(hash=b"1", fields={"title": "GREEN Tea", "note": 'a "quoted" ÄHRE'}, url="https://shop.example/1")
    pot = NewRecord(hash=b"2", fields={"title": "pot"}, matches=["sale"], url="https://shop.example/2")
    await store.records.add(PRICES, [tea])
    await store.records.add(NEWS, [pot])

    assert await found(store, RecordFilter(text="green t")) == ["GREEN Tea"]
    assert await found(store, RecordFilter(text="ähre")) == ["GREEN Tea"]
    assert await found(store, RecordFilter(text='"QUOTED"')) == ["GREEN Tea"]
    assert await found(store, RecordFilter(text="SALE")) == ["pot"]
    assert await found(store, RecordFilter(text="example/")) == ["pot", "GREEN Tea"]
    assert await found(store, RecordFilter(text="title")) == []  # the name of a field is none of its text
    assert await found(store, RecordFilter(text="%")) == await found(store, RecordFilter(text="_")) == []
    assert await found(store, RecordFilter()) == ["pot", "GREEN Tea"]
    assert await found(store, RecordFilter(job=PRICES, text="example")) == ["GREEN Tea"]


async def test_a_search_of_records_goes_on_where_a_page_ends_and_stops_at_a_moment(
    store: Store, clock: FakeClock
) -> None:
    for name in "abcd":
        await store.records.add(PRICES, [item(name)])
        clock.advance(1)
    since_ns = (clock.now_ms() - 3_000) * 1_000_000

    first = await store.records.search(RecordFilter(since_ns=since_ns), limit=2)
    rest = await store.records.search(RecordFilter(since_ns=since_ns), limit=2, before_ns=first.before_ns)
    assert (titles(first.records), titles(rest.records), rest.before_ns) == (["d", "c"], ["b"], None)
    assert await found(store, RecordFilter(job=PRICES, since_ns=since_ns)) == ["d", "c", "b"]


async def test_records_are_counted_by_job(store: Store) -> None:
    assert await store.records.counts() == {}
    await store.records.add(PRICES, [item("a"), item("b")])
    await store.records.add(NEWS, [item("a")])
    assert await store.records.counts() == {PRICES: 2, NEWS: 1}


@pytest.fixture
async def on_disk(path: Path) -> AsyncIterator[Store]:
    store = await open_store(path, clock=FakeClock())
    yield store
    await store.close()


def log_bytes(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def test_a_page_without_news_writes_nothing(on_disk: Store, path: Path) -> None:
    page = [item(str(number)) for number in range(30)]
    await on_disk.records.add(PRICES, page)
    before = log_bytes(path)

    for _ in range(20):
        await on_disk.records.add(PRICES, page)

    assert log_bytes(path) == before


async def test_a_search_that_finds_little_says_how_far_it_looked(
    on_disk: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SEARCHED", 10)
    await on_disk.records.add(PRICES, [item(str(number)) for number in range(25)])

    before_ns, pages = None, 0
    while True:
        page = await on_disk.records.search(RecordFilter(text="nothing"), limit=5, before_ns=before_ns)
        before_ns, pages = page.before_ns, pages + 1
        assert page.records == []
        if before_ns is None:
            break
    assert pages == 3
