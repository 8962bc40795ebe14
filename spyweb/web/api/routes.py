"""The table of all routes of the API: a new resource is one more module here."""

from __future__ import annotations

from spyweb.web.api import (
    access,
    channels,
    document,
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
)
from spyweb.web.api.route import Route, routes_of

# In the order of the document and the reference.
MODULES = (
    jobs,
    hooks,
    runs,
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
