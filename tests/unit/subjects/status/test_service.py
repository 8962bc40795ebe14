"""The status page is made at most once a second, shows what it may, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from spyweb.settings.units import DAY_MS
from spyweb.subjects.status.service import HTML, LATEST_S, SOONEST_S, StatusService, serving
from spyweb.web.app import Site
from tests.fakes.client import client_of, content_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import with_key
from tests.fakes.incidents import AT_MS
from tests.fakes.status import CONFIG, DATABASE, MARK, FakeUptimes, fail_with, make_status

KEY = "a key of at least 20 characters"


async def contents(status: StatusService) -> dict[str, bytes]:
    return {name: served.content for name, served in (await status.files()).items()}


async def test_a_marked_secret_is_in_no_file_and_in_no_name_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: f"host-{MARK}")
    _, status = await make_status(tmp_path)
    files = await status.files()
    assert files.keys() >= {
        HTML,
        "status.json",
        "feed.xml",
        "shop.svg",
        "database.svg",
        "page.logo.svg",
        "page.own.css",
    }
    for name, served in files.items():
        assert gzip.decompress(served.zipped) == served.content
        assert MARK.encode() not in served.content, name
        assert b"987654321" not in served.content
        assert MARK not in name + served.tag
    await status.export()
    written = {path.name: path.read_bytes() for path in (tmp_path / MARK / "out").iterdir()}
    assert written == {name: served.content for name, served in files.items()}


async def test_it_tells_names_states_shares_notes_and_times(tmp_path: Path) -> None:
    _, status = await make_status(tmp_path)
    files = await contents(status)
    view = json.loads(files["status.json"])
    (group,) = view["groups"]
    jobs = {job["name"]: job for job in group["jobs"]}
    assert (group["name"], view["title"], view["words"]) == ("Web", "Example <status>", "1 of 2 down")
    assert {name: job["state"] for name, job in jobs.items()} == {"Database": "down", "Our shop": "troubled"}
    shop = jobs["Our shop"]
    assert (round(shop["latency_ms"]), shop["uptime"]) == (181, {"24h": 0.95833, "30d": 1.0, "90d": 0.98571})
    assert (len(shop["days"]), shop["days"][0], shop["days"][30], shop["days"][31]) == (90, None, 0.0, 1.0)
    (incident,) = view["incidents"]
    assert (incident["name"], incident["is_down"], incident["closed_ms"]) == ("Our shop", True, None)
    assert [note["text"] for note in incident["notes"]] == ["We <b>know</b>.\nSoon more."]
    assert [(each["start_ms"], each["jobs"]) for each in view["maintenance"]] == [(AT_MS + DAY_MS, ["Our shop"])]
    page = files[HTML].decode()
    assert "Example &lt;status&gt;: 1 of 2 down</title>" in page
    assert "We &lt;b&gt;know&lt;/b&gt;." in page
    assert "70 days known, 1 day with outages" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "<script" not in page


async def test_it_is_made_once_a_second_at_most_and_only_when_something_has_changed(tmp_path: Path) -> None:
    service, status = await make_status(tmp_path)
    uptimes, clock = service.store.uptime, service.clock
    assert isinstance(uptimes, FakeUptimes)
    assert isinstance(clock, FakeClock)
    first, *others = await asyncio.gather(*(status.files() for _ in range(100)))
    assert all(each is first for each in others)
    assert uptimes.reads == 1
    await fail_with(service, DATABASE)
    assert await status.files() is first
    await clock.turn(SOONEST_S)
    second = await status.files()
    assert second is not first
    assert second["shop.svg"].tag == first["shop.svg"].tag
    await clock.turn(SOONEST_S)
    assert await status.files() is second
    await clock.turn(LATEST_S)
    await status.files()
    assert uptimes.reads == 3


@pytest.mark.parametrize(
    ("public", "key", "headers", "status"),
    [
        (True, "", {"Host": "x.example", "X-Forwarded-For": "192.0.2.1"}, 200),
        (True, KEY, {"X-SpyWeb-Key": "wrong"}, 200),
        (False, "", {}, 200),
        (False, "", {"X-Forwarded-For": "192.0.2.1"}, 403),
        (False, KEY, {"X-SpyWeb-Key": "wrong"}, 401),
        (False, KEY, {"X-SpyWeb-Key": KEY}, 200),
    ],
)
async def test_who_sees_it(tmp_path: Path, public: bool, key: str, headers: dict[str, str], status: int) -> None:
    service, page = await make_status(tmp_path, CONFIG if public else CONFIG.replace("public = true", ""))
    app = content_of(with_key(service, key or None), Site(answer_first=[serving(page)]))
    async with client_of(app) as client, client.get("/status/", headers=headers) as answer:
        assert (answer.status, MARK in await answer.text()) == (status, False)
