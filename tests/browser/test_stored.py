"""The pages about what runs when, what is stored and what happens, in a real browser before a real daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.fakes.browser import PHONE, Tab, opened
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]

PAGES = ("/when", "/when/audit", "/records", "/state", "/events", "/outbox", "/health", "/keys", "/api/docs")
MORE_OF_THE_SAME = "main .stack > article:nth-of-type(n+3)"  # addresses and types beyond the first of each subject
CONFIG = """
[state]
history = { "scope:billing" = 20 }
[[maintenance]]
cron = "0 3 * * sun"
duration = "2h"
jobs = ["night_*"]
text = "weekly <b>"
[channels.ops]
webhook = "http://127.0.0.1:9/hook"
[alerts]
after_failures = 1
"""
FLAKY = """
local runs = (store_get("runs") or 0) + 1
store_set("runs", runs)
if runs == 1 then error("no space on <i>disk</i>") end
return "fine"
"""
KEEPER = """
state.set{scope="billing", key="since", value="monday"}
state.set{scope="billing", key="since", value="tuesday"}
return "stored"
"""
MONITOR = """
name = "Shop <i>"
url = "https://shop.example/"
selector = "article"
fields = ["title:h2", "price:.price"]
every = "never"
keywords = ["tea"]
search_fields = ["title"]
[webhook]
url = "http://127.0.0.1:9/hook"
"""
SHOP = """
function override_fetch(request)
  local out = {}
  for i = 1, 40 do
    out[#out + 1] = "<article><h2>tea no " .. i .. " &lt;b&gt;</h2><i class='price'>" .. i .. "</i></article>"
  end
  return { status = 200, url = request.url, body = "<html><body>" .. table.concat(out) .. "</body></html>" }
end
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """A daemon that has something to show on every page."""

    origin: str
    project: Project


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Filled]:
    project = Project(tmp_path_factory.mktemp("filled"))
    project.save("config.toml", CONFIG)
    for hour in range(3):
        project.job(f"night_{hour}", 'return "ok"', 'cron = "0 3 * * *"')
    project.job("keeper", KEEPER)
    project.job("holder", 'return state.with_lock("export", function() sleep(250000) end)')
    project.job("paused", "return 1", 'every = "1s"')
    project.job("flaky", FLAKY)
    project.save("jobs/shop/config.toml", MONITOR)
    project.save("jobs/shop/hooks.lua", SHOP)
    with project.daemon() as daemon:
        project.result("keeper")
        project.spyweb("trigger", "flaky")
        project.result("shop__i")
        project.spyweb("pause", "paused")
        project.spyweb("trigger", "holder")
        eventually(lambda: project.ask("state", "locks"), "a lock")
        yield Filled(daemon.url, project)


@pytest_asyncio.fixture(loop_scope="session")
async def wide(chromium: Browser, filled: Filled) -> AsyncIterator[Tab]:
    async with opened(chromium, filled.origin, reduced_motion="reduce") as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="session")
async def small(chromium: Browser, filled: Filled) -> AsyncIterator[Tab]:
    async with opened(chromium, filled.origin, PHONE, color_scheme="dark", has_touch=True) as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="session")
async def bare(chromium: Browser, filled: Filled) -> AsyncIterator[Tab]:
    """A browser without JavaScript."""
    async with opened(chromium, filled.origin, java_script_enabled=False) as tab:
        yield tab


@pytest.mark.parametrize("path", [*PAGES, "/state?namespace=scope:billing&key=since"])
async def test_everybody_can_read_it_on_a_desk_and_on_a_phone(wide: Tab, small: Tab, path: str) -> None:
    for tab in (wide, small):
        page = await tab.open(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert await tab.violations(MORE_OF_THE_SAME if path == "/api/docs" else None) == []
    assert await small.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


async def test_records_are_found_and_downloaded(wide: Tab, bare: Tab) -> None:
    for tab in (wide, bare):
        page = await tab.open("/records")
        await expect(page.get_by_role("heading", level=1)).to_have_text("40\N{NO-BREAK SPACE}records")
        assert await page.locator(".records > li").count() == 30
        await page.get_by_role("link", name="Older").click()
        assert await page.locator(".records > li").count() == 10
        await tab.open("/records")
        await page.get_by_role("searchbox").fill("NO 7 ")
        await page.get_by_role("button", name="Find").click()
        await expect(page.locator(".records > li")).to_have_count(1)
        await expect(page.locator(".records h3")).to_have_text("tea no 7 <b>")
        assert "q=NO" in page.url
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download as CSV").click()
    table = (await (await download.value).path()).read_text()
    assert table.splitlines()[1].split(",")[2:4] == ["tea no 7 <b>", "7"]


async def test_a_value_is_edited_brought_back_and_deleted(wide: Tab, bare: Tab, filled: Filled) -> None:
    for tab, key in ((wide, "wide"), (bare, "bare")):
        page = await tab.open("/state?namespace=scope:billing")
        await page.get_by_label("Key", exact=True).fill(key)
        await page.get_by_label("Value").fill("first")
        await page.get_by_role("button", name="Add").click()
        await expect(page.locator("#one-title")).to_have_text(key)

        await page.get_by_label("Value").fill("not a number")
        await page.get_by_label("Type").select_option("number")
        tab.expected = "422"  # the browser tells of the status of the page itself
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("#wrong")).to_have_text("the value is no number")
        await page.get_by_label("Value").fill("42")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("#past pre.diff").first).to_contain_text("+ 42")

        await page.get_by_role("button", name="Restore").click()
        if tab is wide:
            await expect(page.get_by_role("dialog")).to_contain_text("Restore version 1?")
        await page.get_by_role("button", name="Restore it").click()
        await expect(page.get_by_role("textbox", name="Value")).to_have_value("first")

        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Delete the key").click()
        await expect(page.get_by_role("link", name=key)).to_have_count(0)
        entries = filled.project.ask("state", "list", "--scope", "billing")
        assert key not in {entry["key"] for entry in entries}


