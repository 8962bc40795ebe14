"""The page of a run, and the list of all."""

from __future__ import annotations

import re
from typing import cast

from spyweb.model import Outcome, RunState
from spyweb.store.model.access import Scope
from tests.fakes.daemon_service import BACKUP, make_run
from tests.fakes.dashboard import (
    DashboardPast,
    dashboard,
    get_page,
    make_dashboard_service,
    page_of,
    post_form,
    signed_in,
)


async def test_it_says_what_happened_and_why() -> None:
    page = await page_of("/runs/2")
    assert re.search(r"</svg>Failed after <?", page)
    assert "jobs/backup.lua:3: disk" in page
    assert "4 failing" not in page
    assert page.count("&lt;script&gt;") > 10


async def test_a_run_that_is_not_there_is_said_so() -> None:
    async with dashboard() as client:
        status, page = await get_page(client, "/runs/77")
        assert status == 404
        assert "There is no run 77</h1>" in page
        assert (await get_page(client, "/runs/x"))[0] == 400


async def test_a_run_under_way_can_be_cancelled_once_asked() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(9, state=RunState.RUNNING, outcome=None, ended_ms=None)]
    page = await page_of("/runs/9", service)
    assert "data-mark=" in page
    assert "data-ask=" in page
    assert "Cancel this run?</h1>" in (await post_form(service, "/runs/9/cancel"))[2]
    assert service.story == []
    assert (await post_form(service, "/runs/9/cancel", sure="yes"))[:2] == (303, "/runs/9")
    assert service.story == ["cancel 9"]


async def test_runs_are_listed_with_filters() -> None:
    service = make_dashboard_service()
    past = cast(DashboardPast, service.past)
    async with dashboard(service) as client:
        status, page = await get_page(client, "/runs?job=prices&outcome=failed&before=40")
        assert status == 200
        assert (past.searched[-1].job, past.searched[-1].outcomes) == ("prices", [Outcome.FAILED])
        assert 'href="/runs?job=prices&amp;outcome=failed&amp;before=1"' in page
        assert re.search(r'href="/runs\?job=prices&amp;outcome=failed" aria-current="true">Failed', page)
        await get_page(client, "/runs?outcome=nonsense")
        assert past.searched[-1].outcomes == []
        assert (await get_page(client, "/runs?before=x"))[0] == 400


async def test_a_run_that_waits_for_its_turn_has_not_begun_in_1970() -> None:
    service = make_dashboard_service()
    waiting = make_run(41, state=RunState.WAITING, outcome=None, due_ms=None, started_ms=None, ended_ms=None)
    service.known_runs = [waiting]
    for address in ("/runs", "/jobs/prices"):
        page = await page_of(address, service)
        assert "1970" not in page
        assert '<a href="/runs/41">not yet</a>' in page


async def test_a_key_of_some_jobs_is_told_of_no_other_before_or_after_a_run() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(8, job=BACKUP)]
    async with dashboard(service) as client:
        _, page = await get_page(client, "/runs/8")
        assert [f'href="/runs/{other}"' in page for other in (1, 99)] == [True, True]
        limited = await signed_in(service, Scope.READ, jobs=("backup",))
        status, page = await get_page(client, "/runs/8", **limited)
    assert status == 200
    assert [f'href="/runs/{other}"' in page for other in (1, 99)] == [False, False]
