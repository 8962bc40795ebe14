"""A real browser before a real daemon: one of each for all tests, and a tab of its own for each test.

Tests are skipped where there is no chromium.  No test of a page passes while the browser has something to complain
about, or asks for anything elsewhere.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.fakes.browser import PHONE, Tab, opened
from tests.fakes.project import Project

ONE_PROCESS = [
    "--renderer-process-limit=1",
    "--no-zygote",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--in-process-gpu",
]  # else each tab has a process of its own to start
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
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium here: apt-get install --no-install-recommends chromium-headless-shell fonts-noto-cjk")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ONE_PROCESS)
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
        yield daemon.url


@pytest_asyncio.fixture(loop_scope="session")
async def tab(chromium: Browser, origin: str) -> AsyncIterator[Tab]:
    async with opened(chromium, origin, timezone_id="Asia/Tokyo", reduced_motion="reduce") as each:
        yield each


@pytest_asyncio.fixture(loop_scope="session")
async def phone(chromium: Browser, origin: str) -> AsyncIterator[Tab]:
    async with opened(chromium, origin, PHONE, color_scheme="dark", has_touch=True) as each:
        yield each


@pytest_asyncio.fixture(loop_scope="session")
async def plain(chromium: Browser, origin: str) -> AsyncIterator[Tab]:
    """A browser without JavaScript."""
    async with opened(chromium, origin, java_script_enabled=False) as each:
        yield each
