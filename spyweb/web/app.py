"""The two apps: what TCP serves, and what the socket of the data directory serves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from spyweb.endpoints.endpoints import Endpoints
from spyweb.service.daemon import DaemonService
from spyweb.web import health, jobs, outbox, records, runs, state
from spyweb.web.auth import Guard, guarded_by, require_key, require_loopback_host
from spyweb.web.body import BODY_MEMORY, BodyMemory
from spyweb.web.endpoints import add_endpoints
from spyweb.web.errors import answer_errors
from spyweb.web.keys import CATALOGUE, SERVICE, Catalogue
from spyweb.web.streams import OPEN_STREAMS, OpenStreams
from spyweb.web.ui import add_ui


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a project adds to the door."""

    endpoints: Endpoints | None = None
    ui: Path | None = None  # the folder; it may come and go


def tcp_app(service: DaemonService, api_key: str | None, site: Site | None = None) -> web.Application:
    guard = require_key(api_key) if api_key else require_loopback_host
    app = web.Application(middlewares=[answer_errors, guarded_by(guard)])
    app[SERVICE] = app[CATALOGUE] = service
    app.add_routes(health.public_routes)
    _add_site(app, site or Site(), guard)
    return app


def project_app(catalogue: Catalogue, site: Site) -> web.Application:
    """A project's own server, as its tests meet it."""
    app = web.Application(middlewares=[answer_errors, guarded_by(require_loopback_host)])
    app[CATALOGUE] = catalogue
    _add_site(app, site, require_loopback_host)
    return app


def _add_site(app: web.Application, site: Site, guard: Guard) -> None:
    app.add_routes([*jobs.public_routes, *records.routes])
    if site.endpoints:
        add_endpoints(app, site.endpoints, guard)
    if site.ui:
        add_ui(app, site.ui)


def socket_app(service: DaemonService) -> web.Application:
    """Every command.  No key: the socket's mode lets nobody in but the daemon's own user."""
    app = web.Application(middlewares=[answer_errors])
    app[SERVICE] = app[CATALOGUE] = service
    app[BODY_MEMORY] = BodyMemory()
    app[OPEN_STREAMS] = OpenStreams()
    app.add_routes([*health.routes, *jobs.routes, *records.routes, *outbox.routes, *runs.routes, *state.routes])
    return app
