"""A price is watched: from the command line to an alert channel, a webhook and the records, over a kill -9."""

from __future__ import annotations

import json
import shlex
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
from tests.fakes.repository import files_of, read

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
    pages: dict[str, str] = field(default_factory=dict)  # by path, beside the shop
    prices: dict[str, str] = field(default_factory=lambda: {"Lamp": "30.99 €", "Desk": "90 €"})

    def answer(self, arrived: Arrived) -> Answer:
        if arrived.path in self.pages:
            return Answer(200, {"Content-Type": "text/html; charset=utf-8"}, self.pages[arrived.path].encode())
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

    lamp, chair = f"{story.site}/Lamp", f"{story.site}/Chair"
    changes = [(f"Lamp: price {old} → {new}", lamp) for old, new in steps]
    assert story.phoned() == [*changes, ("Shop: Chair: price 7 €", chair)]
    last = json.loads(story.phone.messages[-1])["items"][0]
    assert (last["link"], last["page_url"], last["incident"]) == (chair, f"{story.site}/shop", None)
    changed = [entry("Lamp", new, lamp, story, change="changed", old={"price": old}) for old, new in steps]
    assert story.posted() == [*changed, entry("Chair", "7 €", chair, story, change="new")]
    assert [record["old"] for record in records] == [{}, *({"price": old} for old, _ in reversed(steps)), {}, {}]
    assert ["30.99 € → 24.99 €" in line for line in shown] == [False, False, True, False, True, False]


def entry(title: str, price: str, link: str, story: PriceStory, **change: object) -> dict[str, object]:
    fields = {"title": title, "price": price, "link": link}
    return {"fields": fields, "keywords": [], "page_url": f"{story.site}/shop", "link": link, **change}


LAMP = '<main><h1>Lamp</h1><b class="price">{}</b></main>'
NEWS = '<article class="item"><h2><a href="/{}">{}</a></h2></article>'
STORIES = {  # by how-to: the job, its page, what is on it one after the other, and what the phone is sent of that
    "watch-a-value": (
        "lamp",
        [LAMP.format("30.99 €"), LAMP.format("24.99 €"), LAMP.format("40 €"), LAMP.format("39 €")],
        [("Lamp: price 30.99 € → 24.99 €", "{site}/lamp"), ("Lamp: price 40 € → 39 €", "{site}/lamp")],
    ),
    "be-notified-of-new-items": (
        "articles",
        [NEWS.format(1, "A release"), NEWS.format(1, "A release") + NEWS.format(4, "Another release")],
        [("Articles: Another release", "{site}/4")],
    ),
}


@pytest.mark.parametrize("page", STORIES)
def test_a_how_to_works_as_it_stands_from_the_first_try_to_the_message(
    project: Project, story: PriceStory, page: str
) -> None:
    job, texts, expected = STORIES[page]
    path = f"docs/how-to/{page}.md"
    story.pages[f"/{job}"] = texts[0]
    (tried,) = (line for line in read(path).splitlines() if line.startswith("$ spyweb try"))
    _, _, *words = shlex.split(tried.replace("https://example.org", story.site))
    assert project.spyweb(*words).stdout.splitlines()[1].startswith(("Lamp   30.99 €", "A release  "))
    for name, text in files_of(path):
        project.save(name, text.replace("https://example.org", story.site))
    project.spyweb("check")

    with project.daemon():
        for number, text in enumerate(texts, 1):
            story.pages[f"/{job}"] = text
            if number > 1:
                project.spyweb("trigger", job)
            project.ended(job, number)
        sent = [(title, text.format(site=story.site)) for title, text in expected]
        eventually(lambda: len(story.phoned()) == len(sent), "the messages")
        assert story.phoned() == sent


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
