"""A link holds as it was made: for one incident, one channel, and seven days."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs, urlsplit

import pytest

from spyweb.alerts.delivery import LIFE_MS, AckLinks
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.memory_store import MemoryStore

CHANNELS = {name: AlertChannelSettings(name=name, webhook="https://example.org") for name in ("phone", "ops")}
SITE = "https://spyweb.example.org/sub"


async def make_links(public_url: str = SITE) -> AckLinks:
    links = AckLinks(public_url, lambda: AlertSettings(channels=CHANNELS))
    store = MemoryStore(FakeClock())
    store.execute("INSERT INTO link_key VALUES (1, ?)", b"k" * 32)
    await links.load(store.keys)
    return links


def parts_of(link: str) -> tuple[str, str, str]:
    found = parse_qs(urlsplit(link).query)
    return found["c"][0], found["e"][0], found["s"][0]


async def test_a_link_has_the_signature_that_the_reference_says() -> None:
    link = (await make_links()).ack_link(42, "phone", START_MS)
    channel, expires, signature = parts_of(link)
    assert link.startswith(f"{SITE}/a/42?")
    assert (channel, int(expires) * 1000) == ("phone", START_MS + LIFE_MS)
    digest = hmac.digest(b"k" * 32, f"ack|42|phone|{expires}".encode(), hashlib.sha256)[:16]
    assert signature == urlsafe_b64encode(digest).decode().rstrip("=")


async def test_it_holds_until_it_expires() -> None:
    links = await make_links()
    parts = parts_of(links.ack_link(42, "phone", START_MS))
    assert links.is_valid(42, *parts, START_MS)
    assert links.is_valid(42, *parts, START_MS + LIFE_MS - 1)
    assert not links.is_valid(42, *parts, START_MS + LIFE_MS)


@pytest.mark.parametrize("position", range(22))
async def test_no_character_of_the_signature_may_be_another(position: int) -> None:
    links = await make_links()
    channel, expires, signature = parts_of(links.ack_link(42, "phone", START_MS))
    other = "A" if signature[position] != "A" else "B"
    wrong = signature[:position] + other + signature[position + 1 :]
    assert not links.is_valid(42, channel, expires, wrong, START_MS)


async def test_it_is_of_one_incident_one_channel_and_one_moment() -> None:
    links = await make_links()
    channel, expires, signature = parts_of(links.ack_link(42, "phone", START_MS))
    assert not links.is_valid(43, channel, expires, signature, START_MS)
    assert not links.is_valid(42, "ops", expires, signature, START_MS)
    for other in (str(int(expires) + 1), f"0{expires}", f" {expires}", "", "x", "9" * 5_000, "\u0661"):
        assert not links.is_valid(42, channel, other, signature, START_MS), other
    for other in ("", signature + "=", signature * 2, "é\udc80"):
        assert not links.is_valid(42, channel, expires, other, START_MS), other


async def test_a_channel_that_is_gone_takes_its_links_with_it() -> None:
    links = await make_links()
    parts = parts_of(links.ack_link(42, "phone", START_MS))
    links.settings = AlertSettings
    assert not links.is_valid(42, *parts, START_MS)


async def test_without_an_address_there_are_no_links_and_none_holds() -> None:
    links, without = await make_links(), await make_links("")
    assert without.ack_link(42, "phone", START_MS) == ""
    assert not without.is_valid(42, *parts_of(links.ack_link(42, "phone", START_MS)), START_MS)


async def test_before_the_secret_is_loaded_nothing_holds() -> None:
    links = AckLinks(SITE, lambda: AlertSettings(channels=CHANNELS))
    assert links.ack_link(42, "phone", START_MS) == ""
    made_with_no_key = hmac.digest(b"", b"ack|42|phone|99999999999", hashlib.sha256)[:16]
    signature = urlsafe_b64encode(made_with_no_key).decode().rstrip("=")
    assert not links.is_valid(42, "phone", "99999999999", signature, START_MS)
