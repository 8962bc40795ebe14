"""The pages of a job and of its runs in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from spyweb.model import Outcome
from tests.fakes.browser import Tab
from tests.fakes.project import Project, eventually

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


async def test_a_button_is_busy_while_it_works_and_works_once(tab: Tab, project: Project) -> None:
    page = await tab.open("/jobs/talker")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    button = page.get_by_role("button", name="Run now")
    await button.focus()
    await button.evaluate("(node) => { node.click(); node.click(); return node.getAttribute('aria-disabled') }")
    await expect(page.locator("#started")).to_contain_text("was requested")
    await expect(button).not_to_have_attribute("aria-disabled", "true")
    await expect(button).to_be_focused()
    assert len(sent) == 1


async def test_an_error_that_has_ended_leaves_no_card(tab: Tab, project: Project) -> None:
    project.job("flip", 'if global_store_incr("flips", 0, 1) == 1 then error("out") end', 'every = "never"')
    eventually(lambda: "flip" in {job.id for job in project.daemon_client().jobs()}, "the job")
    project.result("flip")
    page = await tab.open("/jobs/flip")
    await expect(page.locator("#job-why")).to_contain_text("out")
    project.result("flip")
    await expect(page.locator("#job-why")).to_be_hidden()
    await tab.page.goto("about:blank")
    (project.root / "jobs/flip.lua").unlink()
    eventually(lambda: "flip" not in {job.id for job in project.daemon_client().jobs()}, "its end")


async def test_a_job_is_paused_and_resumed(tab: Tab, project: Project) -> None:
    page = await tab.open("/jobs/夜間バックアップ")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("夜間バックアップ: paused")
    assert project.shown("夜間バックアップ").state.value == "paused"
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert project.shown("夜間バックアップ").state.value != "paused"


async def test_it_works_without_javascript(plain: Tab, project: Project) -> None:
    plain.expected = "422"
    page = await plain.open("/jobs/prices")
    before = len(project.runs("prices"))
    await page.get_by_role("button", name="Run now").click()
    project.ended("prices", before + 1)
    await expect(page.locator("#started")).to_contain_text("was requested")
    await page.get_by_text("Run with values or a payload").click()
    await page.get_by_label("Payload").fill("[1")
    await page.get_by_role("button", name="Start run").click()
    await expect(page.get_by_role("alert").filter(has_text="Payload: it is not JSON")).to_be_visible()
    await page.get_by_label("Payload").fill("[1]")
    await page.get_by_role("button", name="Start run").click()
    project.ended("prices", before + 2)
    assert project.runs("prices")[0].trigger.payload == [1]
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
    long = "x" * 100
    project.job("long", f'error("{long}")', f'name = "{long}"\nevery = "never"')
    eventually(lambda: long in {job.id for job in project.daemon_client().jobs()}, "the job")
    project.result(long)
    for path in ("/", "/jobs/backup", f"/jobs/{long}", "/runs", f"/runs/{project.runs(long)[0].id}"):
        page = await phone.open(path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert await phone.violations() == [], path
    await phone.page.goto("about:blank")
    (project.root / "jobs/long.lua").unlink()
    eventually(lambda: long not in {job.id for job in project.daemon_client().jobs()}, "its end")


SHIP = """
local name = "announce_" .. ("to_everybody_"):rep(9)
local function wait(file) while not fs_read(file) do sleep(20) end end
task("build"):command(function() wait("build.txt") return true, "built", {file = "site.tar"} end)
task("upload"):depends_on("build"):command(function()
  wait("upload.txt") return fs_read("bucket.txt") ~= nil, "bucket answers 503"
end)
task(name):depends_on("upload"):command(function() end)
workflow.define("ship"):tasks{"build", "upload", name}
"""


async def test_a_failed_run_with_tasks_shows_its_plan_and_is_retried_from_it(
    tab: Tab, phone: Tab, plain: Tab, project: Project
) -> None:
    project.job("ship", SHIP)
    eventually(lambda: "ship" in {job.id for job in project.daemon_client().jobs()}, "the job")
    project.spyweb("trigger", "ship")
    path = f"/runs/{project.runs('ship')[0].id}"
    eventually(lambda: project.daemon_client().ask("GET", f"/api{path}", dict)["plan"], "its plan")
    page = await tab.open(path)
    await expect(page.get_by_role("list", name="Level 1")).to_contain_text("pending")
    project.save("jobs/ship/build.txt", "")
    await expect(page.get_by_role("list", name="Level 1")).to_contain_text("succeeded")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Running")
    project.save("jobs/ship/upload.txt", "")
    project.ended("ship")
    await expect(page.locator(".levels > li")).to_have_count(3)
    await expect(page.get_by_role("list", name="Level 2")).to_have_text(
        re.compile("upload.*failed.*bucket answers 503.*after build", re.S)
    )
    await expect(page.locator(".waterfall").first).to_contain_text("skipped: stopped after upload")
    assert await tab.violations() == []
    await phone.open(path)
    assert await phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await phone.violations() == []

    await page.get_by_role("button", name="Retry from upload").click()
    await expect(page.locator(".levels")).to_contain_text("succeeded, taken over from run")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Failed after")

    project.save("jobs/ship/bucket.txt", "")
    project.job("ship", SHIP + "-- another version\n")
    eventually(lambda: project.shown("ship").generation == 2, "the new version")
    page = await plain.open(f"/runs/{project.ended('ship', 2)[0].id}")
    await page.get_by_role("button", name="Retry from upload").click()
    await expect(page.locator("main")).to_contain_text("jobs/ship.lua changed since this run.")
    await page.get_by_role("button", name="Retry anyway").click()
    assert project.ended("ship", 3)[0].outcome is Outcome.SUCCESS
    await plain.open("/jobs/ship")
    await expect(plain.page.locator(".levels")).to_contain_text("taken over from run")
    await plain.page.goto("about:blank")
    (project.root / "jobs/ship.lua").unlink()
    eventually(lambda: "ship" not in {job.id for job in project.daemon_client().jobs()}, "its end")
