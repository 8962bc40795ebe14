"""Build the apps of the HTTP server, with every address that each of them serves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from spyweb.endpoints.endpoints import Endpoints
from spyweb.service.daemon import DaemonService
from spyweb.web.answer import answer_errors
from spyweb.web.api import health, jobs, outbox, records, runs, state
from spyweb.web.api.keys import CATALOGUE, SERVICE, Catalogue
from spyweb.web.api.streams import OPEN_STREAMS, OpenStreams
from spyweb.web.auth import guarded_by, require_key, require_loopback_host
from spyweb.web.body import BODY_MEMORY, BodyMemory
from spyweb.web.endpoints import ENDPOINT_ROUTES, ENDPOINTS
from spyweb.web.ui import UI, UI_ROUTES

# What TCP serves of any project, and what it serves of one that a daemon runs.
PROJECT_ROUTES = [
    web.get("/api/jobs", jobs.list_jobs),
    web.get("/api/records", records.list_records),
]
TCP_ROUTES = [web.get("/healthz", health.probe), *PROJECT_ROUTES]

# What the socket of the data directory serves: every command.
SOCKET_ROUTES = [
    *TCP_ROUTES,
    web.get("/api/health", health.examine),
    web.get("/api/next", jobs.list_next),
    web.get("/api/warnings", jobs.list_warnings),
    web.post("/api/jobs/{job}/trigger", jobs.trigger),
    web.post("/api/jobs/{job}/pause", jobs.pause),
    web.post("/api/jobs/{job}/resume", jobs.resume),
    web.get("/api/jobs/{job}/logs", jobs.read_log),
    web.get("/api/runs", runs.list_runs),
    web.get("/api/runs/{run}/tasks", runs.list_tasks),
    web.post("/api/jobs/{job}/run", runs.run_once),
    web.get("/api/outbox", outbox.list_messages),
    web.post("/api/outbox/retry", outbox.retry_messages),
    web.get("/api/state/entries", state.list_entries),
    web.delete("/api/state/entries", state.clear_entries),
    web.get("/api/state/entry", state.read_entry),
    web.put("/api/state/entry", state.put_entry),
    web.delete("/api/state/entry", state.delete_entry),
    web.get("/api/state/count", state.count_entries),
    web.get("/api/state/stats", state.show_stats),
    web.get("/api/state/history", state.list_history),
    web.post("/api/state/rollback", state.roll_back),
    web.get("/api/state/locks", state.list_locks),
    web.delete("/api/state/locks", state.break_lock),
    web.get("/api/state/export", state.export_entries),
    web.post("/api/state/import", state.import_entries),
    web.post("/api/state/records", state.add_records),
    web.post("/api/state/move", state.move_entries),
    web.get("/api/state/watch", state.watch_changes),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts that a project adds to the server."""

    endpoints: Endpoints | None = None
    ui: Path | None = None  # the folder; it may come and go


def tcp_app(service: DaemonService, api_key: str | None, site: Site | None = None) -> web.Application:
    guard = require_key(api_key) if api_key else require_loopback_host
    app = web.Application(middlewares=[answer_errors, guarded_by(guard)])
    app[SERVICE] = app[CATALOGUE] = service
    app.add_routes(TCP_ROUTES)
    _add_site(app, site or Site())
    return app


def project_app(catalogue: Catalogue, site: Site) -> web.Application:
    """Make the project's own server, as its tests reach it."""
    app = web.Application(middlewares=[answer_errors, guarded_by(require_loopback_host)])
    app[CATALOGUE] = catalogue
    app.add_routes(PROJECT_ROUTES)
    _add_site(app, site)
    return app


def _add_site(app: web.Application, site: Site) -> None:
    if site.endpoints:
        app[ENDPOINTS], app[BODY_MEMORY] = site.endpoints, BodyMemory()
        app.add_routes(ENDPOINT_ROUTES)
    if site.ui:
        app[UI] = site.ui
        app.add_routes(UI_ROUTES)  # last: they take every address that is left


def socket_app(service: DaemonService) -> web.Application:
    """Make the app of the private socket; it needs no key: only the daemon's own user may open the socket."""
    app = web.Application(middlewares=[answer_errors])
    app[SERVICE] = app[CATALOGUE] = service
    app[BODY_MEMORY] = BodyMemory()
    app[OPEN_STREAMS] = OpenStreams()
    app.add_routes(SOCKET_ROUTES)
    return app
