"""The status page: made of what the store knows, at most once a second, and served as bytes.

Nothing in it is an address, a reason or the number of a run or an incident.  Where it is public, it is served before
the server asks who it is, on the origin of the project's content; it needs no script, and none may run.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import filter as matching
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from aiohttp import web
from aiohttp.typedefs import Handler

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED, Absent, NoAccess
from spyweb.files import open_regular, replace_all
from spyweb.incidents.truth import FAILING, JOB
from spyweb.logs.output import tell_refusal
from spyweb.model import MIB, JobId, JobSpec
from spyweb.runs.live import LiveJobs
from spyweb.settings.sections import StatusPageSettings
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, pattern_of, planned_windows
from spyweb.store.model.incidents import Incident, job_of
from spyweb.store.model.uptime import READ_AT_ONCE, UptimeSpan, add_up
from spyweb.store.sqlite.store import Store
from spyweb.views.jobs import to_json
from spyweb.web.access.guard import TRAIL, check_right
from spyweb.web.access.recognise import RECOGNISER, AccessRule
from spyweb.web.answer import bytes_answer, json_answer
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of
from spyweb.web.endpoints import type_of
from spyweb.web.pages.charts import STEP, draw_days
from spyweb.web.pages.frame import PageFrame
from spyweb.web.pages.site import LEVEL, renderer, static_files
from spyweb.web.pages.words import Moments, iso_moment
from spyweb.words import counted

HTML, JSON = "index.html", "status.json"
DAYS, PAST_DAYS, NEXT_DAYS = 90, 14, 7  # of bars, of closed incidents, of maintenance to come
AGAIN_S = 1.0  # after which the page is made again
REST = 4  # times as long as it took to make it: that is not done for more than a fifth of the time
MOST_JOBS, MOST_INCIDENTS, MOST_WINDOWS = 1_000, 300, 100  # the same job may be in several groups; closed; of all jobs
STATES = ("down", "troubled", "maintenance", "up", "unknown")  # of jobs, the gravest first
PRIVATE = AccessRule(Right.READ, of_project=True)  # of a page that is not public
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
OPEN = {"Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}  # to everybody, also to pages elsewhere


class ServedFile(NamedTuple):
    content: bytes
    zipped: bytes
    tag: str


@dataclass(slots=True, eq=False)
class StatusService:
    settings: Callable[[], StatusPageSettings | None]
    live: LiveJobs
    store: Store
    maintenance: Callable[[], MaintenanceCalendar]
    clock: Clock
    root: Path
    timezone: str
    _files: Mapping[str, ServedFile] = field(default_factory=dict)
    _of: StatusPageSettings | None = None  # the settings that they were made by
    _again_at: float = 0.0
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _secret: bytes = b""  # of the keys of incidents

    async def files(self) -> Mapping[str, ServedFile]:
        """Return the files of the page by name.  Raises Absent where there is no page."""
        page = self.settings()
        if page is None:
            raise Absent("config.toml has no [status_page]")
        async with self._making:
            began = self.clock.monotonic()
            if self._of != page or began >= self._again_at:
                try:
                    made = await asyncio.to_thread(render, await self.look(page), page, self.root, self.timezone)
                    self._files, self._of = made, page
                except STORE_REFUSED as error:
                    if self._of != page:
                        raise
                    tell_refusal("the status page is as before", error)
                made_at = self.clock.monotonic()
                self._again_at = made_at + max(AGAIN_S, REST * (made_at - began))
        return self._files

    async def look(self, page: StatusPageSettings) -> dict[str, Any]:
        """Return what the page shows now, as its JSON has it."""
        now_ms, calendar = self.clock.now_ms(), self.maintenance()
        self._secret = self._secret or await self.store.keys.link_key()
        named = await asyncio.to_thread(groups_of, page, [job.spec for job in self.live])
        specs = {f"{JOB}{spec.id}": spec for _, jobs in named for spec in jobs}
        since_ms, ask = now_ms - PAST_DAYS * DAY_MS, self.store.incidents.list
        still_open = await ask(is_open=True, subjects=specs, limit=MOST_JOBS)
        closed = await ask(is_open=False, subjects=specs, since_ms=since_ms, limit=MOST_INCIDENTS)
        incidents = {each.id: each for each in (*still_open, *closed)}.values()  # one may have closed meanwhile
        troubled, shown = {job_of(each.subject) for each in still_open}, dict[JobId, dict[str, Any]]()
        rest = iter(specs.values())
        while some := [*islice(rest, READ_AT_ONCE)]:
            ids = [spec.id for spec in some]
            uptimes = await self.store.uptime.read(ids, now_ms, ("24h",), DAYS)
            for spec in some:
                uptime = uptimes[spec.id]
                state = {True: "up", False: "down", None: "unknown"}[uptime.up]
                state = "troubled" if state == "up" and spec.id in troubled else state
                state = state if calendar.until(spec.id, now_ms) is None else "maintenance"
                shown[spec.id] = show_job(spec, state, uptime.spans["24h"], [*uptime.days.values()])
        state, words = words_of([job["state"] for job in shown.values()])
        as_of_ms = now_ms - now_ms % MINUTE_MS
        head = {"key": key_of(self._secret, ""), "title": page.title, "state": state, "words": words}
        groups = [{"name": name, "jobs": [shown[spec.id] for spec in jobs]} for name, jobs in named]
        told = [show_incident(each, specs[each.subject].name, self._secret) for each in incidents]
        windows = show_windows(calendar.rules, [*specs.values()], now_ms)
        return {**head, "as_of_ms": as_of_ms, "groups": groups, "incidents": told, "maintenance": windows}

    async def export(self) -> None:
        """Write what has changed of the page into the folder of the settings.  Raises NoAccess."""
        if (page := self.settings()) and page.export:
            files = {name: served.content for name, served in (await self.files()).items()}
            try:
                await asyncio.to_thread(replace_all, self.root / page.export, files, JSON)
            except OSError as error:
                raise NoAccess(f"{page.export}: {error.strerror}") from error

    @web.middleware
    async def answer_first(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer for the addresses of the page, and leave all others to the app."""
        page = self.settings()
        if page is None or request.method not in ("GET", "HEAD") or not f"{request.path}/".startswith(f"{page.path}/"):
            return await handler(request)
        if not page.public:
            try:
                check_right(request.app[RECOGNISER](request, PRIVATE), PRIVATE)
            except web.HTTPException as error:
                request.app[TRAIL].note_failure(request, PRIVATE, error)
                raise
        if request.path == page.path:  # so that its links, relative to it, are the same in an export
            return web.Response(status=308, headers={**SAFE, "Location": f"{page.path.rpartition('/')[2]}/"})
        name = request.path[len(page.path) + 1 :] or HTML
        served = (await self.files()).get(name)
        if served is None:
            raise web.HTTPNotFound
        headers = {**SAFE, **(OPEN if page.public else {"Cache-Control": "private, no-cache"}), "ETag": served.tag}
        if served.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = type_of(Path(name))
        return bytes_answer(request, served.content, served.zipped, headers)


