"""All subjects of the server; a new subject adds a line here, and in daemon/services.py.

A module puts its routes and pages into their tables when it is imported; MODULES has the order of the document.
"""

from __future__ import annotations

# ruff: noqa: F401 - modules that fill a table when they are imported
import spyweb.subjects.access.pages
import spyweb.subjects.events.pages
import spyweb.subjects.health.pages
import spyweb.subjects.incidents.pages
import spyweb.subjects.jobs.pages
import spyweb.subjects.nodes.pages
import spyweb.subjects.outbox.pages
import spyweb.subjects.records.pages
import spyweb.subjects.runs.pages
import spyweb.subjects.state.pages
import spyweb.subjects.when.pages
import spyweb.web.pages.api_docs
from spyweb.subjects.access import api as access
from spyweb.subjects.drift import api as drift
from spyweb.subjects.events import api as events
from spyweb.subjects.health import api as health
from spyweb.subjects.hooks import api as hooks
from spyweb.subjects.incidents import api as incidents
from spyweb.subjects.incidents.pages import ack_routes
from spyweb.subjects.jobs import api as jobs
from spyweb.subjects.nodes import api as nodes
from spyweb.subjects.outbox import api as outbox
from spyweb.subjects.records import api as records
from spyweb.subjects.runs import api as runs
from spyweb.subjects.state import api as state
from spyweb.subjects.status import service as status
from spyweb.subjects.uptime import api as uptime
from spyweb.subjects.when import api as when
from spyweb.subjects.workflows import api as workflows
from spyweb.web.api import document
from spyweb.web.api.route import Addresses, Route, routes_of
from spyweb.web.pages import site
from spyweb.web.pages.page import ACTIONS, PAGES
from spyweb.web.pages.site import page_routes

MODULES = (
    jobs,
    hooks,
    runs,
    uptime,
    workflows,
    when,
    drift,
    records,
    state,
    outbox,
    incidents,
    access,
    health,
    status,
    nodes,
    events,
    document,
)

ROUTES: list[Route] = [each for module in MODULES for each in routes_of(module)]
ADDRESSES = Addresses(routes=ROUTES, pages=[*page_routes(PAGES, ACTIONS), *ack_routes()])
