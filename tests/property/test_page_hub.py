"""Live pages under any order of changes, stalls, cuts and ticks: whoever reads again sees how things are.

A browser fetches a page anew where it is told to, as `reset` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.service import page_hub
from spyweb.service.page_hub import TICK_S
from tests.fakes.live_page import Page, Pages, live_pages

JOBS = [f"j{number}" for number in range(12)]
PAGES = 3

CHANGE = st.tuples(st.just("change"), st.lists(st.sampled_from(JOBS), min_size=1, max_size=8))
STEPS = st.one_of(
    CHANGE,
    CHANGE,
    st.tuples(st.sampled_from(["stall", "read", "cut", "come back", "open"]), st.integers(0, PAGES - 1)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, TICK_S, 10.0, 31.0, 130.0])),
)


class Browser:
    """Has some pages, each of which shows what it was sent, and fetches itself anew when it is told to."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.open: list[Page | None] = [None] * PAGES
        self.marks: list[str] = [""] * PAGES
        self.shown: list[dict[str, str]] = [{} for _ in range(PAGES)]

    async def fetch(self, number: int) -> None:
        self.shown[number] = {f"row-{job}": str(count) for job, count in self.pages.rows.counts.items()}
        self._connected(number, await self.pages.open())

    async def come_back(self, number: int) -> None:
        page = await self.pages.open(mark=self.marks[number])
        if page.stream is None:
            await self.fetch(number)
        else:
            self._connected(number, page)

    def _connected(self, number: int, page: Page) -> None:
        self.open[number] = page

    async def take(self, number: int) -> None:
        """Read what has come; fetch anew where that is said, or the connection is gone."""
        page = self.open[number]
        if page is None:
            return
        page.read()
        self.shown[number].update(page.shown)
        self.marks[number] = page.mark
        if page.sink.story:  # ended or aborted
            self.open[number] = None
            await (self.fetch(number) if page.resets else self.come_back(number))

    def cut(self, number: int) -> None:
        page = self.open[number]
        if page and page.stream:
            self.marks[number] = page.mark
            self.pages.hub.leave(page.stream)
        self.open[number] = None

    async def step(self, what: str, which: object) -> None:
        clock = self.pages.clock
        match what, which:
            case "change", [*jobs]:
                self.pages.change(*map(str, jobs))
            case "wait", float(seconds):
                await clock.turn(seconds)
            case _, int(number):
                await self._step_of(what, number)

    async def _step_of(self, what: str, number: int) -> None:
        page = self.open[number]
        if what == "stall" and page:
            page.sink.unsent = 1
        elif what == "read" and page:
            page.sink.unsent = 0
            await self.take(number)
        elif what == "cut":
            await self.take(number)
            self.cut(number)
        elif what == "come back" and not page and self.marks[number]:
            await self.come_back(number)
        elif what == "open" and not page:
            await self.fetch(number)

    async def catch_up(self) -> None:
        """Come back everywhere, and read until nothing is missing."""
        for number in range(PAGES):
            if self.marks[number] and self.open[number] is None:
                await self.come_back(number)
        for _ in range(12):
            for number, page in enumerate(self.open):
                if page:
                    page.sink.unsent = 0
                    await self.take(number)
            await self.pages.clock.turn(TICK_S)
        for number in range(PAGES):
            await self.take(number)


async def live_through(steps: Sequence[tuple[str, object]]) -> None:
    async with live_pages() as pages:
        browser = Browser(pages)
        for number in range(PAGES):
            await browser.fetch(number)
        for what, which in steps:
            await browser.step(what, which)
        await browser.catch_up()
        now = {f"row-{job}": str(count) for job, count in pages.rows.counts.items()}
        for page, shown in zip(browser.open, browser.shown, strict=True):
            if page:
                verdict = shown.pop("verdict", None)
                assert verdict in (None, str(sum(pages.rows.counts.values())))
                assert {part: text for part, text in shown.items() if text != "0"} == now


@pytest.mark.parametrize(("parts", "subjects"), [(3, 100), (100, 8), (3, 8)])
@given(st.lists(STEPS, min_size=3, max_size=40))
def test_a_page_looks_as_things_are(parts: int, subjects: int, steps: list[tuple[str, object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_hub, "MOST_PARTS", parts)
        patch.setattr(page_hub, "MOST_SUBJECTS", subjects)
        asyncio.run(live_through(steps))
