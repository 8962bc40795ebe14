"""Build the apps of the HTTP server, each with all its addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct
from msgspec.structs import replace

from spyweb import limits
from spyweb.endpoints import Endpoints
from spyweb.ops.network.address_check import OwnSockets
from spyweb.web.access.audit import AuditService
from spyweb.web.access.guard import OPEN_REQUESTS, TRAIL, OpenRequests, Trail, guarded_by
from spyweb.web.access.headers import DASHBOARD_PORT, HOSTS, PORT
from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import SOCKET
from spyweb.web.access.recognise import RECOGNISER, AccessRule, Recogniser, Throttle, by_loopback
from spyweb.web.answer import answer_errors
from spyweb.web.api.document import DOCUMENTED, MADE
from spyweb.web.api.route import LARGEST_BODY, PageRoute, Route
from spyweb.web.api.services import SERVICES, Services
from spyweb.web.body import BODY_MEMORY, LARGEST, BodyMemory
from spyweb.web.endpoints import ENDPOINT_ROUTES, ENDPOINT_RULES, ENDPOINTS, UI, UI_ROUTES
from spyweb.web.event_streams import EVENT_STREAMS, OPEN_STREAMS, PAGE_STREAMS, StreamCounter
from spyweb.web.pages.site import showing_errors

# Routes that pages of a project use beside its endpoints, as with SpyWeb.
OF_PROJECT = ("/api/jobs", "/api/records")


class Site(Struct, frozen=True, kw_only=True):
    """The parts that a project adds to the server."""

    endpoints: Endpoints | None = None
    ui: Path | None = None  # the folder; it may come and go
    hosts: tuple[str, ...] = ()  # names under which a reverse proxy is asked
    has_content: Callable[[], bool] = lambda: False  # reads the disk
    answer_first: Sequence[Middleware] = ()  # before it is known who asks


def tcp_app(services: Services, site: Site | None = None, port: int = 0) -> web.Application:
    """Make the app of the dashboard and the API; the project's content has another app and another origin."""
    site, addresses = site or Site(), services.addresses
    rules = {**_rules_of(addresses.routes), **{each.handler: each.rule for each in addresses.pages}}
    underway = OpenRequests(services[AccessService])
    recogniser = Recogniser(services[AccessService], Throttle(services.clock), services[OwnSockets])
    trail = Trail(services[AuditService], services.clock)
    app = _app(addresses.routes, showing_errors, guarded_by(recogniser, rules, trail, underway, services.forwarder))
    app.on_response_prepare.append(underway.note_begun)
    app[HOSTS], app[PORT] = frozenset(site.hosts), port
    app[RECOGNISER], app[TRAIL], app[OPEN_REQUESTS] = recogniser, trail, underway
    _add_services(app, services, LARGEST)
    _add_routes(app, addresses.pages)
    return app


def content_app(dashboard: web.Application, site: Site, dashboard_port: int = 0) -> web.Application:
    """Make the app of the project's content, beside that of the dashboard: limits and counts are of both together.

    With a key it serves the whole API, without one the routes of the project's pages; it accepts no session.
    """
    recogniser, underway = dashboard[RECOGNISER].of_content(), dashboard[OPEN_REQUESTS]
    routes = dashboard[SERVICES].addresses.routes
    rules = {**_rules_of(routes), **ENDPOINT_RULES}
    rules |= {each.handler: replace(rules[each.handler], of_project=True) for each in routes if each.path in OF_PROJECT}
    guard = guarded_by(recogniser, rules, dashboard[TRAIL], underway, dashboard[SERVICES].forwarder)
    app = _app(routes, *site.answer_first, guard)
    app.update({key: value for key, value in dashboard.items() if key not in app})
    app.on_response_prepare.append(underway.note_begun)
    app[RECOGNISER], app[DASHBOARD_PORT] = recogniser, dashboard_port
    app.on_shutdown.extend([app[EVENT_STREAMS].end_all, app[PAGE_STREAMS].end_all])
    _add_site(app, site)
    return app


def project_app(services: Services, site: Site) -> web.Application:
    """Make the project's own server, as its tests reach it."""
    routes = [each for each in services.addresses.routes if each.path in OF_PROJECT]
    app = _app(routes, guarded_by(by_loopback, {**_rules_of(routes), **ENDPOINT_RULES}))
    app[SERVICES], app[BODY_MEMORY] = services, BodyMemory()
    _add_site(app, site)
    return app


def socket_app(services: Services) -> web.Application:
    """Make the app of the private socket; it needs no key: only the daemon's own user may open the socket."""
    routes = services.addresses.routes
    trail = Trail(services[AuditService], services.clock)
    app = _app(routes, guarded_by(lambda *_: SOCKET, _rules_of(routes), trail, forwarder=services.forwarder))
    _add_services(app, services, limits.SOCKET_BODY)
    return app


def _rules_of(routes: Iterable[Route]) -> dict[Handler, AccessRule]:
    return {
        each.handler: AccessRule(each.right, each.of_job, each.at_owner, asks_itself=each.asks_itself)
        for each in routes
    }


def _app(routes: Sequence[Route], *middlewares: Middleware) -> web.Application:
    app = web.Application(middlewares=[answer_errors, *middlewares])
    _add_routes(app, routes)
    app[DOCUMENTED], app[MADE] = routes, []
    return app


def _add_routes(app: web.Application, routes: Iterable[Route | PageRoute]) -> None:
    for each in routes:
        app.router.add_route(each.method, each.path, each.handler)
        if each.method == "GET":
            app.router.add_route("HEAD", each.path, each.handler)


def _add_services(app: web.Application, services: Services, largest_body: int) -> None:
    app[SERVICES] = services
    app[BODY_MEMORY], app[LARGEST_BODY] = BodyMemory(), largest_body
    app[OPEN_STREAMS] = StreamCounter(limits.STREAMS)
    app[EVENT_STREAMS] = StreamCounter(limits.EVENT_STREAMS, limits.STREAMS_OF_ONE)
    app[PAGE_STREAMS] = StreamCounter(limits.PAGE_STREAMS, limits.STREAMS_OF_ONE)
    app.on_shutdown.extend([app[EVENT_STREAMS].end_all, app[PAGE_STREAMS].end_all])


def _add_site(app: web.Application, site: Site) -> None:
    if site.endpoints:
        app[ENDPOINTS] = site.endpoints
        app.add_routes(ENDPOINT_ROUTES)
    if site.ui:
        app[UI] = site.ui
        app.add_routes(UI_ROUTES)  # last: they take every address that is left
