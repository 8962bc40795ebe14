"""What makes an item the same as an earlier one."""

from __future__ import annotations

import json
from asyncio import Future
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.model import Field, JobId, Monitor, Notification, OnHookError, Outcome, Webhook
from spyweb.monitor.items import Item
from spyweb.monitor.keep import AT_ONCE, UnannouncedRecords, hash_of
from spyweb.monitor.run import MonitorRunner
from spyweb.monitor.texts import body_of, fill, moment, title_of, webhook_payload
from spyweb.store.model.messages import Channel, QueuedMessage, Target
from spyweb.store.model.records import NewRecord, Record
from tests.fakes.monitor import SHOP, URL, HookError, Shop, make_monitor

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


async def test_a_large_page_is_stored_in_parts_so_that_others_may_write_in_between(
    s: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.extractor.otherwise = [{"title": str(number)} for number in range(2 * AT_ONCE + 1)]
    add, given = s.store.records.add, list[int]()

    def added(job: JobId, items: Sequence[NewRecord], **rest: Any) -> Future[list[Record | None]]:
        given.append(len(items))
        return add(job, items, **rest)

    monkeypatch.setattr(s.store.records, "add", added)
    assert (await s.run(make_monitor())).outcome is Outcome.SUCCESS
    assert given == [AT_ONCE, AT_ONCE, 1]
    assert [fields["title"] for fields in await s.records()] == [str(number) for number in range(2 * AT_ONCE + 1)]


HOOK = Webhook(url="http://hooks.example/")
OTHER = "http://other.example/"


async def told(s: Shop) -> list[list[str]]:
    """The titles of each message to the webhook; they are taken out."""
    messages: list[QueuedMessage] = []
    while message := await s.store.outbox.next(Target(Channel.WEBHOOK, HOOK.url), s.clock.now_ms()):
        messages.append(message)
        await s.store.outbox.done(message.id)
    return [[item["title"] for item in json.loads(message.payload)["items"]] for message in messages]


def fails(_argument: object, _ctx: object) -> object:
    raise HookError("not now")


@pytest.mark.parametrize("is_new", [False, True])
async def test_what_is_left_goes_out_though_the_page_shows_nothing_new_also_by_a_new_daemon(
    s: Shop, is_new: bool
) -> None:
    job = make_monitor(lua=True, webhook=HOOK, on_hook_error=OnHookError.FAIL)
    s.vms.hooks = {"before_notify": fails}
    await s.run(job)
    s.vms.hooks = {}
    if is_new:
        s.monitors = MonitorRunner(s.monitors._services, s.vms)
    await s.run(job)
    assert await told(s) == [["Lamp", "Desk"]]


async def test_what_another_cycle_of_the_job_is_about_to_announce_is_not_left(s: Shop) -> None:
    s.extractor.items = {OTHER: [{"title": "Chair", "price": "7"}]}
    job = make_monitor(lua=True, urls=(URL, OTHER), is_queue=True, workers=2, webhook=HOOK)

    async def slow(argument: object, _ctx: object) -> object:
        await s.clock.sleep(5)
        return argument

    s.vms.hooks = {"before_notify": slow}
    running = s.start(job)
    for _ in range(4):
        await s.clock.turn()
        s.clock.advance(5)
    await s.clock.turn()
    assert (await running).outcome is Outcome.SUCCESS
    assert sorted(await told(s)) == [["Chair"], ["Lamp", "Desk"]]


async def test_both_messages_of_a_cycle_are_kept_or_neither(s: Shop) -> None:
    added: list[tuple[int, int]] = []
    add = s.store.outbox.add

    def once(messages: Any, *, settles: Any = (), notices: Any = ()) -> Any:
        added.append((len(messages), len(settles)))
        if len(added) == 1:
            raise StoreError("disk full")
        return add(messages, settles=settles)

    s.store.outbox.add = once  # type: ignore[method-assign]
    job = make_monitor(webhook=HOOK, notification=Notification())
    ending = await s.run(job)
    assert (ending.outcome, ending.reason) == (
        Outcome.FAILED,
        "notify and webhook: not put in the outbox: disk full",
    )
    await s.run(job)
    assert added == [(2, 2), (2, 2)]
    assert await told(s) == [["Lamp", "Desk"]]


async def test_where_nothing_is_announced_nothing_is_owed(s: Shop) -> None:
    job = make_monitor()
    await s.run(job)
    assert await s.store.records.owed(job.id, 10) == []
    await s.run(make_monitor(webhook=HOOK))
    assert await told(s) == []


async def test_what_hooks_silence_is_settled(s: Shop) -> None:
    s.vms.hooks = {"before_webhook": lambda _argument, _ctx: None}
    job = make_monitor(lua=True, webhook=HOOK)
    await s.run(job)
    assert await s.store.records.owed(job.id, 10) == []
    assert await told(s) == []


async def test_a_store_that_can_not_be_read_holds_nothing_up(s: Shop) -> None:

    def refuse(_job: object, _limit: int) -> Any:
        raise StoreError("no disk")

    s.store.records.owed = refuse  # type: ignore[method-assign, assignment]
    assert (await s.run(make_monitor(webhook=HOOK))).outcome is Outcome.SUCCESS
    assert await told(s) == [["Lamp", "Desk"]]


async def test_while_a_cycle_has_new_items_in_hand_nobody_takes_them_for_left(s: Shop) -> None:
    owed = UnannouncedRecords(SHOP, s.store.records)
    async with owed.at_risk():
        await s.store.records.add(SHOP, [NewRecord(hash=b"1", fields={"title": "Lamp"})], owed=True)
        with pytest.raises(HookError):
            async with owed.at_risk():
                raise HookError
        async with owed.at_risk() as left:
            assert not left
    async with owed.at_risk() as left:
        assert [record.fields["title"] for record in left] == ["Lamp"]
    async with owed.at_risk() as left:
        assert not left


LAMP_ITEM = Item({"title": "Lamp", "price": "5"}, ("sale", "lamp"))
DESK = Item({"title": "Desk"}, ("sale",))
FIELDS = (Field(name="title", selector="h2"), Field(name="price", selector=".price"))
MONITOR = Monitor(urls=(URL,), selector="li", fields=FIELDS)
BOTH = (LAMP_ITEM, DESK)
TAGS = {
    "job_name": "Shop",
    "url": "http://shop.example/",
    "item_count": "2",
    "timestamp": moment(1_767_225_600_000, "Europe/Berlin"),
}


def test_every_tag_is_filled_in() -> None:
    template = "{job_name} {url} {item_count} {timestamp} {matches} {match_count} {title}"
    told = "Shop http://shop.example/ 2 2026-01-01T01:00:00+01:00 sale, lamp 2 Lamp"
    assert title_of(Notification(title=template), TAGS, MONITOR, BOTH) == told


def test_the_body_is_filled_in_for_each_item() -> None:
    body = body_of(Notification(body="\n{title}: {price} ({matches})\n"), TAGS, MONITOR, BOTH)
    assert body == "Lamp: 5 (sale, lamp)\nDesk:  (sale)"


def test_without_texts_of_its_own_it_says_how_many_and_the_first_field_of_each() -> None:
    assert title_of(Notification(), TAGS, MONITOR, BOTH) == "Shop: 2 new"
    assert body_of(Notification(), TAGS, MONITOR, BOTH) == "Lamp\nDesk"


def test_a_field_wins_over_a_tag_of_its_name() -> None:
    lamp = Item({"url": "http://shop.example/lamp"})
    assert body_of(Notification(body="{url}"), TAGS, MONITOR, [lamp]) == "http://shop.example/lamp"


def test_many_items_are_cut_and_counted() -> None:
    assert body_of(Notification(), TAGS, MONITOR, [LAMP_ITEM] * 12).splitlines()[-2:] == ["Lamp", "… and 2 more"]


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_what_a_page_says_is_no_tag_and_an_unknown_tag_stays(text: str, tags: dict[str, str]) -> None:
    assert fill("{known}{unknown}", {**tags, "known": text, "unknown": "{unknown}"}) == text + "{unknown}"
    assert fill("{other}", {"known": text}) == "{other}"


def test_the_payload_has_flat_items_with_their_keywords() -> None:
    assert json.loads(webhook_payload("Shop", URL, MONITOR, [LAMP_ITEM])) == {
        "job_name": "Shop",
        "item_count": 1,
        "items": [{"title": "Lamp", "price": "5", "keywords": ["sale", "lamp"], "page_url": URL}],
    }
