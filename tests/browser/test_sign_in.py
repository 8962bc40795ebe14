"""Signing in and out in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.fakes.browser import KEY, Tab

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_key_lets_in_and_signing_out_ends_it(stranger: Tab) -> None:
    page = await stranger.open("/jobs/prices")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Sign in")
    assert await stranger.violations() == []
    field = page.locator("input[name=key]")
    await field.fill("another one")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#wrong")).to_contain_text("This key is not known here")
    assert await stranger.violations() == []
    await field.fill(KEY)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("prices")
    assert page.url.endswith("/jobs/prices")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator("#job-runs")).to_contain_text("3 prices")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Sign in")
    await page.goto(stranger.origin + "/jobs/prices")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Sign in")
