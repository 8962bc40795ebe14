"""Take the pictures of the dashboard that the README shows: `make screenshots`.

A project with a believable mixture of jobs is made and served, with a day of runs put on record before.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from spyweb.clock import RealClock
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import Failed
from spyweb.model import Durability, JobId, Outcome, RunId, RunState, Trigger
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.sqlite.store import open_store
from tests.fakes.project import Project, eventually

IMAGES = Path(__file__).parent
SIZE = {"width": 1280, "height": 800}
QUALITY = 0.82
LARGEST = 60 * 1024  # bytes of one picture
WRONG = "jobs/invoice_sync.lua:13: billing: page 1: status 503, try again later"

INVOICES = """local since = store_get("since") or "the beginning"
log("asking for invoices since " .. since)

local function fetch(page)
  sleep(250)
  local answer = { status = 503, body = "try again later" }
  if answer.status ~= 200 then
    error("billing: page " .. page .. ": status " .. answer.status .. ", " .. answer.body)
  end
  return answer.body
end

fetch(1)
"""
DEPLOY = """
local function step(name, ms, after)
  local one = task(name):command(function()
    log(name .. ": done")
    sleep(ms)
    return true, name .. " is done"
  end)
  if after then one = one:depends_on(after) end
  return one:build()
end

local fetch = step("fetch the release", 300)
local check = step("check its signature", 120, fetch)
local migrate = step("migrate the database", 700, check)
local roll_out = step("roll out", 500, migrate)
step("ask whether it answers", 250, roll_out)
"""
SHOP = """
name = "Tea shop"
url = "https://shop.example/tea"
selector = "article"
fields = ["title:h2", "price:.price"]
every = "15m"
tags = ["home"]
"""
SHOP_HOOKS = """
local TEAS = { "Assam", "Darjeeling", "Gunpowder", "Keemun", "Lapsang Souchong", "Sencha", "White Peony" }
function override_fetch(request)
  local out = {}
  for i, name in ipairs(TEAS) do
    out[i] = "<article><h2>" .. name .. "</h2><i class='price'>" .. (9 + i) .. ".50</i></article>"
  end
  return { status = 200, url = request.url, body = "<html><body>" .. table.concat(out) .. "</body></html>" }