def groups_of(page: StatusPageSettings, specs: Iterable[JobSpec]) -> list[tuple[str, list[JobSpec]]]:
    """Return each heading with its jobs, in the order of the settings; jobs that only tags name come last."""
    enabled = {str(spec.id): spec for spec in specs if spec.enabled}
    ids, tags = sorted(enabled), set(page.tags)
    groups = [(name, [job for each in jobs for job in matching(ids, pattern_of(each))]) for name, jobs in page.groups]
    grouped = {job for _, jobs in groups for job in jobs}
    tagged = [job for job in ids if job not in grouped and not tags.isdisjoint(enabled[job].tags)]
    groups.append(("Others" if grouped else "", tagged))
    shown = islice(((name, job) for name, jobs in groups for job in dict.fromkeys(jobs)), MOST_JOBS)
    return [(name, [enabled[job] for _, job in jobs]) for name, jobs in groupby(shown, itemgetter(0))]


def show_job(spec: JobSpec, state: str, today: UptimeSpan, days: Sequence[UptimeSpan]) -> dict[str, Any]:
    shares = {"24h": today.uptime, "30d": add_up(days[-30:]).uptime, "90d": add_up(days).uptime}
    job = {"name": spec.name, "state": state, "badge": f"{spec.id}.svg", "uptime": shares}
    return {**job, "latency_ms": today.percentile(50), "days": [day.uptime for day in days]}


