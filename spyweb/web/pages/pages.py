"""The table of all pages of the dashboard: a new one is one more module here."""

from __future__ import annotations

from spyweb.web.pages import (
    channels,
    events,
    health,
    incidents,
    job,
    keys,
    maintenance,
    outbox,
    overview,
    records,
    runs,
    sign_in,
    source,
    state,
    theme,
    trial,
    when,
)
from spyweb.web.pages.page import Action, DashboardPage, actions_of, pages_of

MODULES = (
    *(overview, incidents, channels, maintenance, job, trial, source, runs, when),
    *(records, state, events, outbox, health, keys, sign_in, theme),
)

PAGES: list[DashboardPage] = [each for module in MODULES for each in pages_of(module)]
ACTIONS: list[Action] = [each for module in MODULES for each in actions_of(module)]
