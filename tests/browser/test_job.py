"""The pages of a job and of its runs in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.fakes.browser import Tab
from tests.fakes.project import Project

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]


async def test_it_says_why_it_fails_beside_its_source(tab: Tab) -> None:
    page = await tab.open("/jobs/backup")
    await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Backup: failing since \d\d:\d\d:\d\d"))
    why = page.locator("#job-why")
    await expect(why).to_contain_text("repository is locked")
    await expect(why.locator(".here")).to_contain_text('error("repository is locked")')
    assert await tab.violations() == []
    await why.locator(".here a").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("jobs/backup.lua")
    assert await tab.violations() == []


async def test_a_run_shows_while_somebody_looks_and_its_log_follows(tab: Tab, project: Project) -> None:
    page = await tab.open("/jobs/talker")
    await expect(page.locator("#log")).to_contain_text("Nothing logged yet")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator("#job-runs")).to_contain_text("said it")
    await expect(page.locator("#log-lines")).to_contain_text("the second line")
    await expect(page.locator("#log-lines")).to_contain_text("<i>markup</i>")
    assert await tab.violations() == []


async def test_a_job_is_paused_and_resumed(tab: Tab, project: Project) -> None:
    page = await tab.open("/jobs/夜間バックアップ")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("夜間バックアップ: paused")
    assert project.shown("夜間バックアップ").state.value == "paused"
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert project.shown("夜間バックアップ").state.value != "paused"


async def test_it_works_without_javascript(plain: Tab, project: Project) -> None:
    page = await plain.open("/jobs/prices")
    before = len(project.runs("prices"))
    await page.get_by_role("button", name="Run now").click()
    project.ended("prices", before + 1)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("prices")
    await page.get_by_role("link", name="7 d").click()
    assert page.url.endswith("/jobs/prices?span=7d")


async def test_a_dry_run_shows_what_it_would_do(tab: Tab) -> None:
    page = await tab.open("/jobs/talker")
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Succeeded after")
    await expect(page.locator("#log-lines")).to_contain_text("the second line")
    assert await tab.violations() == []
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("talker: ")


async def test_a_failed_run_leads_to_its_line(tab: Tab, project: Project) -> None:
    failed = project.runs("backup")[0]
    page = await tab.open(f"/runs/{failed.id}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Failed after"))
    await expect(page.locator(".source .here")).to_contain_text("repository is locked")
    assert await tab.violations() == []
    await page.get_by_role("link", name="Backup", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Backup: failing")


async def test_a_run_is_cancelled_once_its_question_is_answered(tab: Tab, project: Project) -> None:
    page = await tab.open("/jobs/sleeper")
    await page.get_by_role("button", name="Run now").click()
    await page.locator("#job-runs tbody a").first.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Running")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_contain_text("The run stops where it is")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    assert project.runs("sleeper")[0].outcome is None
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Cancelled")
    project.ended("sleeper")


async def test_a_run_is_cancelled_without_javascript(plain: Tab, project: Project) -> None:
    page = await plain.open("/jobs/sleeper")
    before = len(project.runs("sleeper"))
    await page.get_by_role("button", name="Run now").click()
    await page.locator("#job-runs tbody a").first.click()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel this run?")
    await page.get_by_role("button", name="Cancel the run").click()
    project.ended("sleeper", before + 1)


async def test_on_a_phone_nothing_is_too_wide(phone: Tab, project: Project) -> None:
    for path in ("/", "/jobs/backup", "/runs", f"/runs/{project.runs('backup')[0].id}"):
        page = await phone.open(path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert await phone.violations() == [], path
