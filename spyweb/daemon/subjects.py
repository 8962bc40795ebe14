"""All subjects that the server serves: a new one is one more line here.

Whoever imports a module of routes or pages has them put into their tables, so the order is that of the document.
"""

from __future__ import annotations

import spyweb.web.pages.events
import spyweb.web.pages.health
import spyweb.web.pages.incidents
import spyweb.web.pages.job
import spyweb.web.pages.keys
import spyweb.web.pages.maintenance
import spyweb.web.pages.outbox
import spyweb.web.pages.overview
import spyweb.web.pages.records
import spyweb.web.pages.runs
import spyweb.web.pages.sign_in
import spyweb.web.pages.state
import spyweb.web.pages.when  # noqa: F401
from spyweb.web.api import (
    access,
    channels,
    document,
    drift,
    events,
    health,
    hooks,
    incidents,
    jobs,
    maintenance,
    outbox,
    records,
    runs,
    state,
    when,
    workflows,
)
from spyweb.web.api.route import Addresses, Route, routes_of
from spyweb.web.pages.ack import ack_routes
from spyweb.web.pages.page import ACTIONS, PAGES
from spyweb.web.pages.site import page_routes

# In the order of the document and the reference.
MODULES = (
    jobs,
    hooks,
    runs,
    workflows,
    when,
    drift,
    records,
    state,
    outbox,
    incidents,
    maintenance,
    channels,
    access,
    health,
    events,
    document,
)

ROUTES: list[Route] = [each for module in MODULES for each in routes_of(module)]
ADDRESSES = Addresses(routes=ROUTES, pages=[*page_routes(PAGES, ACTIONS), *ack_routes()])
