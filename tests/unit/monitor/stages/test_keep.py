"""What makes an item the same as an earlier one."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.model import JobId, Outcome, Webhook
from spyweb.monitor.stages.keep import AT_ONCE, hash_of
from spyweb.store.model.records import NewRecord
from tests.fakes.monitor import SHOP, Shop, make_monitor

LAMP = {"title": "Lamp", "price": "5"}


def test_all_fields_count_in_any_order() -> None:
    assert hash_of(LAMP, ()) == hash_of({"price": "5", "title": "Lamp"}, ())
    assert hash_of(LAMP, ()) != hash_of({**LAMP, "price": "6"}, ())


def test_only_the_hash_fields_count_where_there_are_some() -> None:
    assert hash_of(LAMP, ("title",)) == hash_of({**LAMP, "price": "6"}, ("title",))
    assert hash_of(LAMP, ("title",)) != hash_of({**LAMP, "title": "Desk"}, ("title",))


def test_all_fields_count_where_the_hash_fields_are_empty() -> None:
    bare = {"title": "", "price": "5"}
    assert hash_of(bare, ("title",)) == hash_of(bare, ())
    assert hash_of(bare, ("title",)) != hash_of({**bare, "price": "6"}, ("title",))


def test_a_hash_is_the_same_in_every_version_for_it_is_stored() -> None:
    assert hash_of(LAMP, ()).hex() == "f6d461c1533e8fa55de6f3b504b726bf"


@given(st.dictionaries(st.text(), st.text(min_size=1)), st.dictionaries(st.text(), st.text(min_size=1)))
def test_two_items_are_the_same_when_their_fields_are(one: dict[str, str], other: dict[str, str]) -> None:
    assert (hash_of(one, ()) == hash_of(other, ())) is (one == other)


async def test_a_store_that_refuses_fails_the_cycle(s: Shop) -> None:
    await s.store.close()
    ending = await s.run(make_monitor())
    assert ending.outcome is Outcome.FAILED
    assert ending.reason.startswith("not stored: ")


def sees_the_records(s: Shop, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """How many are given to the store at once; after `most` times it refuses."""
    add = s.store.records.add
    given: list[int] = []

    def added(job: JobId, items: Sequence[NewRecord], *, owed: bool = False) -> Future[list[int | None]]:
        given.append(len(items))
        if len(given) > most:
            raise StoreError("database or disk is full")
        return add(job, items, owed=owed)

    monkeypatch.setattr(s.store.records, "add", added)
    return given


async def test_a_large_page_is_stored_in_parts_so_that_others_may_write_in_between(
    s: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.extractor.otherwise = [{"title": str(number)} for number in range(2 * AT_ONCE + 1)]
    given = sees_the_records(s, monkeypatch, most=3)
    assert (await s.run(make_monitor())).outcome is Outcome.SUCCESS
    assert given == [AT_ONCE, AT_ONCE, 1]
    assert [fields["title"] for fields in await s.records()] == [str(number) for number in range(2 * AT_ONCE + 1)]


async def test_what_was_stored_of_a_page_before_the_store_refused_is_still_announced(
    s: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_monitor(webhook=Webhook(url="http://hooks.example/"))
    s.extractor.otherwise = [{"title": str(number)} for number in range(AT_ONCE + 1)]
    with monkeypatch.context() as refusing:
        sees_the_records(s, refusing, most=1)
        assert (await s.run(job)).reason == "not stored: database or disk is full"
    assert len(await s.store.records.owed(SHOP, 1000)) == AT_ONCE

    await s.run(job)
    assert await s.store.records.owed(SHOP, 1000) == []
    (message,) = await s.store.outbox.unsent(SHOP, 10)
    assert message.payload.count(b'"title"') == AT_ONCE + 1
