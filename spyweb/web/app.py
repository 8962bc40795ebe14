"""Build the apps of the HTTP server, with every address that each of them serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from spyweb.endpoints.endpoints import Endpoints
from spyweb.limits import SOCKET_BODY
from spyweb.service.daemon import DaemonService
from spyweb.web.access.guard import AccessRule, Recognise, by_key, by_loopback, by_socket, guarded_by
from spyweb.web.answer import answer_errors
from spyweb.web.api.document import DOCUMENTED, MADE
from spyweb.web.api.keys import CATALOGUE, LARGEST_BODY, SERVICE, Catalogue
from spyweb.web.api.route import Route
from spyweb.web.api.routes import ROUTES
from spyweb.web.api.streams import OPEN_STREAMS, OpenStreams
from spyweb.web.body import BODY_MEMORY, LARGEST, BodyMemory
from spyweb.web.endpoints import ENDPOINT_ROUTES, ENDPOINT_RULES, ENDPOINTS
from spyweb.web.pages.pages import ACTIONS, PAGES
from spyweb.web.pages.site import PageRoute, base_of, page_routes, showing_errors
from spyweb.web.ui import UI, UI_ROUTES

# What the server of a project's own tests has beside the endpoints.
OF_PROJECT = ("/api/jobs", "/api/records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts that a project adds to the server."""

    endpoints: Endpoints | None = None
    ui: Path | None = None  # the folder; it may come and go


def tcp_app(service: DaemonService, api_key: str | None, site: Site | None = None) -> web.Application:
    site = site or Site()
    base = base_of(site.ui)
    pages = page_routes(base, site.ui, PAGES, ACTIONS)
    rules = {**ENDPOINT_RULES, **{each.handler: each.rule for each in pages}}
    recognise = by_key(api_key) if api_key else by_loopback
    app = _app(ROUTES, recognise, rules, showing_errors(base, site.ui))
    _add_service(app, service, LARGEST)
    _add_routes(app, pages)
    _add_site(app, site)
    return app


def project_app(catalogue: Catalogue, site: Site) -> web.Application:
    """Make the project's own server, as its tests reach it."""
    app = _app([each for each in ROUTES if each.path in OF_PROJECT], by_loopback, ENDPOINT_RULES)
    app[CATALOGUE], app[BODY_MEMORY] = catalogue, BodyMemory()
    _add_site(app, site)
    return app


def socket_app(service: DaemonService) -> web.Application:
    """Make the app of the private socket; it needs no key: only the daemon's own user may open the socket."""
    app = _app(ROUTES, by_socket, {})
    _add_service(app, service, SOCKET_BODY)
    return app


def _app(
    routes: Sequence[Route], recognise: Recognise, others: Mapping[Handler, AccessRule], *middlewares: Middleware
) -> web.Application:
    rules = {each.handler: AccessRule(each.right, each.of_job) for each in routes}
    guard = guarded_by(recognise, {**rules, **others})
    app = web.Application(middlewares=[answer_errors, *middlewares, guard])
    _add_routes(app, routes)
    app[DOCUMENTED], app[MADE] = routes, []
    return app


def _add_routes(app: web.Application, routes: Iterable[Route | PageRoute]) -> None:
    for each in routes:
        app.router.add_route(each.method, each.path, each.handler)
        if each.method == "GET":
            app.router.add_route("HEAD", each.path, each.handler)


def _add_service(app: web.Application, service: DaemonService, largest_body: int) -> None:
    app[SERVICE] = app[CATALOGUE] = service
    app[BODY_MEMORY], app[LARGEST_BODY] = BodyMemory(), largest_body
    app[OPEN_STREAMS] = OpenStreams()


def _add_site(app: web.Application, site: Site) -> None:
    if site.endpoints:
        app[ENDPOINTS] = site.endpoints
        app.add_routes(ENDPOINT_ROUTES)
    if site.ui:
        app[UI] = site.ui
        app.add_routes(UI_ROUTES)  # last: they take every address that is left
