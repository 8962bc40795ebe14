"""Signing in and out in a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import PHONE, WIDE, Tab
from tests.browser.conftest import _tab as opened
from tests.fakes.project import Project

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A daemon that lets in whoever has a key."""

    origin: str
    project: Project
    token: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Guarded]:
    project = Project(tmp_path_factory.mktemp("guarded"))
    project.job("prices", "return 1")
    token = project.spyweb("keys", "add", "phone", "--scope", "run").stdout.strip()
    with project.daemon() as daemon:
        found = re.search(r'"url": "(http://[^"]+)"', daemon.said())
        assert found
        yield Guarded(found[1], project, token)


@pytest_asyncio.fixture(loop_scope="session", params=["wide", "phone", "plain"])
async def guarded_tab(request: pytest.FixtureRequest, chromium: Browser, guarded: Guarded) -> AsyncIterator[Tab]:
    size = PHONE if request.param == "phone" else WIDE
    scheme = "dark" if request.param == "phone" else "light"
    has_script = request.param != "plain"
    context = await chromium.new_context(viewport=size, color_scheme=scheme, java_script_enabled=has_script)  # type: ignore[arg-type]
    async for tab in opened(context, guarded.origin):
        tab.expected = "401"  # the browser tells of the status of the page itself
        yield tab


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_role("textbox", name="Key").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_key_signs_in_acts_and_signs_out(guarded_tab: Tab, guarded: Guarded) -> None:
    page = await guarded_tab.open("/jobs/prices")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Sign in to")

    await sign_in(page, "of somebody else")
    await expect(page.locator("#wrong")).to_contain_text("This key is not known here")
    await sign_in(page, guarded.token)

    await expect(page.get_by_role("heading", level=1)).to_contain_text("prices")
    assert page.url.endswith("/jobs/prices")
    before = len(guarded.project.runs("prices"))
    await page.get_by_role("button", name="Run now").click()
    guarded.project.ended("prices", before + 1)
    lines = guarded.project.ask("keys", "audit")
    assert ("phone", "session") in {(line["who"], line["source"]) for line in lines}

    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("textbox", name="Key")).to_be_visible()
    await guarded_tab.open("/")
    await expect(page.get_by_role("textbox", name="Key")).to_be_visible()


async def test_everybody_can_read_the_form(guarded_tab: Tab) -> None:
    page = await guarded_tab.open("/sign-in")
    if await page.evaluate("matchMedia('(scripting: enabled)').matches"):
        assert await guarded_tab.violations() == []
    wide, room = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room
