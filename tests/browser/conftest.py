"""A real browser before a real daemon: one of each for all tests, and a context of its own for each test.

Tests are skipped where there is no chromium.  No test of a page passes while the browser has something to complain
about, or asks for anything elsewhere.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright

from tests.fakes.project import Project

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

KEY = "a key that nobody guesses"

JOBS = {
    "prices": ('every = "never"\ntags = ["home"]', 'log("3 prices")\nreturn "3 prices"'),
    "backup": ('name = "Backup"\nevery = "never"', 'error("repository is locked")'),
    "report": ('after = ["backup"]', 'return "sent"'),
    "nightly": ('name = "夜間バックアップ"\ncron = "0 3 * * *"', 'return "done"'),
    "nightly_live": ('every = "never"', 'return "done live"'),
    "sleeper": ('every = "never"', "sleep(60000)"),
    "talker": ('every = "never"', 'log("<i>markup</i>")\nlog("the second line")\nreturn "said it"'),
    "hostile": ('name = "<b>hostile</b>"\nevery = "never"', 'return "<script>alert(1)</script>"'),
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium here: apt-get install --no-install-recommends chromium fonts-noto-cjk")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with one job of each kind."""
    project = Project(tmp_path_factory.mktemp("dashboard"))
    for name, (settings, body) in JOBS.items():
        project.job(name, body, settings)
    return project


@pytest.fixture(scope="session")
def origin(project: Project, chromium: Browser) -> Iterator[str]:
    """Where a daemon serves it, in which `prices` has succeeded and `backup` has failed twice."""
    with project.daemon() as daemon:
        for job in ("prices", "backup", "backup", "b_hostile__b"):
            project.result(job)
        found = re.search(r'"url": "(http://[^"]+)"', daemon.said())
        assert found
        yield found[1]


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[str]:
    """Where a daemon serves one job to those who have a key."""
    project = Project(tmp_path_factory.mktemp("locked"))
    project.environment["SPYWEB_API_KEY"] = KEY
    project.job("prices", 'return "3 prices"')
    with project.daemon() as daemon:
        found = re.search(r'"url": "(http://[^"]+)"', daemon.said())
        assert found
        yield found[1]


@dataclass  # without slots: playwright keeps its wrappers of bound methods in the object
class Tab:
    """A page of the dashboard, and what the browser has to say about it."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    expected: str = ""  # a complaint that a test causes on purpose

    async def open(self, path: str = "/") -> Page:
        await self.page.goto(self.origin + path)
        return self.page

    async def violations(self) -> list[str]:
        found = await Axe().run(self.page)
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found.response["violations"]]

    def listen(self) -> None:
        self.page.on("console", self._complain)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))

    def _complain(self, message: ConsoleMessage) -> None:
        if not (self.expected and self.expected in message.text):
            self.complaints.append(message.text)

    def _note(self, url: str) -> None:
        if not url.startswith(self.origin + "/"):
            self.elsewhere.append(url)


async def _tab(context: BrowserContext, origin: str) -> AsyncIterator[Tab]:
    tab = Tab(await context.new_page(), origin)
    tab.listen()
    yield tab
    await context.close()
    assert tab.complaints == []
    assert tab.elsewhere == []


@pytest_asyncio.fixture(loop_scope="session")
async def tab(chromium: Browser, origin: str) -> AsyncIterator[Tab]:
    context = await chromium.new_context(viewport=WIDE, timezone_id="Asia/Tokyo", reduced_motion="reduce")  # type: ignore[arg-type]
    async for each in _tab(context, origin):
        yield each


@pytest_asyncio.fixture(loop_scope="session")
async def phone(chromium: Browser, origin: str) -> AsyncIterator[Tab]:
    context = await chromium.new_context(viewport=PHONE, color_scheme="dark", has_touch=True)  # type: ignore[arg-type]
    async for each in _tab(context, origin):
        yield each


@pytest_asyncio.fixture(loop_scope="session")
async def plain(chromium: Browser, origin: str) -> AsyncIterator[Tab]:
    """A browser without JavaScript."""
    context = await chromium.new_context(viewport=WIDE, java_script_enabled=False)  # type: ignore[arg-type]
    async for each in _tab(context, origin):
        yield each


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(chromium: Browser, locked: str) -> AsyncIterator[Tab]:
    """A browser that has not signed in; that it is told so is no complaint."""
    context = await chromium.new_context(viewport=WIDE)  # type: ignore[arg-type]
    async for each in _tab(context, locked):
        each.expected = "401"
        yield each
