"""Keys in a real browser: what the session of the first one may."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.fakes.browser import Tab, opened
from tests.fakes.project import Project

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(params=["script", "no script"])
def keyless(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, bool, Project]]:
    """Where a daemon without any key answers, whether the browser runs scripts, and the project."""
    project = Project(tmp_path_factory.mktemp("keyless"))
    project.job("prices", 'store_set("seen", "1")')
    with project.daemon() as daemon:
        project.result("prices")
        yield daemon.url, request.param == "script", project


@pytest_asyncio.fixture(loop_scope="session")
async def owner(chromium: Browser, keyless: tuple[str, bool, Project]) -> AsyncIterator[Tab]:
    origin, has_script, _ = keyless
    async with opened(chromium, origin, java_script_enabled=has_script) as tab:
        tab.expected = "40"  # the browser tells of the status 401 or 403 of a page itself
        yield tab


async def make_key(page: Page, own: str, name: str, scope: str, jobs: str = "") -> str:
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Right").select_option(scope)
    await page.get_by_label(re.compile(r"Jobs \(patterns")).fill(jobs)
    await page.get_by_label("Your key, again").fill(own)
    await page.get_by_role("button", name="Add key").click()
    await expect(page.locator("#token")).to_be_visible()
    return await page.locator("#token").inner_text()


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_role("textbox", name="Key", exact=True).fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible()


async def test_from_the_first_key_to_one_that_is_revoked(owner: Tab, keyless: tuple[str, bool, Project]) -> None:
    _, has_script, project = keyless
    page = await owner.open("/keys")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("No key yet")
    assert await page.get_by_role("button", name="Add key").count() == 0
    assert not has_script or await owner.violations() == []
    admin = project.spyweb("keys", "add", "anna", "--scope", "admin").stdout.strip()
    if not has_script:  # with one, the page asks for a key by itself
        await owner.open("/keys")
    await page.get_by_role("textbox", name="Key", exact=True).fill("another one")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#wrong")).to_contain_text("Unknown key")
    assert not has_script or await owner.violations() == []
    await sign_in(page, admin)
    await expect(page).to_have_url(re.compile("/keys$"))
    await expect(page.get_by_role("group", name="Keys, table")).to_contain_text("anna")
    assert admin not in await page.content()
    reader = await make_key(page, admin, "bob", "read", "prices")

    await page.get_by_role("button", name="Sign out").click()
    await sign_in(page, reader)
    await owner.open("/keys")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not permitted")
    await owner.open("/state?key=seen&namespace=job:prices")
    await expect(page.locator("pre").first).to_have_text("1")
    assert await page.get_by_role("button", name=re.compile("Save|Delete|Break|Add")).count() == 0
    assert not has_script or await owner.violations() == []

    await page.get_by_role("button", name="Sign out").click()
    await sign_in(page, admin)
    await owner.open("/keys")
    await expect(page.locator("#audit")).to_contain_text("POST /keysbob")
    await page.get_by_role("row", name=re.compile("bob")).get_by_role("button", name="Revoke").click()
    await page.get_by_role("button", name="Revoke the key").click()
    await expect(page.get_by_role("group", name="Keys, table")).not_to_contain_text("bob")
    await expect(page.locator("#audit")).to_contain_text("revoke")
