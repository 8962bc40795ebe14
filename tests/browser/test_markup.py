"""Markup in every field that scripts, pages and people can fill: a real browser shows it as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from spyweb.views.jobs import JobState
from tests.fakes.browser import Tab, opened
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]

# An element of a name of its own can be looked for in the page; the script would change the title of the tab.
EVIL = "<evil-x>{}</evil-x><img src=x onerror=document.title='broken-out'>'\"&amp;"
CONFIG = """
[alerts]
after_failures = 1
[[maintenance]]
cron = "0 3 * * sun"
duration = "2h"
text = '''{text}'''
"""
FAILING = """
local evil = function(field) return (({evil}):gsub("{{}}", field)) end
log(evil("log"))
log.error(evil("log-error"), {{ [evil("log-key")] = evil("log-value") }})
store_set(evil("own-key"), evil("own-value"))
global_store_set(evil("global-key"), evil("global-value"))
state.set{{scope="evil<i>", key=evil("scope-key"), value={{ [evil("member")] = evil("inner") }}}}
{end_}
"""
TASKS = """
task("{task}"):description("{task}"):command(function() return false, "{why}" end):build()
"""
MONITOR = """
name = '''{name}'''
url = "https://evil.example/?<evil-x>=1"
selector = "article"
fields = ["title:h2", "a<evil-x>b:.price"]
every = "never"
tags = ['''{tag}''']
keywords = ["evil"]
[webhook]
url = "http://127.0.0.1:9/<evil-x>"
"""
SHOP = """
function override_fetch(request)
  local text = ({evil}):gsub("&", "&amp;"):gsub("<", "&lt;")
  local item = "<article><h2>" .. text .. "</h2><i class='price'>" .. text .. "</i></article>"
  return {{ status = 200, url = request.url, body = "<html><body>" .. item .. "</body></html>" }}
end
"""
PAGES = (
    *("/", "/incidents", "/incidents/1", "/channels", "/maintenance", "/when", "/when/audit", "/runs"),
    *("/records", "/state", "/events", "/outbox", "/health", "/keys", "/api/docs"),
)


def evil(field: str) -> str:
    return EVIL.replace("{}", field)


def lua(text: str) -> str:
    return f"[==[{text}]==]"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[tuple[str, Project]]:
    project = Project(tmp_path_factory.mktemp("hostile"))
    toml = "'''{}'''"
    settings = "\n".join(
        [
            f"name = {toml.format(evil('name'))}",
            f"description = {toml.format(evil('description'))}",
            f"tags = [{toml.format(evil('tag'))}]",
            'every = "never"',
        ]
    )
    failing = FAILING.format(evil=lua(EVIL), end_=f"error({lua(evil('reason'))})")
    good = f"return {lua(evil('result'))}"
    project.save("config.toml", CONFIG.format(text=evil("maintenance")))
    project.job("failing", failing, settings)
    project.job("good", good, settings.replace(">name<", ">good-name<"))
    project.job("file_<evil-x>&", good)
    project.job("unloadable", f"return {lua(evil('source'))} +", settings.replace(">name<", ">broken-name<"))
    project.job("tasks", TASKS.format(task="<evil-x>task", why="<evil-x>why"))
    project.save("jobs/shop/config.toml", MONITOR.format(name=evil("shop"), tag=evil("shop-tag")))
    project.save("jobs/shop/hooks.lua", SHOP.format(evil=lua(EVIL)))
    with project.daemon() as daemon:
        ids = [job.id for job in project.daemon_client().jobs() if job.state is not JobState.BROKEN]
        for job in ids:
            project.spyweb("trigger", job, code=None)
        for job in ids:
            project.ended(job)
        eventually(lambda: project.ask("outbox"), "a message")
        eventually(lambda: project.ask("alerts", "list"), "an incident")
        project.spyweb("alerts", "ack", "1", "--by", evil("acked-by"))
        yield daemon.url, project


@pytest_asyncio.fixture(loop_scope="session")
async def victim(chromium: Browser, hostile: tuple[str, Project]) -> AsyncIterator[Tab]:
    async with opened(chromium, hostile[0]) as tab:
        yield tab


async def test_markup_in_every_field_is_text(victim: Tab, hostile: tuple[str, Project]) -> None:
    _, project = hostile
    jobs = [job.id for job in project.daemon_client().jobs()]
    runs = [run.id for job in project.daemon_client().jobs() if job.last for run in project.runs(job.id)]
    paths = [*PAGES, *(f"/jobs/{job}" for job in jobs), *(f"/runs/{run}" for run in runs)]
    paths += [f"/jobs/{job}/source" for job in jobs]
    paths += ["/state?namespace=scope:evil%3Ci%3E", "/state?namespace=job:evil_x_name__evil_x", "/jobs/%3Cevil-x%3E"]
    victim.expected = "404"  # the browser tells of the status of a page itself
    seen = ""
    for path in paths:
        page = await victim.open(path)
        await page.locator("h1").wait_for()
        seen += await page.content()
        assert await page.locator("evil-x, img, main script").count() == 0, path
        assert await page.title() != "broken-out", path
        assert "<evil-x" not in await page.content(), path
    fields = [
        *("name", "good-name", "tag", "description", "reason", "result", "log", "log-error", "source"),
        *("acked-by", "maintenance", "global-key", "global-value", "scope-key", "shop", "shop-tag"),
    ]
    missing = [field for field in fields if f"&lt;evil-x&gt;{field}&lt;/evil-x&gt;" not in seen]
    assert missing == []
    assert "&lt;evil-x&gt;task" in seen
    assert "&lt;evil-x&gt;why" in seen
