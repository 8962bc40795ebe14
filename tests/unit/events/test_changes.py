"""What an open page is told of, and what it finds when it asks."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from spyweb.errors import PoolError, StoreError
from spyweb.events import changes as module
from spyweb.events.changes import LOG_LINES, MOST_TICKS, ROOM, TICK_S, ChangeHub, PageFollower, Shows
from spyweb.events.happenings import EventType, JobHappened, RunHappened
from spyweb.events.hub import LINGER_S, MOST_KEPT
from spyweb.model import JobId, Outcome, RunId
from spyweb.runs.live import JobChange
from tests.fakes.clock import FakeClock
from tests.fakes.listening import BACKUP, PRICES, Listening

ROWS = Shows((("", ("jobs",)), ("verdict", ("job:*",)), ("row-*", ("job:*",)), ("icon", ("standing",))))
ONE = Shows((("head", ("job:prices", "incident")), ("log", ("log:prices",))))
LIMITED = Shows(ROWS.parts, ("pri*",))


@dataclass(slots=True)
class Page:
    """An open page: how often it was told, and of what."""

    hub: ChangeHub
    shows: Shows
    mark: str
    woken: int = 0
    follower: PageFollower = field(init=False)

    def __post_init__(self) -> None:
        self.follower = self.hub.follow(self.shows, self.mark, self.wake)
        assert self.follower.take() == b"retry: 3000\n\n"

    def wake(self) -> None:
        self.woken += 1

    def fetch(self) -> list[str] | None:
        parts, self.mark = self.hub.changed(self.shows, self.mark), self.hub.mark(self.shows)
        return parts


@dataclass(slots=True)
class Opened:
    listening: Listening = field(default_factory=lambda: Listening(clock=FakeClock()))
    lines: list[str] = field(default_factory=list)
    hub: ChangeHub = field(init=False)

    def __post_init__(self) -> None:
        self.hub = ChangeHub(events=self.listening.hub, clock=self.clock, last_lines=self.last_lines)

    @property
    def clock(self) -> FakeClock:
        return self.listening.clock

    async def last_lines(self, _job: JobId, count: int, note_place: Callable[[], None]) -> list[str]:
        note_place()
        return self.lines[-count:]

    def page(self, shows: Shows = ROWS) -> Page:
        return Page(self.hub, shows, self.hub.mark(shows))

    def ended(self, job: JobId = PRICES, *, changes_standing: bool = False, items_new: int | None = None) -> None:
        happened = RunHappened(what="ended", job=job, run=RunId(7), outcome=Outcome.SUCCESS, items_new=items_new)
        self.listening.hub.publish(EventType.RUN, job, happened, changes_standing=changes_standing)

    def reload(self, what: JobChange, job: JobId = PRICES) -> None:
        self.listening.hub.publish(EventType.JOB, job, JobHappened(what=what, job=job))

    async def line(self, text: str) -> None:
        """A script logs a line: it is told of, and in the file."""
        self.lines.append(f"2026-01-01T00:00:00.000Z INFO {text}")
        self.listening.line(text)


@pytest.fixture
def opened() -> Opened:
    return Opened()


async def test_a_page_is_told_once_that_something_has_changed_and_finds_what(opened: Opened) -> None:
    page = opened.page()
    for job in (PRICES, PRICES, BACKUP):
        opened.ended(job)
    await opened.clock.turn(TICK_S)
    assert page.woken == 1
    assert page.follower.take() == f"id: {opened.listening.hub.mark()}\ndata:\n\n".encode()
    assert page.follower.take() == b""
    assert page.fetch() == ["row-backup", "row-prices", "verdict"]
    assert page.fetch() == []
    await opened.clock.turn(5 * TICK_S)
    assert page.woken == 1


async def test_it_hears_of_what_it_shows_alone(opened: Opened) -> None:
    pages = {shows: opened.page(shows) for shows in (ROWS, ONE, LIMITED)}
    opened.ended(BACKUP)
    await opened.clock.turn(TICK_S)
    assert {shows: page.woken for shows, page in pages.items()} == {ROWS: 1, ONE: 0, LIMITED: 0}
    opened.ended(PRICES)
    assert [page.fetch() for page in pages.values()] == [
        ["row-backup", "row-prices", "verdict"],
        ["head"],
        ["row-prices", "verdict"],
    ]


async def test_the_bar_hears_of_ends_that_are_not_as_the_last_one(opened: Opened) -> None:
    page = opened.page(Shows((("icon", ("standing",)), ("records", ("records",)))))
    opened.ended()
    assert page.fetch() == []
    opened.ended(changes_standing=True)
    assert page.fetch() == ["icon"]
    opened.ended(items_new=2)
    assert page.fetch() == ["records"]


@pytest.mark.parametrize(("what", "is_whole"), [(JobChange.REMOVED, True), (JobChange.RELOADED, False)])
async def test_another_list_of_jobs_is_another_page(opened: Opened, what: JobChange, is_whole: bool) -> None:
    page = opened.page()
    opened.reload(what)
    assert page.fetch() == (None if is_whole else ["icon", "row-prices", "verdict"])


@pytest.mark.parametrize("mark", ["", "b00t-", "b00t-999", "other-1", "b00t-1x"])
async def test_from_another_mark_the_whole_page_is_made(opened: Opened, mark: str) -> None:
    page = opened.page()
    assert opened.hub.changed(ROWS, mark) is None
    again = Page(opened.hub, ROWS, mark)
    await opened.clock.turn(TICK_S)
    assert (again.woken, page.woken) == (1, 0)


async def test_so_it_is_once_more_has_happened_than_is_kept(opened: Opened) -> None:
    page = opened.page()
    for _ in range(MOST_KEPT + 1):
        opened.ended(BACKUP)
    await opened.clock.turn(TICK_S)
    assert (page.woken, page.fetch()) == (1, None)


async def test_nothing_is_kept_once_nobody_has_looked_for_a_while(opened: Opened) -> None:
    page = opened.page()
    await opened.clock.turn(3 * LINGER_S)
    assert page.fetch() == [], "it is open"
    page.follower.leave()
    await opened.clock.turn(LINGER_S - TICK_S)
    assert page.fetch() == []
    await opened.clock.turn(2 * LINGER_S)
    assert opened.listening.sources.going == []
    assert page.fetch() is None


async def test_pages_are_told_again_when_those_told_before_have_fetched_but_not_for_ever(opened: Opened) -> None:
    page = opened.page()
    async with opened.hub.turn():
        opened.ended()
        await opened.clock.turn((MOST_TICKS - 1) * TICK_S)
        assert page.woken == 0
        await opened.clock.turn(TICK_S)
        assert page.woken == 1


async def test_jobs_have_room_between_two_fetches(opened: Opened) -> None:
    async def fetch() -> None:
        async with opened.hub.turn():
            began.append(opened.clock.monotonic())
            await opened.clock.sleep(0.1)

    began: list[float] = []
    async with TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(fetch())
        await opened.clock.turn(5.0)
    assert began[1] - began[0] == pytest.approx(0.1 * (1 + ROOM))


async def test_no_more_fetches_wait_than_there_may_be_pages(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 1)

    async def fetch() -> None:
        async with opened.hub.turn():
            pass

    async with opened.hub.turn(), TaskGroup() as tasks:
        waiting = tasks.create_task(fetch())
        await opened.clock.turn()
        with pytest.raises(PoolError, match="too many pages"):
            await fetch()
        waiting.cancel()


async def test_no_line_of_a_log_is_lost_or_shown_twice(opened: Opened) -> None:
    await opened.line("before")
    mark = opened.hub.mark(ONE)
    await opened.line("while the page is made")
    assert [line.text for line in await opened.hub.log_until(PRICES, mark)] == ["before"]
    then = opened.hub.mark(ONE)
    await opened.line("later")
    assert [line.text for line in opened.hub.log_between(PRICES, mark, then)] == ["while the page is made"]
    assert opened.hub.changed(ONE, then) == ["log"]
    for number in range(LOG_LINES + 50):
        await opened.line(str(number))
    assert await opened.hub.log_until(PRICES, then) == [], "what is later is fetched by mark"


async def test_a_log_that_can_not_be_read_is_empty(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> list[str]:
        raise StoreError("no such file")

    monkeypatch.setattr(opened.hub, "_last_lines", refuse)
    assert await opened.hub.log_until(PRICES, opened.hub.mark(ONE)) == []