end
"""
# settings, Lua, minutes between runs, how long they took (ms), what they returned, and how many of the latest failed
JOBS = {
    "invoice_sync": ('name = "Invoice sync"\nevery = "5m"\ntags = ["billing"]', INVOICES, 5, 230, "", 7),
    "invoice_report": ('name = "Invoice report"\nafter = ["invoice_sync"]\ntags = ["billing"]', "", 0, 0, "", 0),
    "nightly_backup": ('name = "Nightly backup"\ncron = "0 3 * * *"', "", 1440, 262_000, "41.2 GB, verified", 0),
    "exchange_rates": ('name = "Exchange rates"\ncron = "0 * * * *"\ntags = ["billing"]', "", 60, 740, "31 rates", 0),
    "search_index": ('name = "Search index"\ncron = "*/20 * * * *"', "sleep(600000)", 20, 71_000, "8,412 pages", 0),
    "thumbnails": ('every = "10m"', "", 10, 3_100, "12 pictures", 0),
    "heartbeat": ('cron = "*/15 * * * *"\ntags = ["home"]', "", 15, 42, "all 14 answer", 0),
    "certificates": ('cron = "0 3 * * *"', "", 1440, 1_900, "the next one ends in 23 days", 0),
    "old_files": ('name = "Old files"\ncron = "0 3 * * *"', "", 1440, 8_200, "214 deleted", 0),
    "statistics": ('cron = "15 */2 * * *"', "", 120, 5_300, "written", 0),
    "mail_digest": ('name = "Mail digest"\ncron = "30 7 * * 1-5"', "", 1440, 2_400, "6 letters", 0),
    "deploy": ('every = "never"', DEPLOY, 0, 0, "", 0),
}


def make_project(root: Path) -> Project:
    project = Project(root)
    for name, (settings, body, *_, says, _) in JOBS.items():
        project.job(name, body or f'log("{says}")\nreturn "{says}"', settings)
    project.save("jobs/tea_shop/config.toml", SHOP)
    project.save("jobs/tea_shop/hooks.lua", SHOP_HOOKS)
    return project


async def record_past(root: Path) -> None:
    """Put a day of runs on record, as a daemon would have."""
    store = await open_store(root / "data/spyweb.db", clock=RealClock(), durability=Durability.NORMAL)
    for name, (_, _, minutes, took_ms, says, failures) in JOBS.items():
        chance, count = random.Random(name), max(12, 24 * 60 // minutes) if minutes else 0
        for number in range(count):
            late_ms = chance.choice((0, 3, 8, 20)) if chance.random() > 0.06 else 21_000
            due_ms = RealClock().now_ms() - (count - number) * minutes * 60_000 + took_ms // 2
            new = NewRun(
                job=JobId(name),
                state=RunState.RUNNING,
                trigger=Trigger(type="schedule"),
                due_ms=due_ms,
                started_ms=due_ms + late_ms,
            )
            (run,) = await store.runs.record(Change(new=[new]))
            ended_ms = due_ms + late_ms + int(took_ms * chance.uniform(0.7, 1.5))
            reason = WRONG if number >= count - failures else "the network is down" if chance.random() < 0.015 else ""
            failed = SubjectEvent(subject=f"job:{name}", event=Failed(reason), policy=AlertPolicy(), at_ms=ended_ms)
            end = End(
                run=RunId(run or 0),
                ended_ms=ended_ms,
                outcome=Outcome.FAILED if reason else Outcome.SUCCESS,
                reason=reason,
                result="" if reason else says,
                alert=failed if reason == WRONG else None,
            )
            await store.runs.record(Change(end=[end]))
    await store.close()


async def take(browser: Browser, page: Page, name: str) -> None:
    """Take a picture as WebP, which the browser itself makes of it."""
    shot = base64.b64encode(await page.screenshot()).decode()
    painter = await browser.new_page()
    url = await painter.evaluate(
        """async ([shot, quality]) => {
          const image = new Image()
          image.src = "data:image/png;base64," + shot
          await image.decode()
          const canvas = document.createElement("canvas")
          canvas.width = image.width
          canvas.height = image.height
          canvas.getContext("2d").drawImage(image, 0, 0)
          return canvas.toDataURL("image/webp", quality)
        }""",
        [shot, QUALITY],
    )
    await painter.close()
    content = base64.b64decode(url.partition(",")[2])
    if len(content) > LARGEST:
        sys.exit(f"{name} has {len(content):,} bytes")
    (IMAGES / f"{name}.webp").write_bytes(content)
    sys.stdout.write(f"docs/images/{name}.webp  {len(content):,} bytes\n")


async def take_all(origin: str, project: Project, path: str) -> None:
    deployed = project.runs("deploy")[0].id
    pages = {"overview": "/", "job": "/jobs/invoice_sync", "run": f"/runs/{deployed}", "when": "/when"}
    IMAGES.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        for scheme in ("light", "dark"):
            context = await browser.new_context(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            page = await context.new_page()
            for name, address in pages.items():
                await page.goto(origin + address)
                await page.locator("h1").wait_for()
                await page.wait_for_timeout(300)  # until times are shown in the browser's zone
                await take(browser, page, f"{name}-{scheme}")
            await context.close()
        await browser.close()


def main() -> None:
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        sys.exit("no chromium here: apt-get install --no-install-recommends chromium-headless-shell fonts-noto-cjk")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "demo"
        root.mkdir()
        project = make_project(root)
        with project.daemon():  # it sees the jobs before their past is recorded
            project.ended("tea_shop")
        asyncio.run(record_past(root))
        with project.daemon() as daemon:
            project.spyweb("pause", "thumbnails")
            project.spyweb("trigger", "search_index")
            for job in ("tea_shop", "deploy"):
                project.result(job)
            project.spyweb("trigger", "invoice_sync")
            eventually(lambda: project.ask("alerts", "list"), "an incident of invoice_sync")
            time.sleep(2)  # until health has looked around
            found = re.search(r'"url": "(http://[^"]+)"', daemon.said())
            assert found
            asyncio.run(take_all(daemon.url, project, path))


if __name__ == "__main__":
    main()
