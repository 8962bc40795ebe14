"""The texts of a notification, and the payload of a webhook."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import Notification
from spyweb.monitor.items import Item
from spyweb.monitor.stages.announce import body_of, default_payload, fill, moment, title_of

LAMP = Item({"title": "Lamp", "price": "5"}, ("sale", "lamp"))
DESK = Item({"title": "Desk"}, ("sale",))
NAMES = ("title", "price")
BOTH = (LAMP, DESK)
TAGS = {
    "job_name": "Shop",
    "url": "http://shop.example/",
    "item_count": "2",
    "timestamp": moment(1_767_225_600_000, "Europe/Berlin"),
}


def test_every_tag_is_filled_in() -> None:
    template = "{job_name} {url} {item_count} {timestamp} {matches} {match_count} {title}"
    told = "Shop http://shop.example/ 2 2026-01-01T01:00:00+01:00 sale, lamp 2 Lamp"
    assert title_of(Notification(title=template), TAGS, NAMES, BOTH) == told


def test_the_body_is_filled_in_for_each_item() -> None:
    body = body_of(Notification(body="\n{title}: {price} ({matches})\n"), TAGS, NAMES, BOTH)
    assert body == "Lamp: 5 (sale, lamp)\nDesk:  (sale)"


def test_without_texts_of_its_own_it_says_how_many_and_the_first_field_of_each() -> None:
    assert title_of(Notification(), TAGS, NAMES, BOTH) == "Shop: 2 new"
    assert body_of(Notification(), TAGS, NAMES, BOTH) == "Lamp\nDesk"


def test_a_field_wins_over_a_tag_of_its_name() -> None:
    lamp = Item({"url": "http://shop.example/lamp"})
    assert body_of(Notification(body="{url}"), TAGS, NAMES, [lamp]) == "http://shop.example/lamp"


def test_many_items_are_cut_and_counted() -> None:
    assert body_of(Notification(), TAGS, NAMES, [LAMP] * 12).splitlines()[-2:] == ["Lamp", "… and 2 more"]


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_what_a_page_says_is_no_tag_and_an_unknown_tag_stays(text: str, tags: dict[str, str]) -> None:
    assert fill("{known}{unknown}", {**tags, "known": text, "unknown": "{unknown}"}) == text + "{unknown}"
    assert fill("{other}", {"known": text}) == "{other}"


def test_the_payload_has_flat_items_with_their_keywords() -> None:
    assert json.loads(default_payload("Shop", [LAMP])) == {
        "job_name": "Shop",
        "item_count": 1,
        "items": [{"title": "Lamp", "price": "5", "keywords": ["sale", "lamp"]}],
    }
