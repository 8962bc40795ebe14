"""Whatever pages show, and wherever cycles break off: each change of an item is announced once, with the last price."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.model import FirstFind, Webhook
from spyweb.monitor.run import MonitorRunner
from tests.fakes.monitor import SHOP, Shop, make_monitor, page, shop

LOUD, SILENT = (False, ""), (True, "")  # whether the first cycle is silent, and the keyword
PART = 3  # items stored at once
A, B, LAMP = "http://a/", "http://b/", ("Lamp", "5")
WHOLE, UNSENT = 9, 0  # parts that the store takes before it refuses; and a daemon that dies before it announces
items = st.lists(st.tuples(st.sampled_from(["Lamp", "Desk", ""]), st.sampled_from(["5", "4", ""])), max_size=7)
broken = st.sampled_from([WHOLE, WHOLE, UNSENT, 1, 2])
steps = st.lists(st.tuples(st.sampled_from([A, B]), items, broken, st.sampled_from([200, 200, 503])))


class Model:
    """The last price of each item, the addresses that were seen, and the changes to announce."""

    def __init__(self, is_silent: bool, keyword: str) -> None:
        self.is_silent, self.keyword = is_silent, keyword
        self.prices: dict[tuple[str, int], str] = {}
        self.is_first: dict[str, bool] = {}
        self.changes: list[tuple[str, str, str | None]] = []

    def show(self, url: str, shown: list[tuple[str, str]], stored: int) -> None:
        kept = [(title, price) for title, price in shown if self.keyword in title]
        numbers: dict[str, dict[object, int]] = {}
        for start in range(0, len(kept) or bool(shown), PART)[: stored or WHOLE]:
            part, keys = kept[start : start + PART], []
            for title, price in part:
                alike = numbers.setdefault(title, {})
                keys.append((title or url, alike.setdefault(price if title else len(alike), len(alike) + 1)))
            is_known = 0 < len(part) <= 2 * sum(key in self.prices for key in keys)
            is_first = self.is_silent and self.is_first.setdefault(url, not is_known)
            for key, (title, price) in zip(keys, part, strict=True):
                old = self.prices.get(key)
                if old != price and not is_first:
                    self.changes.append((title, price, old))
                self.prices[key] = price
            self.is_first[url] = is_first and start + PART < len(kept)


async def cycle(s: Shop, job: dict[str, Any], url: str, shown: list[tuple[str, str]], stored: int, status: int) -> None:
    s.http.answers[url] = page(url, status=status)
    s.extractor.items[url] = [{"title": title, "price": price} for title, price in shown]
    add, outbox, parts = s.store.records.add, s.store.outbox, iter(range(stored or WHOLE))

    def refuse(*arguments: Any, **rest: Any) -> Any:
        if next(parts, None) is None:
            raise StoreError("database or disk is full")
        return add(*arguments, **rest)

    with patch.object(s.store.records, "add", refuse):
        if stored == UNSENT:
            with patch.object(outbox, "add", side_effect=StoreError("killed")):
                await s.run(make_monitor(urls=(url,), **job))
        else:
            await s.run(make_monitor(urls=(url,), **job))
    if stored == UNSENT:
        s.monitors = MonitorRunner(s.monitors._services, s.vms)


async def watch(story: list[tuple[str, list[tuple[str, str]], int, int]], is_silent: bool, keyword: str) -> None:
    model = Model(is_silent, keyword)
    job: dict[str, Any] = {"track": ("price",), "webhook": Webhook(url="http://hooks.example/")}
    job |= {"keywords": (keyword,) if keyword else (), "first": FirstFind.SILENT if is_silent else FirstFind.ANNOUNCE}
    async with shop() as s:
        with patch("spyweb.monitor.keep.AT_ONCE", PART):
            for url, shown, stored, status in [*story, (A, [], WHOLE, 200)]:
                await cycle(s, job, url, shown, stored, status)
                if status == 200:
                    model.show(url, shown, stored)
        messages = reversed(await s.store.outbox.unsent(SHOP, 100))
        sent = [item for message in messages for item in json.loads(message.payload)["items"]]
    found = [(each["fields"]["title"], each["fields"]["price"], each.get("old", {}).get("price")) for each in sent]
    assert found == model.changes


@example([(A, [("", "5")], WHOLE, 200), (B, [("", "4")], WHOLE, 200)], *LOUD)
@example([(A, [LAMP], WHOLE, 200), (B, [LAMP, ("Desk", "4"), ("", "4")], WHOLE, 200)], *SILENT)
@example([(A, [("Desk", "4")], WHOLE, 200), (A, [LAMP], WHOLE, 200)], True, "Lamp")
@given(steps, st.booleans(), st.sampled_from(["", "Lamp"]))
def test_messages_have_each_change_once_and_in_order(story: Any, is_silent: bool, keyword: str) -> None:
    asyncio.run(watch(story, is_silent, keyword))
