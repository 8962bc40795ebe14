"""A project with monitor jobs on real parts: files, workers, extractor, network, database.  The daemon is left out.

The site that it watches is a real server whose pages the test can change.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from aiohttp import web

from spyweb.clock import RealClock
from spyweb.daemon.runtime import JobRuntime, open_runtime
from spyweb.model import Ending, JobId, Run
from spyweb.permissions.policy import Audit
from spyweb.reload.swap import make_live_job
from spyweb.runs.live import LiveJob
from spyweb.runs.runner import by_hand
from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from spyweb.store.model.messages import QueuedMessage

ITEMS = """
<div class="item"><h2><a href="/lamp">Lamp</a></h2><span class="price">5</span></div>
<div class="item"><h2><a href="/desk">Desk</a></h2><span class="price">90</span></div>
"""
SETTINGS = {
    "url": '"{site}/"',
    "selector": '".item"',
    "fields": '["title:h2", "link:a@href", "price:.price"]',
    "notification": "{ enabled = false }",
}


@dataclass(slots=True)
class Site:
    url: str = ""
    pages: dict[str, str | web.Response] = field(default_factory=lambda: {"/": ITEMS})
    series: dict[str, list[web.Response]] = field(default_factory=dict)  # what a page answers first
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)  # "GET /path", headers, body

    @property
    def story(self) -> list[str]:
        return [what for what, _, _ in self.asked]

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((f"{request.method} {request.path_qs}", dict(request.headers), await request.read()))
        coming = self.series.get(request.path)
        if request.method == "PUT" and not coming:
            self.pages[request.path] = await request.text()
        page = coming.pop(0) if coming else self.pages.get(request.path)
        if isinstance(page, web.Response):
            return web.Response(status=page.status, body=page.body, headers=page.headers)
        status = 404 if page is None else 200
        return web.Response(status=status, text="nothing here" if page is None else page, content_type="text/html")


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    site, app = Site(), web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield site
    finally:
        await runner.cleanup()


@dataclass(slots=True)
class Observer:
    over: Future[Ending]
    lines: list[str] = field(default_factory=list)
    audit: Audit | None = None

    def log(self, level: str, text: bytes) -> None:
        self.lines.append(f"{level} {text.decode('utf-8', 'replace')}")

    def task(self, event: object) -> None: ...

    def ended(self, run: Run, ending: Ending) -> None:
        self.over.set_result(ending)


@dataclass(slots=True)
class MonitorProject:
    root: Path
    runtime: JobRuntime
    site: Site
    name: str = "shop"  # of the job that the test is about
    lines: list[str] = field(default_factory=list)  # of the last run
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def renew(self) -> None:
        """Reset for the next test: another job, and the site as it was."""
        self.name = f"shop{next(self._numbers)}"
        self.site.pages = {"/": ITEMS}
        self.site.series.clear()
        self.site.asked.clear()

    def save(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{site}", self.site.url))

    def shop(self, hooks: str = "", more: str = "", *, defer: str = "", **settings: str) -> None:
        """Save the job with these Lua files, and with settings beside or instead of the usual ones."""
        whole = {**SETTINGS, "name": f'"{self.name}"', **settings}
        text = "".join(f"{key} = {value}\n" for key, value in whole.items() if value)
        self.save(f"jobs/{self.name}/config.toml", text + more)
        for name, lua in (("hooks", hooks), ("defer", defer)):
            if lua:
                self.save(f"jobs/{self.name}/{name}.lua", lua)

    def load(self) -> LiveJob:
        found = scan(self.root, load_settings(self.root, environ={}, flags={}))
        assert not found.problems, found.problems
        job = make_live_job(found.jobs[JobId(self.name)])
        self.runtime.live.add(job)
        return job

    async def run(self, *, debug: bool = False) -> Ending:
        task = await self.start(debug=debug)
        return await task.over

    async def start(self, *, debug: bool = False) -> Observer:
        job = self.runtime.live.find(JobId(self.name)) or self.load()
        observer = Observer(get_running_loop().create_future())
        self.lines = observer.lines
        await self.runtime.runner.start_by_hand(job, by_hand(observer, debug=debug))
        return observer

    async def records(self) -> list[dict[str, str]]:
        """Return the fields of all records, oldest first."""
        found = await self.runtime.store.records.list(JobId(self.name), limit=1000)
        return [dict(record.fields) for record in reversed(found)]

    async def messages(self) -> list[QueuedMessage]:
        """Return what waits in the outbox, and delete it there."""
        outbox, found = self.runtime.store.outbox, []
        for target in await outbox.targets():
            while message := await outbox.next(target, self.runtime.clock.now_ms()):
                found.append(message)
                await outbox.done(message.id)
        return found


@asynccontextmanager
async def open_project(root: Path) -> AsyncIterator[MonitorProject]:
    (root / "data").mkdir()
    settings = load_settings(root, environ={}, flags={"workers": 1})
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site())
        runtime = await open_runtime(stack, settings, RealClock())
        yield MonitorProject(root, runtime, site)
        await runtime.runner.drain(0)
