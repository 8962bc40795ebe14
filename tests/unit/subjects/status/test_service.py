"""The status page is made at most once a second, shows what it may, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from structlog.testing import capture_logs

from spyweb.errors import Absent, NoAccess, StoreError
from spyweb.files import replace_all
from spyweb.incidents.truth import Removed
from spyweb.model import MIB
from spyweb.settings.sections import StatusPageSettings
from spyweb.settings.units import DAY_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once
from spyweb.subjects.status.service import AGAIN_S, HTML, JSON, REST, StatusService, words_of
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import AT_MS, happen
from tests.fakes.status import DATABASE, MARK, SITE, FakeUptimes, fail_with, make_status

ATOM = "{http://www.w3.org/2005/Atom}"


async def contents(status: StatusService) -> dict[str, bytes]:
    return {name: served.content for name, served in (await status.files()).items()}


async def test_a_marked_secret_is_in_no_file_and_in_no_name_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: f"host-{MARK}")
    _, status = await make_status(tmp_path)
    files = await status.files()
    names = {HTML, "status.json", "feed.xml", "shop.svg", "database.svg", "page.logo.svg", "page.own.css"}
    assert names <= files.keys()
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
    assert (group["name"], view["title"], view["words"]) == ("Web", "Example <status>", "1 of 2 services down")
    assert {name: job["state"] for name, job in jobs.items()} == {"Database": "down", "Our shop": "troubled"}
    shop = jobs["Our shop"]
    assert (round(shop["latency_ms"]), shop["uptime"]) == (181, {"24h": 0.95833, "30d": 1.0, "90d": 0.98571})
    assert (len(shop["days"]), shop["days"][0], shop["days"][30], shop["days"][31]) == (90, None, 0.0, 1.0)
    (incident,) = view["incidents"]
    assert (incident["name"], incident["is_down"], incident["closed_ms"]) == ("Our shop", True, None)
    assert [note["text"] for note in incident["notes"]] == ["We <b>know</b>.\nSoon more."]
    assert [(each["start_ms"], each["jobs"]) for each in view["maintenance"]] == [(AT_MS + DAY_MS, ["Our shop"])]
    page = files[HTML].decode()
    assert "Example &lt;status&gt;: 1 of 2 services down</title>" in page
    assert "We &lt;b&gt;know&lt;/b&gt;." in page
    assert "70 days known, 1 day with outages" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "<script" not in page


async def test_the_feed_has_an_entry_an_incident_whose_id_stays(tmp_path: Path) -> None:
    service, status = await make_status(tmp_path)

    async def entries() -> list[tuple[str | None, str | None]]:
        feed = ElementTree.fromstring((await contents(status))["feed.xml"])
        return [(each.findtext(f"{ATOM}id"), each.findtext(f"{ATOM}title")) for each in feed.iter(f"{ATOM}entry")]

    ((key, title),) = await entries()
    assert title == "Our shop: down"
    await happen(service.stored_incidents, SITE, Removed())
    await fail_with(service, DATABASE)
    clock = service.clock
    assert isinstance(clock, FakeClock)
    await clock.turn(AGAIN_S)
    assert [title for _, title in await entries()] == ["Database: down", "Our shop: down, over"]
    assert (await entries())[1][0] == key


async def test_it_is_made_once_a_second_at_most(tmp_path: Path) -> None:
    service, status = await make_status(tmp_path)
    uptimes, clock = service.store.uptime, service.clock
    assert isinstance(uptimes, FakeUptimes)
    assert isinstance(clock, FakeClock)
    first, *others = await asyncio.gather(*(status.files() for _ in range(100)))
    assert all(each is first for each in others)
    assert uptimes.reads == 1
    await fail_with(service, DATABASE)
    assert await status.files() is first
    await clock.turn(AGAIN_S)
    second = await status.files()
    assert second is not first
    assert second["shop.svg"].tag == first["shop.svg"].tag
    assert uptimes.reads == 2


async def test_a_page_that_takes_long_is_made_for_a_fifth_of_the_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, status = await make_status(tmp_path)
    clock, look = status.clock, StatusService.look
    assert isinstance(clock, FakeClock)

    async def slowly(status: StatusService, page: StatusPageSettings) -> dict[str, object]:
        await clock.turn(10)
        return await look(status, page)

    monkeypatch.setattr(StatusService, "look", slowly)
    first = await status.files()
    await clock.turn(REST * 10 - 1)
    assert await status.files() is first
    await clock.turn(1)
    assert await status.files() is not first


async def test_what_is_not_on_the_page_takes_no_place_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for most in ("MOST_JOBS", "MOST_INCIDENTS", "MOST_WINDOWS"):
        monkeypatch.setattr(f"spyweb.subjects.status.service.{most}", 1)
    groups = '[{ name = "Web", jobs = ["shop"] }, { name = "All", jobs = ["*"] }]'
    service, status = await make_status(tmp_path, f"[status_page]\ngroups = {groups}")
    await happen(service.stored_incidents, SITE, Removed())
    await fail_with(service, DATABASE)
    await happen(service.stored_incidents, DATABASE, Removed())
    other = MaintenanceRule(Once(AT_MS, AT_MS + 1), (DATABASE,), "", (), frozenset({DATABASE}), 8, "")
    rules = [other, *status.maintenance().rules]
    status.maintenance = lambda: MaintenanceCalendar(rules)
    view = json.loads((await contents(status))["status.json"])
    assert [(group["name"], len(group["jobs"])) for group in view["groups"]] == [("Web", 1)]
    assert [each["name"] for each in view["incidents"]] == ["Our shop"]
    assert [each["start_ms"] for each in view["maintenance"]] == [AT_MS + DAY_MS]


async def test_a_store_that_refuses_leaves_the_page_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, status = await make_status(tmp_path)
    before, clock = await status.files(), service.clock
    assert isinstance(clock, FakeClock)

    def refuse(*_: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(FakeUptimes, "read", refuse)
    await clock.turn(AGAIN_S)
    with capture_logs() as logs:
        assert await status.files() is before
    assert [each["event"] for each in logs] == ["the status page is as before"]


async def test_files_of_the_project_that_are_missing_or_large_are_left_out(tmp_path: Path) -> None:
    _, status = await make_status(tmp_path)
    (tmp_path / MARK / "logo.svg").unlink()
    (tmp_path / MARK / "own.css").write_bytes(bytes(MIB + 1))
    files = await contents(status)
    assert {"page.logo.svg", "page.own.css"}.isdisjoint(files)
    assert b"page.logo" not in files[HTML]


async def test_without_settings_there_is_no_page(tmp_path: Path) -> None:
    _, status = await make_status(tmp_path, "")
    with pytest.raises(Absent, match=r"config.toml has no \[status_page\]"):
        await status.files()
    await status.export()


async def test_a_folder_that_can_not_be_written_is_said_until_it_can(tmp_path: Path) -> None:
    _, status = await make_status(tmp_path)
    (tmp_path / MARK / "out").write_text("a file")
    for _ in range(2):
        with pytest.raises(NoAccess, match="File exists"):
            await status.export()
    (tmp_path / MARK / "out").unlink()
    await status.export()
    assert (tmp_path / MARK / "out" / HTML).exists()


async def test_an_export_replaces_what_has_changed_and_removes_what_only_an_earlier_one_wrote(tmp_path: Path) -> None:
    _, status = await make_status(tmp_path)
    files, folder = await contents(status), tmp_path / "out"
    (tmp_path / HTML).write_text("not spyweb's")
    with pytest.raises(FileExistsError, match=f"{HTML} is there already, and spyweb has not written it"):
        replace_all(tmp_path, files, JSON)
    assert (tmp_path / HTML).read_text() == "not spyweb's"
    replace_all(folder, files, JSON)
    (folder / "mine.svg").write_text("not spyweb's")
    (folder / "shop.svg").write_text("broken")
    kept = (folder / "feed.xml").stat().st_ino
    replace_all(folder, files, JSON)
    assert (folder / "shop.svg").read_bytes() == files["shop.svg"]
    assert (folder / "feed.xml").stat().st_ino == kept
    later = {name: files[name] for name in files.keys() - {"shop.svg", "page.logo.svg"}}
    later[JSON] = json.dumps({"files": [*later]}).encode()
    replace_all(folder, later, JSON)
    assert {path.name for path in folder.iterdir()} == later.keys() | {"mine.svg"}
    (tmp_path / "private").write_text("not spyweb's")
    for forged in (b"[", b'{"files": 1}', json.dumps({"files": ["../private", "..", "", "a\0b"]}).encode()):
        (folder / JSON).write_bytes(forged)
        with pytest.raises(FileExistsError):
            replace_all(folder, later, JSON)
    assert {path.name for path in (*folder.iterdir(), *tmp_path.glob("priv*"))} == {*later, "mine.svg", "private"}


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["up", "up"], ("up", "Everything is up")),
        (["up", "unknown"], ("up", "1 of 2 services up")),
        (["unknown"], ("unknown", "Nothing is known yet")),
        ([], ("unknown", "Nothing is known yet")),
        (["up", "troubled", "maintenance"], ("troubled", "1 of 3 services with a problem")),
        (["up", "maintenance"], ("maintenance", "1 of 2 services in maintenance")),
        (["down", "down"], ("down", "2 of 2 services down")),
    ],
)
def test_the_page_says_the_gravest_state(states: list[str], words: tuple[str, str]) -> None:
    assert words_of(states) == words
