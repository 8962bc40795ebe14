"""A page of the dashboard in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@dataclass  # without slots: playwright keeps its wrappers of bound methods in the object
class Tab:
    """A page of the dashboard, and what the browser has to say about it."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    expected: str = ""  # a complaint that a test causes on purpose

    async def open(self, path: str = "/") -> Page:
        await self.page.goto(self.origin + path)
        return self.page

    async def violations(self, but: str | None = None) -> list[str]:
        """Return what breaks a rule of accessibility, but in elements of this selector."""
        found = await Axe().run(self.page, {"exclude": [[but]]} if but else None)
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found.response["violations"]]

    def listen(self) -> None:
        self.page.on("console", self._complain)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))

    def _complain(self, message: ConsoleMessage) -> None:
        if not (self.expected and self.expected in message.text):
            self.complaints.append(message.text)

    def _note(self, url: str) -> None:
        if not url.startswith(self.origin + "/"):
            self.elsewhere.append(url)


_windows: dict[str, BrowserContext] = {}


async def window_of(browser: Browser, viewport: Any, settings: dict[str, Any]) -> BrowserContext:
    """Return the window for tabs with these settings: to open one takes more processor time than most tests."""
    kind = f"{id(browser)} {viewport} {settings}"
    if kind not in _windows:
        _windows[kind] = await browser.new_context(viewport=viewport, **settings)
        await _windows[kind].new_page()  # or it would be closed with its last tab
    return _windows[kind]


async def close_tabs(window: BrowserContext) -> None:
    for page in window.pages[1:]:
        await page.close()
    await window.clear_cookies()


@asynccontextmanager
async def opened(browser: Browser, origin: str, viewport: Any = WIDE, **settings: Any) -> AsyncIterator[Tab]:
    """Open a tab, in which the browser has nothing to complain about, nor asks for anything elsewhere.

    Of tabs before it nothing is left.
    """
    window = await window_of(browser, viewport, settings)
    tab = Tab(await window.new_page(), origin)
    tab.listen()
    yield tab
    session = await window.new_cdp_session(tab.page)
    await session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    await close_tabs(window)
    assert tab.complaints == []
    assert tab.elsewhere == []
