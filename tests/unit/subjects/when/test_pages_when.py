"""The page about what runs when, and what did not."""

from __future__ import annotations

import re

from tests.fakes.dashboard import (
    dashboard,
    get_page,
    page_of,
)


async def test_it_says_when_most_jobs_start_and_draws_the_day() -> None:
    page = await page_of("/when")
    assert re.search(r"Busiest at <time[^>]*>03:00</time>: 3 jobs start within a minute</h1>", page)
    assert page.count('<svg viewBox="0 0 97 1"') == 3
    assert "3\N{NO-BREAK SPACE}runs in the next 24 hours, of 3\N{NO-BREAK SPACE}jobs." in page
    assert '<a href="/when" aria-current="page">When' in page


async def test_each_gap_has_its_reason_and_what_followed() -> None:
    page = await page_of("/when")
    gaps = re.findall(r'<tr id="g-(\d)">', page)
    assert gaps == ["3", "2", "1"]
    for word in ("skipped", "paused", "lost"):
        assert f"{word}</span>" in page
    assert '<a href="/runs/2">' in page
    assert "nothing yet" in page


async def test_it_says_what_is_now_and_what_comes() -> None:
    async with dashboard() as client:
        status, page = await get_page(client, "/maintenance")
        assert status == 200
        assert "Maintenance now, until <time" in page
        assert "7\N{NO-BREAK SPACE}times in 7 days" in page
        assert page.count('<path class="h3"') == 2
        assert 'aria-label="7\N{NO-BREAK SPACE}windows"' in page
        assert "<code>0 3 * * *</code>" in page
        _, page = await get_page(client, "/incidents")
        assert '<a href="/maintenance">Maintenance</a> until' in page
        assert "what fails does not count" in (await get_page(client, "/jobs/backup"))[1]
