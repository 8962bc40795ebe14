"""Content that shows what a stranger has written, beside the dashboard: one click on a link elsewhere.

The stranger's script tries every way to a key that it has: by the content's own origin and by the dashboard's, as a
program, as a form, through a window of the dashboard.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.fakes.browser import WIDE, close_tabs, window_of
from tests.fakes.project import Project

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(120)]

SERVER = """
local function show(self)
  local page = "<title>no script</title><p>You sent: " .. (self.query.q or "")
  return { body = page, headers = { ["Content-Type"] = "text/html" } }
end
get.show, public.get.show = show, show
function get:titles() return { body = { "tea" } } end
function post:titles() return { body = { "saved" } } end
"""
UI = """<!doctype html><title>theirs</title><pre id="seen"></pre><script type="module">
const found = [];
for (const [path, method] of [["/api/v/titles"], ["/api/v/titles", "POST"], ["/api/jobs"], ["/api/records"]])
  found.push(await (await fetch(path, { method })).json());
document.querySelector("#seen").textContent = JSON.stringify(found);
</script>"""
ATTACK = """
const dashboard = "DASHBOARD", body = JSON.stringify({ name: "stolen", scopes: ["admin"] });
const tries = [];
for (const origin of ["CONTENT", dashboard]) {
  const to = (path, options) => fetch(origin + path, { method: "POST", credentials: "include", ...options });
  tries.push(to("/api/keys", { body, headers: { "Content-Type": "application/json" } }));
  tries.push(to("/api/keys", { body, mode: "no-cors" }));
  tries.push(to("/api/jobs/prices/pause", { mode: "no-cors" }));
  tries.push(to("/keys", { body: new URLSearchParams({ name: "stolen", scope: "admin" }), mode: "no-cors" }));
}
const frame = document.createElement("iframe");
frame.name = "form";
document.body.append(frame);
const form = document.createElement("form");
Object.assign(form, { method: "post", action: dashboard + "/keys", target: "form" });
for (const [name, value] of [["name", "stolen"], ["scope", "admin"]])
  form.append(Object.assign(document.createElement("input"), { name, value }));
document.body.append(form);
form.submit();
const other = window.open(dashboard + "/keys");
await Promise.allSettled(tries);
setTimeout(() => {
  try { document.title = other.document.body ? "read a window" : "tried"; } catch { document.title = "tried"; }
}, 1500);
"""


@dataclass(frozen=True, kw_only=True)
class Victim:
    """Somebody with a daemon that serves content."""

    project: Project
    content: str
    dashboard: str
    page: Page

    async def click(self, path: str) -> None:
        """Follow a link of a page elsewhere, until what it runs has tried everything."""
        script = ATTACK.replace("CONTENT", self.content).replace("DASHBOARD", self.dashboard)
        link = f"{self.content}{path}?q={quote(f'<script type=module>{script}</script>')}"
        await self.page.set_content(f'<a href="{link.replace("&", "&amp;")}">free tea</a>')
        await self.page.get_by_text("free tea").click()
        await expect(self.page).to_have_title("tried", timeout=20_000)


@pytest_asyncio.fixture(loop_scope="session")
async def victim(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Victim]:
    project = Project(tmp_path_factory.mktemp("content"))
    project.job("prices", "return 1")
    project.save("server/init.lua", SERVER)
    project.save("ui/index.html", UI)
    with project.daemon() as daemon:
        started = next(json.loads(line) for line in daemon.said().splitlines() if '"started"' in line)
        window = await window_of(chromium, WIDE, {})
        page = await window.new_page()
        yield Victim(project=project, content=started["url"], dashboard=started["dashboard"], page=page)
        await close_tabs(window)


def keys_of(project: Project) -> list[object]:
    return [key["name"] for key in project.ask("keys", "list")]


@pytest.mark.parametrize("path", ["/api/public/show", "/api/v/show"])
async def test_a_click_makes_no_key_where_there_is_none(victim: Victim, path: str) -> None:
    await victim.page.goto(victim.dashboard)
    await expect(victim.page.get_by_role("heading", level=1)).to_be_visible()
    await victim.click(path)
    assert await asyncio.to_thread(keys_of, victim.project) == []
    assert victim.project.shown("prices").state != "paused"


async def test_a_click_makes_no_key_for_somebody_who_is_signed_in(victim: Victim) -> None:
    made = await asyncio.to_thread(victim.project.spyweb, "keys", "add", "anna", "--scope", "admin")
    page = victim.page
    await page.goto(victim.dashboard)
    await page.locator("input[name=key]").fill(made.stdout.strip())
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("link", name="prices")).to_be_visible()
    await victim.click("/api/public/show")
    assert await asyncio.to_thread(keys_of, victim.project) == ["anna"]
    assert victim.project.shown("prices").state != "paused"
    await page.goto(victim.dashboard)
    await expect(page.get_by_role("link", name="prices")).to_be_visible()


async def test_pages_of_the_project_call_its_endpoints_as_they_did(victim: Victim) -> None:
    await victim.page.goto(victim.content)
    await expect(victim.page.locator("#seen")).to_contain_text('"tea"')
    seen = json.loads(await victim.page.locator("#seen").inner_text())
    assert (seen[0], seen[1], seen[2][0]["id"]) == (["tea"], ["saved"], "prices")
