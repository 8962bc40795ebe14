"""Declaring pages and actions."""

from __future__ import annotations

import sys

from aiohttp import web

from spyweb.web.access.rights import PUBLIC, Right
from spyweb.web.pages.page import ACTIONS, PAGES, Asked, Shown, action, actions_of, lead_to, page, pages_of


def test_a_page_whose_path_names_a_job_is_one_of_a_job() -> None:
    async def show(asked: Asked) -> Shown:
        """Show nothing."""
        return Shown(title=str(asked.base), values={})

    assert page("jobs/{job}/nothing", "error.html")(show) is show
    try:
        declared = pages_of(sys.modules[__name__])[-1]
        assert (declared.of_job, declared.right) == (True, Right.READ)
    finally:
        PAGES.remove(declared)


def test_an_action_says_what_it_needs() -> None:
    async def do(asked: Asked) -> web.Response:
        """Do nothing."""
        return lead_to(asked.base)

    assert action("nothing", right=PUBLIC)(do) is do
    try:
        declared = actions_of(sys.modules[__name__])[-1]
        assert (declared.of_job, declared.right, declared.question) == (False, None, None)
    finally:
        ACTIONS.remove(declared)


def test_done_leads_to_a_page() -> None:
    answer = lead_to("/jobs/prices")
    assert (answer.status, answer.headers["Location"]) == (303, "/jobs/prices")