async def test_values_change_while_somebody_looks_and_what_is_typed_stays(wide: Tab, filled: Filled) -> None:
    page = await wide.open("/state?namespace=scope:billing&key=since")
    await page.get_by_label("Value").fill("half a thou")
    filled.project.spyweb("state", "set", "--scope", "billing", "since", '"wednesday"')
    await expect(page.locator("#keys")).to_contain_text("wednesday")
    await expect(page.locator("#past pre.diff").first).to_contain_text("wednesday")
    await expect(page.get_by_label("Value")).to_have_value("half a thou")
    wide.expected = "422"
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#wrong")).to_contain_text("it was changed meanwhile")
    await expect(page.get_by_label("Value")).to_have_value("half a thou")


async def test_events_come_while_somebody_looks(wide: Tab, filled: Filled) -> None:
    page = await wide.open("/events?job=night_0")
    await expect(page.get_by_role("heading", level=2, name="No events yet")).to_be_visible()
    filled.project.result("night_0")
    await expect(page.locator(".events")).to_contain_text("succeeded")
    filled.project.result("night_1")
    await page.get_by_role("navigation", name="Types").get_by_text("Runs").click()
    await expect(page.locator(".events > li")).to_have_count(2)
    await expect(page.locator(".events")).not_to_contain_text("night_1")


async def test_an_incident_is_read_taken_care_of_and_over(wide: Tab, small: Tab, filled: Filled) -> None:
    eventually(lambda: filled.project.ask("alerts", "list"), "an incident")
    for path in ("/maintenance", "/channels", "/incidents/1", "/incidents"):
        for tab in (wide, small):
            page = await tab.open(path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert await tab.violations() == [], path
        assert await small.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    await expect(small.page.locator("#i-1")).to_contain_text("not acknowledged yet")
    await expect(small.page.locator("#i-1")).to_contain_text("no space on <i>disk</i>")

    await wide.page.locator("#i-1 a.name").click()
    await wide.page.get_by_label("Acknowledged by").fill("Anna <b>")
    await wide.page.keyboard.press("Enter")
    await expect(wide.page.get_by_role("button", name="Acknowledge", exact=True)).to_have_count(0)
    await expect(wide.page.locator(".history")).to_contain_text("acknowledged by Anna <b>")
    await expect(small.page.locator("#i-1")).to_contain_text("acknowledged by Anna <b>")
    await expect(small.page.locator("#count-incidents")).to_have_text("1")

    filled.project.spyweb("trigger", "flaky")
    await expect(small.page.get_by_role("heading", level=1)).to_have_text("No incident is open")
    await expect(small.page.locator("#count-incidents")).to_have_text("")
    await expect(wide.page.get_by_role("heading", level=1)).to_contain_text("flaky: recovered after")


async def test_several_are_acknowledged_and_maintenance_begins_without_a_script(
    chromium: Browser, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    project.save("config.toml", "[alerts]\nafter_failures = 1\n")
    for number in range(3):
        project.job(f"down_{number}", 'error("no route")', 'tags = ["down"]')
    with project.daemon() as daemon:
        for number in range(3):
            project.spyweb("trigger", f"down_{number}")
        eventually(lambda: len(project.ask("alerts", "list")) == 3, "three incidents")
        async with opened(chromium, daemon.url, java_script_enabled=False) as tab:
            page = await tab.open("/incidents")
            for number in (0, 2):
                await page.get_by_label(f"Select down_{number}").check()
            await page.get_by_label("Your name").fill("Anna")
            await page.get_by_role("button", name="Acknowledge selected").click()
            await expect(page.get_by_text("acknowledged by Anna")).to_have_count(2)
            await page.get_by_role("button", name="Unacknowledge").first.click()
            await expect(page.get_by_text("acknowledged by Anna")).to_have_count(1)
            page = await tab.open("/maintenance")
            await page.get_by_role("textbox", name="Tags").fill("down")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Maintenance now")
            await page.get_by_role("button", name="End now").click()
            await expect(page.get_by_role("heading", level=1)).not_to_contain_text("Maintenance now")
