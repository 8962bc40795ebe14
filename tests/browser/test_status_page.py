"""The status page in a real browser: without a script, light and dark, on a phone, and what others write is text."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, expect

from tests.fakes.browser import PHONE, WIDE, opened
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]

EVIL = "<evil-x>x</evil-x>"
CONFIG = f"""
[status_page]
title = "{EVIL} status"
public = true
groups = [{{ name = "{EVIL} web", jobs = ["site", "evil-x*"] }}, {{ name = "Night", jobs = ["backup"] }}]
logo = "logo.svg"
style = "own.css"
[jobs.site.alerts]
after_failures = 1
"""


@pytest.fixture(scope="module")
def status_page(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[str]:
    """Where a page is served with an open incident that somebody has written about."""
    project = Project(tmp_path_factory.mktemp("status"))
    project.save("config.toml", CONFIG)
    project.save("logo.svg", '<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"/>')
    project.save("own.css", ".logo { width: 32px }")
    project.job("site", f'error("{EVIL}")')
    project.job("evil", "return { latency = 12 }", f'name = "{EVIL}"\nevery = "never"')
    project.job("backup", "return 1")
    with project.daemon() as daemon:
        for job in ("site", "evil_x_x__evil_x"):
            project.result(job)
        eventually(lambda: bool(project.ask("alerts", "list")), "an incident")
        project.spyweb("alerts", "note", "1", f"We know. {EVIL}", "--public")
        yield next(json.loads(line)["url"] for line in daemon.said().splitlines() if '"started"' in line)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE])
async def test_it_is_accessible_fits_and_shows_markup_as_text(
    chromium: Browser, status_page: str, scheme: str, viewport: dict[str, int]
) -> None:
    async with opened(chromium, status_page, viewport, color_scheme=scheme) as tab:
        page = await tab.open("/status")
        assert page.url == f"{status_page}/status/"
        await expect(page.get_by_role("heading", level=1)).to_have_text("1 of 3 services down")
        await expect(page.get_by_text("We know. <evil-x>x</evil-x>")).to_be_visible()
        assert await page.locator("evil-x").count() == 0
        assert await tab.violations() == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.locator(".logo").evaluate("logo => logo.width") == 32
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 21)"
        assert dark == (scheme == "dark")


async def test_it_is_whole_without_a_script_and_its_badge_is_a_picture(chromium: Browser, status_page: str) -> None:
    async with opened(chromium, status_page, java_script_enabled=False) as tab:
        page = await tab.open("/status/")
        assert await page.locator("script").count() == 0
        for heading in ("Now", "Night", "Past 14 days"):
            await expect(page.get_by_role("heading", name=heading)).to_be_visible()
        await expect(page.get_by_role("img", name="1 day known, 1 day with outages")).to_be_visible()
        badge = await tab.open("/status/backup.svg")
        await expect(badge.get_by_role("img", name="backup: Unknown")).to_be_visible()
