"""Take the pictures that the docs show of the dashboard and the status page: `make screenshots`.

A project with a believable mixture of jobs is made and served, with a day of runs put on record before; of checks, 90
days.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from spyweb.clock import RealClock
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import Failed, Succeeded
from spyweb.model import Durability, JobId, Outcome, RunId, RunState, Trigger
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS
from spyweb.store.model.incidents import SubjectEvent
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.model.uptime import bucket_of
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.certificates import self_signed
from tests.fakes.project import Project, eventually

IMAGES = Path(__file__).parent
SIZE: ViewportSize = {"width": 1280, "height": 800}
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

CONFIG = """
[channels.phone]
webhook = "http://127.0.0.1:9/"

[status_page]
title = "Example status"
public = true
groups = [
  { name = "Shop", jobs = ["web_shop", "public_api", "mail"] },
  { name = "Behind the scenes", jobs = ["certificate"] },
]
"""
DOWN = "status == 200 does not hold: status is 503"
# settings, the latency (ms), other figures, and when it was down: days ago, and minutes
CHECKS: dict[str, tuple[str, float, dict[str, object], list[tuple[float, int]]]] = {
    "web_shop": (
        'check = "http"\nname = "Web shop"\nurl = "{http}/shop"\nexpect = ["status == 200", "latency < 800"]',
        84, {"status": 200, "size": 48_212, "redirects": 0, "ip": "192.0.2.10"}, [(61.2, 40), (9.4, 95)],
    ),
    "public_api": (
        'check = "http"\nname = "Public API"\nurl = "{http}/api"\nexpect = ["status == 200"]',
        31, {"status": 200, "size": 512, "redirects": 0, "ip": "192.0.2.11"}, [(33.7, 300), (0.02, 60)],
    ),
    "mail": (
        'check = "tcp"\nname = "Mail"\nhost = "127.0.0.1"\nport = {port}\nconfirm = 2',
        6, {"connected": True}, [(48.1, 1_900)],
    ),
    "certificate": (
        'check = "tls"\nname = "Certificate"\nhost = "127.0.0.1"\nport = {tls}\nexpect = ["days > 3"]',
        22, {"days": 11, "chain_ok": True}, [],
    ),
}  # fmt: skip


def make_project(root: Path) -> Project:
    project = Project(root)
    for name, (settings, body, *_, says, _) in JOBS.items():
        project.job(name, body or f'log("{says}")\nreturn "{says}"', settings)
    project.save("jobs/tea_shop/config.toml", SHOP)
    project.save("jobs/tea_shop/hooks.lua", SHOP_HOOKS)
    return project


class Answer(BaseHTTPRequestHandler):
    """The servers that the checks ask: of the API only errors."""

    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/api" else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def checked_servers(folder: Path) -> Iterator[dict[str, object]]:
    """Serve what the checks ask, and yield where."""
    plain, secure = (ThreadingHTTPServer(("127.0.0.1", 0), Answer) for _ in range(2))
    now, pem = datetime.now(UTC), folder / "certificate.pem"
    pem.write_bytes(self_signed("example.org", now - timedelta(days=79), now + timedelta(days=11, hours=5)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    for server in (plain, secure):
        Thread(target=server.serve_forever, daemon=True).start()
    yield {"http": f"http://127.0.0.1:{plain.server_port}", "port": plain.server_port, "tls": secure.server_port}
    for server in (plain, secure):
        server.shutdown()


async def record_checks(store: Store) -> None:
    """Put 90 days of checks on record: the last one as they run, those before more seldom."""
    now_ms = RealClock().now_ms()
    for name, (_, usual_ms, figures, outages) in CHECKS.items():
        chance, policy, was_down = random.Random(name), AlertPolicy(after_failures=1), False
        moments = [*range(now_ms - 90 * DAY_MS, now_ms - DAY_MS, 20 * MINUTE_MS)]
        for at_ms in [*moments, *range(now_ms - DAY_MS, now_ms, 3 * MINUTE_MS)]:
            ago = [(now_ms - at_ms) - days * DAY_MS for days, _ in outages]
            is_down = any(-minutes * MINUTE_MS < each <= 0 for each, (_, minutes) in zip(ago, outages, strict=True))
            if moments[-1] > at_ms and at_ms % HOUR_MS > 20 * MINUTE_MS and not is_down and not was_down:
                continue
            latency_ms = round(usual_ms * chance.lognormvariate(0, 0.22), 1)
            trigger = Trigger(type="schedule")
            new = NewRun(job=JobId(name), state=RunState.RUNNING, trigger=trigger, due_ms=at_ms, started_ms=at_ms)
            (run,) = await store.runs.record(Change(new=[new]))
            event = Failed(DOWN) if is_down else Succeeded() if was_down else None
            end = End(
                run=RunId(run or 0),
                ended_ms=at_ms + int(latency_ms) + 3,
                outcome=Outcome.FAILED if is_down else Outcome.SUCCESS,
                reason=DOWN if is_down else "",
                result="" if is_down else json.dumps({**figures, "latency": latency_ms}),
                alert=SubjectEvent(subject=f"job:{name}", event=event, policy=policy, at_ms=at_ms) if event else None,
                stale_ms=at_ms + 3 * HOUR_MS,
                latency=None if is_down else bucket_of(latency_ms),
            )
            await store.runs.record(Change(end=[end]))
            was_down = is_down


async def record_past(root: Path) -> None:
    """Put a day of runs on record, as a daemon would have."""
    (root / "data").mkdir()
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
                stale_ms=ended_ms + 2 * minutes * MINUTE_MS,
            )
            await store.runs.record(Change(end=[end]))
    await record_checks(store)
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


async def take_all(content: str, dashboard: str, project: Project, path: str) -> None:
    deployed = project.runs("deploy")[0].id
    pages = {"overview": "/", "job": "/jobs/invoice_sync", "run": f"/runs/{deployed}", "when": "/when"}
    addresses = {name: dashboard + address for name, address in {**pages, "check": "/jobs/web_shop"}.items()}
    IMAGES.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        for scheme in ("light", "dark"):
            context = await browser.new_context(viewport=SIZE, color_scheme=scheme)
            page = await context.new_page()
            for name, address in {**addresses, "status": f"{content}/status/"}.items():
                await page.goto(address)
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
        project.save("config.toml", CONFIG)
        asyncio.run(record_past(root))
        with ExitStack() as stack:
            where = stack.enter_context(checked_servers(root))
            for name, (settings, *_) in CHECKS.items():
                project.save(f"jobs/{name}.toml", settings.format(**where) + '\nevery = "3m"')
            with project.daemon():  # the next one knows the jobs, and with them their past
                project.ended("tea_shop")
            daemon = stack.enter_context(project.daemon())
            project.spyweb("pause", "thumbnails")
            project.spyweb("trigger", "search_index")
            for job in ("tea_shop", "deploy"):
                project.result(job)
            project.spyweb("trigger", "invoice_sync")
            eventually(lambda: project.ask("alerts", "list"), "an incident of invoice_sync")
            for each in project.ask("alerts", "list"):
                if each["job_id"] == "public_api":
                    note = "Our provider moves the database; we expect the API back within the hour."
                    project.spyweb("alerts", "note", str(each["id"]), note, "--public")
            project.spyweb("maintenance", "begin", "2h", "--job", "mail", "--text", "a new disk")
            time.sleep(2)  # until health has looked around
            found = re.search(r'"url": "(http://[^"]+)", "dashboard": "(http://[^"]+)"', daemon.said())
            assert found
            asyncio.run(take_all(found[1], found[2], project, path))


if __name__ == "__main__":
    main()
