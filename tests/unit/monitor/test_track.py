"""Monitors that track fields: a change is recorded and announced with its old value, in every kind of message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spyweb.errors import OpError
from spyweb.incidents.policy import Level
from spyweb.model import Field, FirstFind, Notification, Outcome, Webhook
from spyweb.store.model.incidents import AlertChannelNow
from spyweb.store.model.messages import Channel
from tests.fakes.monitor import SHOP, URL, Shop, make_monitor
from tests.fakes.ops import FakeChannels

HOOK = Webhook(url="http://hooks.example/")
TRACKED: dict[str, Any] = {"track": ("price",), "webhook": HOOK}
OTHER = "http://shop.example/2"


def shows(s: Shop, *items: tuple[str, str], url: str = URL) -> None:
    s.extractor.items[url] = [{"title": title, "price": price} for title, price in items]


async def sent(s: Shop, channel: Channel = Channel.WEBHOOK) -> list[Any]:
    """The payloads of the messages to a kind of channel, oldest first; all messages are taken out."""
    found = await s.store.outbox.unsent(SHOP, 100)
    for message in found:
        await s.store.outbox.done(message.id)
    return [json.loads(each.payload) for each in reversed(found) if each.target.channel is channel]


async def lines(s: Shop) -> list[tuple[str, str]]:
    """Title and body of the messages to alert channels."""
    payloads = await sent(s, Channel.ALERT)
    return [(item["title"], item["text"]) for payload in payloads for item in payload["items"]]


async def test_each_change_is_sent_with_the_old_value_and_one_back_to_it_as_well(s: Shop) -> None:
    seen, counts = [], []
    for price in ("30.99 €", "24.99 €", "24.99 €", "30.99 €", "24.99 €"):
        shows(s, ("Lamp", price), ("Desk", "90 €"))
        ending = await s.run(make_monitor(**TRACKED))
        counts.append((ending.items_new, ending.items_changed))
        seen.append([payload["items"] for payload in await sent(s)])

    def entry(title: str, price: str, **change: object) -> Any:
        return {"fields": {"title": title, "price": price}, "keywords": [], "page_url": URL, **change}

    def changed(old: str, new: str) -> list[Any]:
        return [[entry("Lamp", new, change="changed", old={"price": old})]]

    first = [entry("Lamp", "30.99 €", change="new"), entry("Desk", "90 €", change="new")]
    down, up = changed("30.99 €", "24.99 €"), changed("24.99 €", "30.99 €")
    assert seen == [[first], down, [], up, down]
    assert counts == [(2, 0), (1, 1), (0, 0), (1, 1), (1, 1)]
    records = await s.store.records.list(SHOP)
    assert [record.old.get("price") for record in records] == ["30.99 €", "24.99 €", "30.99 €", None, None]


async def test_the_hash_fields_say_which_item_it_is_where_there_are_some(s: Shop) -> None:
    job = make_monitor(**TRACKED, hash_fields=("link",), fields=FIELDS)
    for title, price in (("Lamp", "5"), ("Lamp, blue", "4"), ("Lamp, red", "4")):
        s.extractor.items[URL] = [{"title": title, "price": price, "link": f"{URL}1"}]
        await s.run(job)
    first, second = (payload["items"] for payload in await sent(s))
    assert first == [{"change": "new", "fields": {"title": "Lamp", "price": "5", "link": f"{URL}1"}, **LINKED}]
    fields = {"title": "Lamp, blue", "price": "4", "link": f"{URL}1"}
    assert second == [{"change": "changed", "fields": fields, "old": {"price": "5"}, **LINKED}]


FIELDS = (
    Field(name="title", selector="h2"),
    Field(name="price", selector=".price"),
    Field(name="link", selector="a", attribute="href"),
)
LINKED = {"keywords": [], "page_url": URL, "link": f"{URL}1"}


@pytest.mark.parametrize("names", [(), ("title",)])
async def test_a_field_tracked_from_now_on_makes_no_item_new_and_is_known_from_then_on(s: Shop, names: object) -> None:
    await s.run(make_monitor(webhook=HOOK, hash_fields=names))
    assert len(await sent(s)) == 1
    await s.run(make_monitor(**TRACKED, hash_fields=names))
    assert await sent(s) == []
    shows(s, ("Lamp", "4"), ("Desk", "90"))
    await s.run(make_monitor(**TRACKED, hash_fields=names))
    (payload,) = await sent(s)
    assert [item["old"] for item in payload["items"]] == [{"price": "5"}]


async def test_with_hash_fields_no_item_is_new_that_was_tracked_before(s: Shop) -> None:
    for track in (("price",), ("price", "stock"), ()):
        await s.run(make_monitor(webhook=HOOK, track=track, hash_fields=("title",)))
    assert len(await sent(s)) == 1


async def test_hooks_see_the_old_values_and_may_pass_them_on(s: Shop) -> None:
    seen: list[object] = []

    def before_notify(items: Any, _ctx: object) -> Any:
        seen.extend(item.get(b"old") for item in items)
        return [{"fields": {**item[b"fields"], "title": "Sale"}, "old": item.get(b"old")} for item in items]

    s.vms.hooks = {"before_notify": before_notify}
    job = make_monitor(lua=True, track=("price",), to=("phone",))
    shows(s, ("Lamp", "5"))
    await s.run(job)
    shows(s, ("Lamp", "4"))
    await s.run(job)
    assert seen == [None, {b"price": b"5"}]
    assert [title for title, _ in await lines(s)] == ["Shop: Sale: price 5", "Sale: price 5 → 4"]


async def test_a_silent_first_cycle_stores_and_sends_nothing_at_each_address_and_the_next_does(s: Shop) -> None:
    job = make_monitor(
        urls=(URL, OTHER), is_queue=True, to=("phone",), webhook=HOOK, notification=Notification(), first=SILENT
    )
    shows(s, ("Lamp", "5"))
    shows(s, ("Chair", "7"), url=OTHER)
    ending = await s.run(job)
    assert (ending.items_new, await s.store.outbox.unsent(SHOP, 10)) == (2, [])
    assert sorted(fields["title"] for fields in await s.records()) == ["Chair", "Lamp"]
    shows(s, ("Chair", "7"), ("Desk", "90"), url=OTHER)
    await s.run(job)
    found = {message.target.channel for message in await s.store.outbox.unsent(SHOP, 10)}
    assert found == {Channel.ALERT, Channel.WEBHOOK, Channel.DESKTOP}


SILENT = FirstFind.SILENT


async def test_a_monitor_that_becomes_silent_later_still_announces(s: Shop) -> None:
    shows(s, ("Lamp", "5"))
    await s.run(make_monitor(webhook=HOOK))
    shows(s, ("Lamp", "5"), ("Desk", "90"))
    await s.run(make_monitor(webhook=HOOK, first=SILENT))
    assert [payload["item_count"] for payload in await sent(s)] == [1, 1]


async def test_alert_channels_get_one_message_a_cycle_with_ten_items_their_links_and_how_many_more(s: Shop) -> None:
    job = make_monitor(track=("price",), to=("phone",), fields=FIELDS)
    s.extractor.items[URL] = [{"title": f"Lamp {n}", "price": "5", "link": f"{URL}{n}"} for n in range(12)]
    await s.run(job)
    ((title, body),) = await lines(s)
    assert title == "Shop: 12 new"
    assert body.splitlines()[:4] == ["Lamp 0: price 5", f"{URL}0", "Lamp 1: price 5", f"{URL}1"]
    assert body.splitlines()[-3:] == [f"{URL}9", "… and 2 more", URL]

    s.extractor.items[URL][0]["price"] = ""  # type: ignore[index]
    await s.run(job)
    assert await lines(s) == [("Lamp 0: price 5 → \N{EN DASH}", f"{URL}0")]

    s.extractor.items[URL] = [{"title": "Evil", "price": "5", "link": "javascript:alert(1)"}]
    await s.run(job)
    assert await lines(s) == [("Shop: Evil: price 5", URL)], "no link that a page may abuse"

    for price in ("5", "4"):
        shows(s, ("", price))
        await s.run(job)
    assert [title for title, _ in await lines(s)] == ["Shop: price 5", "Shop: price 5 → 4"]


async def test_a_message_to_a_channel_waits_for_the_end_of_its_quiet_hours_and_opens_no_incident(s: Shop) -> None:
    ends_ms = s.clock.now_ms() + 3_600_000
    channels_of(s).channels["phone"] = AlertChannelNow(name="phone", quiet_until_ms=ends_ms)
    await s.run(make_monitor(to=("phone",)))
    (message,) = await s.store.outbox.unsent(SHOP, 10)
    assert message.next_ms == ends_ms
    (item,) = json.loads(message.payload)["items"]
    assert (item["kind"], item["incident"], item["level"], item["run"]) == ("message", None, "info", 1)

    channels_of(s).channels["boss"] = AlertChannelNow(name="boss", level=Level.CRITICAL)
    await s.run(make_monitor(to=("boss",), urls=(OTHER,)))
    assert len(await s.store.outbox.unsent(SHOP, 10)) == 1, "none to a channel that takes graver messages only"


@pytest.mark.parametrize("is_permitted", [False, True])
async def test_what_a_channel_can_not_be_sent_waits_until_it_can(s: Shop, is_permitted: bool) -> None:
    channels, refused = channels_of(s), list[tuple[object, ...]]()

    def permit(*asked: object) -> None:
        refused.append(asked)
        raise OpError("to: may not notify the channel phone")

    if is_permitted:
        phone = channels.channels.pop("phone")
        reason = 'to: config.toml has no channel "phone" any more'
    else:
        s.host.call.permit, reason = permit, "to: may not notify the channel phone"  # type: ignore[method-assign, assignment]
    ending = await s.run(make_monitor(to=("phone",)))
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, reason)
    if is_permitted:
        channels.channels["phone"] = phone
    else:
        assert refused == [("to", "notify", "phone")]
        del s.host.call.permit
    await s.run(make_monitor(to=("phone",)))
    assert [title for title, _ in await lines(s)] == ["Shop: 2 new"]


async def test_the_desktop_shows_changes_and_a_text_of_ones_own_may_name_them(s: Shop) -> None:
    shows(s, ("Lamp", "5"), ("Desk", "90"))
    await s.run(make_monitor(track=("price",), notification=Notification()))
    shows(s, ("Lamp", "4"), ("Chair", "7"))
    await s.run(make_monitor(track=("price",), notification=Notification()))
    shows(s, ("Lamp", "5"))
    await s.run(make_monitor(track=("price",), notification=Notification(title="{changes}", body="<{change}>")))
    assert [(text["title"], text["body"]) for text in await sent(s, Channel.DESKTOP)] == [
        ("Shop: 2 new", "Lamp: price 5\nDesk: price 90"),
        ("Shop: 1 new, 1 changed", "Lamp: price 5 → 4\nChair: price 7"),
        ("1 changed", "<Lamp: price 4 → 5>"),
    ]


def channels_of(s: Shop) -> FakeChannels:
    channels = s.monitors._services.channels
    assert isinstance(channels, FakeChannels)
    return channels
