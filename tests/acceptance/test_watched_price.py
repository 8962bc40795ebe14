"""A price is watched: from the command line to an alert channel, a webhook and the records, over a kill -9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.hook import Hook, open_hook
from tests.fakes.http_server import Answer, Arrived, serving
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CONFIG = '[channels.phone]\nwebhook = "{phone}"\n'
SHOP = """name = "Shop"
url = "{site}/shop"
selector = ".item"
fields = ["title:h2", "price:.price", "link:a@href"]
track = ["price"]
first = "silent"
to = ["phone"]
every = "300ms"
webhook = {{ url = "{hook}" }}
notification = {{ enabled = false }}
"""
ITEM = '<li class="item"><h2>{title}</h2><b class="price">{price}</b><a href="/{title}">more</a></li>'


@dataclass(slots=True)
class PriceStory:
    """A shop whose prices the test sets, a phone and a webhook that keep what they are sent."""

    site: str = ""
    phone: Hook = field(default_factory=Hook)
    hook: Hook = field(default_factory=Hook)
    prices: dict[str, str] = field(default_factory=lambda: {"Lamp": "30.99 €", "Desk": "90 €"})

    def answer(self, _arrived: Arrived) -> Answer:
        items = "".join(ITEM.format(title=title, price=price) for title, price in self.prices.items())
        return Answer(200, {"Content-Type": "text/html; charset=utf-8"}, f"<ul>{items}</ul>".encode())

    def phoned(self) -> list[tuple[str, str]]:
        """Title and text of each message."""
        found = [item for body in self.phone.messages for item in json.loads(body)["items"]]
        return [(item["title"], item["text"]) for item in found]

    def posted(self) -> list[Any]:
        return [item for body in self.hook.messages for item in json.loads(body)["items"]]

    def has_sent(self, count: int) -> bool:
        return len(self.phoned()) == len(self.posted()) == count


@pytest.fixture
def story() -> Iterator[PriceStory]:
    story = PriceStory()
    with ExitStack() as stack:
        story.site = stack.enter_context(serving(story.answer))
        story.phone, story.hook = stack.enter_context(open_hook()), stack.enter_context(open_hook())
        yield story


@pytest.fixture
def project(tmp_path: Path, story: PriceStory) -> Project:
    project = Project(tmp_path, is_quick=True)
    project.save("config.toml", CONFIG.format(phone=story.phone.url))
    return project


def test_each_change_of_a_price_reaches_a_phone_and_a_webhook_with_both_values_also_over_a_kill(
    project: Project, story: PriceStory
) -> None:
    tried = project.spyweb("try", f"{story.site}/shop", ".item", "title:h2", "price:.price")
    assert tried.stdout.splitlines()[1].split() == ["Lamp", "30.99", "€"]
    project.save("jobs/shop/config.toml", SHOP.format(site=story.site, hook=story.hook.url))
    project.spyweb("check")

    steps = [("30.99 €", "24.99 €"), ("24.99 €", "30.99 €"), ("30.99 €", "24.99 €")]
    with project.daemon() as daemon:
        project.ended("shop", 2)
        assert (story.phoned(), story.posted()) == ([], []), "the first cycle is silent"
        for number, (_, price) in enumerate(steps[:2], 1):
            story.prices["Lamp"] = price
            eventually(partial(story.has_sent, number), f"message {number}")
        daemon.kill()
    story.prices["Lamp"] = steps[2][1]
    with project.daemon():
        eventually(partial(story.has_sent, 3), "the change while no daemon ran")
        story.prices["Chair"] = "7 €"
        eventually(partial(story.has_sent, 4), "the new item")
        shown = project.spyweb("records", "shop", "-n", "5").stdout.splitlines()
        records = project.ask("records")
        assert project.daemon_client().incidents(is_open=None, limit=10) == []

    link = f"{story.site}/Lamp"
    assert story.phoned() == [
        *[(f"Lamp: price {old} → {new}", link) for old, new in steps],
        ("Shop: Chair: price 7 €", f"{story.site}/Chair"),
    ]
    places = {"keywords": [], "page_url": f"{story.site}/shop"}
    chair = {"title": "Chair", "price": "7 €", "link": f"{story.site}/Chair"}
    assert story.posted() == [
        *[
            {
                "change": "changed",
                "fields": {"title": "Lamp", "price": new, "link": link},
                "old": {"price": old},
                "link": link,
                **places,
            }
            for old, new in steps
        ],
        {"change": "new", "fields": chair, "link": chair["link"], **places},
    ]
    assert [record["old"] for record in records] == [{}, *({"price": old} for old, _ in reversed(steps)), {}, {}]
    assert ["30.99 € → 24.99 €" in line for line in shown] == [False, False, True, False, True, False]


def test_a_channel_that_is_not_there_is_found_by_check_and_the_daemon_keeps_the_version_before(
    project: Project, story: PriceStory
) -> None:
    settings = SHOP.format(site=story.site, hook=story.hook.url)
    project.save("jobs/shop/config.toml", settings)
    with project.daemon() as daemon:
        project.ended("shop", 1)
        project.save("jobs/shop/config.toml", settings.replace('to = ["phone"]', 'to = ["phon"]'))
        problem = """jobs/shop/config.toml:7: to: no channel "phon"; did you mean "phone"?"""
        eventually(lambda: 'no channel \\"phon\\"' in daemon.said(), "a line in the log")
        assert problem in " ".join(project.spyweb("jobs").stdout.split())
        found = project.spyweb("check", code=1)
        assert 'no channel "phon"; did you mean "phone"?' in found.stdout
        story.prices["Lamp"] = "1 €"
        eventually(lambda: [title for title, _ in story.phoned()] == ["Lamp: price 30.99 € → 1 €"], "the older version")
