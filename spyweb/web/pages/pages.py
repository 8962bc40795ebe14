"""The tables of all pages and actions of the dashboard: a new module is one more here, and fills them."""

from __future__ import annotations

from spyweb.web.pages import (  # noqa: F401
    events,
    health,
    incidents,
    job,
    keys,
    outbox,
    overview,
    records,
    runs,
    sign_in,
    site,
    state,
    when,
)
from spyweb.web.pages.page import ACTIONS, PAGES

__all__ = ("ACTIONS", "PAGES")
