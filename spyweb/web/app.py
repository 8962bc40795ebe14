"""The two apps: what TCP serves, and what the socket of the data directory serves."""

from __future__ import annotations

from aiohttp import web

from spyweb.web import health, jobs, runs, state
from spyweb.web.auth import require_key, require_loopback_host
from spyweb.web.desk import DESK, Desk
from spyweb.web.errors import answer_errors


def tcp_app(desk: Desk, api_key: str | None) -> web.Application:
    guard = require_key(api_key) if api_key else require_loopback_host
    app = web.Application(middlewares=[answer_errors, guard])
    app[DESK] = desk
    app.add_routes([*health.public_routes, *jobs.public_routes])
    return app


def socket_app(desk: Desk) -> web.Application:
    """Every command.  No key: the socket's mode lets nobody in but the daemon's own user."""
    app = web.Application(middlewares=[answer_errors])
    app[DESK] = desk
    app.add_routes([*health.routes, *jobs.routes, *runs.routes, *state.routes])
    return app