def show_incident(incident: Incident, name: str, secret: bytes) -> dict[str, Any]:
    notes = [{"at_ms": note.at_ms, "text": note.text} for note in incident.notes if note.is_public]
    times = {"since_ms": incident.since_ms, "closed_ms": incident.closed_ms}
    key = key_of(secret, f"{incident.id} {incident.opened_ms}")
    return {"key": key, "name": name, "is_down": incident.reason == FAILING, "notes": notes, **times}


def show_windows(rules: Iterable[MaintenanceRule], specs: Iterable[JobSpec], now_ms: int) -> list[dict[str, Any]]:
    """Return the windows of these jobs now and in the next days, without those that are about none of them."""
    covered = [(rule, names) for rule in rules if (names := [spec.name for spec in specs if rule.covers(spec.id)])]
    planned = planned_windows([rule for rule, _ in covered], now_ms, now_ms + NEXT_DAYS * DAY_MS)
    return [
        {"start_ms": each.start_ms, "end_ms": each.end_ms, "jobs": covered[each.rule][1]}
        for each in islice(planned, MOST_WINDOWS)
    ]


def words_of(states: Sequence[str]) -> tuple[str, str]:
    """Return the gravest state of jobs, and the state of all in a line."""
    gravest = next((state for state in STATES if state in states), "unknown")
    if gravest == "unknown" or set(states) == {"up"}:
        return gravest, "Everything is up" if gravest == "up" else "Nothing is known yet"
    phrase = {"troubled": "with a problem", "maintenance": "in maintenance"}.get(gravest, gravest)
    return gravest, f"{states.count(gravest)} of {counted(len(states), 'service')} {phrase}"


def key_of(secret: bytes, known: str) -> str:
    """Return a UUID that is always the same for a text, and does not give it away."""
    return str(UUID(bytes=blake2b(known.encode(), digest_size=16, key=secret).digest(), version=4))


def render(view: Mapping[str, Any], page: StatusPageSettings, root: Path, timezone: str) -> Mapping[str, ServedFile]:
    """Make the files of the page; files of the project that can't be read, or are large, are left out."""
    icon = {"down": "icon-bad.svg", "troubled": "icon-warn.svg"}.get(view["state"], "icon.svg")
    ours, logo = {"page.style.css": "style.css", "page.icon.svg": icon}, f"page.logo{PurePath(page.logo).suffix}"
    files = {name: static_files()[0][file][0] for name, file in ours.items()}
    for path, name in ((page.logo, logo), (page.style, "page.own.css")):
        with suppress(OSError), open_regular(root / path) as file:
            if len(content := file.read(MIB + 1)) <= MIB:
                files[name] = content
    drawn = {"draw": draw_days, "width": DAYS * STEP, "iso": iso_moment}
    more = {"view": view, "files": [*files], "logo": logo, "zone": timezone, **drawn}
    frame = PageFrame(moments=Moments(view["as_of_ms"], ZoneInfo(timezone)))

    def make(template: str, **values: object) -> bytes:
        return renderer().part(template, frame, {**more, **values}).encode("utf-8", "replace")

    jobs = [job for group in view["groups"] for job in group["jobs"]]
    files |= {job["badge"]: make("badge.svg", job=job) for job in jobs}
    files |= {"feed.xml": make("feed.xml"), HTML: make("status.html")}
    files[JSON] = to_json({**view, "files": [*files]})
    tags = {name: f'W/"{blake2b(content, digest_size=12).hexdigest()}"' for name, content in files.items()}
    return {name: ServedFile(each, gzip.compress(each, LEVEL, mtime=0), tags[name]) for name, each in files.items()}


@Route("GET", "/api/status-page", right=Right.READ, answer=dict[str, bytes], statuses={404: "There is no status page."})
async def list_status_files(request: web.Request) -> web.Response:
    """List the files of the status page by name, each with its content in base64."""
    files = await service_of(request, StatusService).files()
    return json_answer({name: served.content for name, served in files.items()})
