"""The dashboard of one node, where the jobs run on another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.fakes.browser import Tab, opened
from tests.fakes.cluster import Cluster, Member
from tests.fakes.postgres import fresh_schema
from tests.fakes.project import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[list[Member]]:
    with fresh_schema() as place:
        cluster = Cluster(place, tmp_path_factory.mktemp("nodes"), is_reachable=True)
        cluster.add("fra", "ber")
        at_ber = 'every = "never"\nnode = "ber"'
        cluster.job("talker", 'log.info("first")\nsleep(1500)\nlog.info("second")\nreturn "said it"', at_ber)
        cluster.job("sleeper", "sleep(60000)", at_ber)
        with cluster.running() as both:
            for member in both:
                member.until_settled()
            yield both


@pytest_asyncio.fixture(loop_scope="session")
async def tab(chromium: Browser, nodes: list[Member]) -> AsyncIterator[Tab]:
    """Open fra, which runs none of the jobs."""
    async with opened(chromium, nodes[0].daemon.url) as each:
        yield each


async def test_a_job_elsewhere_is_run_watched_and_paused_from_its_page(tab: Tab, nodes: list[Member]) -> None:
    page = await tab.open("/jobs/talker")
    await expect(page.locator("#job-head")).to_contain_text("Runs on node ber")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator("#started")).to_contain_text("was requested")
    await expect(page.locator("#log-lines")).to_contain_text("first")
    await expect(page.locator("#log-lines")).not_to_contain_text("second")
    await expect(page.locator("#log-lines")).to_contain_text("second")
    await expect(page.locator("#job-runs")).to_contain_text("said it")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    nodes[1].until_shown("talker", "paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await page.locator("#job-runs a[href^='/runs/']").first.click()
    await expect(page.locator("main")).to_contain_text("second")
    assert await tab.violations() == []


async def test_the_overview_follows_runs_of_other_nodes(tab: Tab, nodes: list[Member]) -> None:
    page = await tab.open("/")
    row = page.locator("#j-sleeper")
    await expect(row).to_contain_text("on ber")
    run = nodes[1].trigger("sleeper")
    await expect(row).to_contain_text("running for")
    assert nodes[1].daemon.ask(f"/api/runs/{run}/cancel", "POST").status == 200
    await expect(row).to_contain_text("cancelled")
    assert await tab.violations() == []


async def test_nodes_have_a_page_on_which_one_is_drained_and_resumed(tab: Tab, nodes: list[Member]) -> None:
    page = await tab.open("/channels")
    await page.get_by_role("link", name="Nodes").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("2 nodes")
    row = page.locator("#node-ber")
    await row.get_by_role("button", name="Drain").click()
    await expect(row).to_contain_text("draining")
    await row.get_by_role("button", name="Resume").click()
    await expect(row).to_contain_text("alive")
    assert await tab.violations() == []
    eventually(lambda: nodes[0].project.shown("talker").node == "ber", "its jobs are back")
