"""Live pages: what a page is sent, when, and what is made for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from spyweb.model import JobId
from spyweb.runs.live import JobChange
from spyweb.service import page_hub
from spyweb.service.page_hub import (
    LINGER_S,
    LOG_LINES,
    MOST_PARTS,
    QUIET_S,
    RESET,
    STALLED_S,
    TICK_S,
    TOGETHER,
    first_parts,
    frame_html,
)
from tests.fakes.listening import BOOT, PRICES
from tests.fakes.live_page import Pages, live_pages

JOBS = [f"j{number:03d}" for number in range(250)]


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    async with live_pages() as opened:
        yield opened


async def test_a_page_is_sent_what_has_changed_once_as_it_is_now(pages: Pages) -> None:
    page = await pages.open()
    pages.change("a", "a", "b")
    await pages.clock.turn(TICK_S)
    page.read()
    assert (page.shown, page.events) == ({"row-a": "2", "row-b": "1", "verdict": "3"}, 1)
    await pages.clock.turn(5 * TICK_S)
    assert page.read().events == 1


async def test_what_changes_while_a_page_is_being_made_is_not_missed(pages: Pages) -> None:
    view = pages.view()
    mark = pages.hub.mark(view)
    await pages.hub.html(view, ["row-a"])
    pages.change("a")
    page = await pages.open(view, mark=mark)
    await pages.clock.turn(TICK_S)
    assert page.read().shown["row-a"] == "1"


async def test_pages_that_have_seen_the_same_share_what_is_rendered(pages: Pages) -> None:
    opened = [await pages.open() for _ in range(60)]
    pages.change("a")
    await pages.clock.turn(TICK_S)
    assert [page.read().shown["row-a"] for page in opened] == ["1"] * 60
    assert pages.rows.rendered == ["row-a", "verdict"]


async def test_those_that_see_something_else_share_nothing(pages: Pages) -> None:
    one, other = await pages.open(pages.view("one")), await pages.open(pages.view("other"))
    pages.change("a")
    await pages.clock.turn(TICK_S)
    assert one.read().shown == other.read().shown
    assert sorted(pages.rows.rendered) == ["row-a", "row-a", "verdict", "verdict"]


async def test_very_many_changes_come_over_several_ticks_the_oldest_first(pages: Pages) -> None:
    page = await pages.open()
    pages.change(*JOBS)
    await pages.clock.turn()
    assert list(page.read().shown) == ["row-j000", "verdict", *(f"row-{job}" for job in JOBS[1 : MOST_PARTS - 1])]
    await pages.clock.turn(TICK_S)
    await pages.clock.turn(TICK_S)
    assert set(page.read().shown) == {"verdict", *(f"row-{job}" for job in JOBS)}
    assert page.mark == pages.listening.hub.mark()


async def test_a_connection_that_was_cut_goes_on_from_its_mark(pages: Pages) -> None:
    page = await pages.open()
    pages.change("a", "b")
    await pages.clock.turn(TICK_S)
    page.read()
    assert page.stream
    pages.hub.leave(page.stream)
    pages.change("b", "c")
    again = await pages.open(mark=page.mark)
    await pages.clock.turn(TICK_S)
    assert again.read().shown == {"row-b": "2", "verdict": "4", "row-c": "1"}


@pytest.mark.parametrize("mark", ["", "x", f"{BOOT}-99", "other-1", f"{BOOT}-0", f"{BOOT}-"])
async def test_from_another_mark_nothing_can_be_told(pages: Pages, mark: str) -> None:
    await pages.open()
    pages.change("a")
    assert pages.hub.join(pages.view(), mark, (await pages.open()).sink) is None


async def test_a_mark_from_before_nobody_looked_is_not_believed(pages: Pages) -> None:
    page = await pages.open()
    assert page.stream
    pages.hub.leave(page.stream)
    await pages.clock.turn(3 * LINGER_S)
    assert pages.listening.sources.going == []
    pages.change("a")
    assert (await pages.open(mark=page.mark)).stream is None


async def test_a_list_of_other_jobs_has_the_page_fetched_anew(pages: Pages) -> None:
    page = await pages.open()
    pages.reload("new")
    await pages.clock.turn(TICK_S)
    assert page.sink.sent == [RESET.decode()]
    assert page.sink.story == ["ended"]
    assert pages.hub.open == 0


async def test_other_code_of_a_job_is_only_its_row(pages: Pages) -> None:
    page = await pages.open()
    pages.reload("a", JobChange.RELOADED)
    await pages.clock.turn(TICK_S)
    assert (page.read().resets, list(page.shown)) == (0, ["row-a", "verdict"])


async def test_a_part_that_is_no_more_has_the_page_fetched_anew(pages: Pages) -> None:
    page = await pages.open()
    pages.rows.gone.add("row-a")
    pages.change("a")
    await pages.clock.turn(TICK_S)
    assert page.read().resets == 1


async def test_whoever_does_not_read_is_sent_nothing_more_and_hung_up_on(pages: Pages) -> None:
    page, other = await pages.open(), await pages.open()
    page.sink.unsent = 10
    for _ in range(round(STALLED_S / TICK_S) - 1):
        pages.change("a")
        await pages.clock.turn(TICK_S)
    assert (page.sink.sent, page.sink.story) == ([], [])
    await pages.clock.turn(2 * TICK_S)
    assert (page.sink.story, pages.hub.open) == (["aborted"], 1)
    assert other.read().shown["row-a"] == "59"


async def test_whoever_reads_again_in_time_is_sent_all_it_lacks_as_it_is_now(pages: Pages) -> None:
    page = await pages.open()
    page.sink.unsent = 10
    for _ in range(20):
        pages.change("a")
        await pages.clock.turn(TICK_S)
    page.sink.unsent = 0
    await pages.clock.turn(TICK_S)
    assert (page.read().shown["row-a"], page.events) == ("20", 1)
    page.sink.unsent = 10
    await pages.clock.turn(STALLED_S - 1)
    assert page.sink.story == []  # counted anew


async def test_a_quiet_page_gets_signs_of_life_with_its_mark(pages: Pages) -> None:
    page = await pages.open()
    await pages.clock.turn(QUIET_S + TICK_S)
    assert page.sink.sent == [f"id: {pages.listening.hub.mark()}\n\n"]


async def test_whoever_has_gone_is_let_go(pages: Pages) -> None:
    page = await pages.open()
    page.sink.is_gone = True
    await pages.clock.turn(TICK_S)
    assert (page.sink.story, pages.hub.open) == (["ended"], 0)


async def test_nothing_goes_on_without_a_page(pages: Pages) -> None:
    page = await pages.open()
    assert page.stream
    pages.hub.leave(page.stream)
    await pages.clock.turn(3 * LINGER_S)
    assert (pages.clock.pending, pages.listening.sources.going) == (0, [])
    assert (pages.hub._html, pages.hub._changes) == ({}, {})


async def test_a_page_that_is_fetched_uses_what_is_kept_as_long_as_it_is_true(pages: Pages) -> None:
    view = pages.view()
    pages.hub.mark(view)
    assert await pages.hub.html(view, ["row-a", "row-b"]) == {
        "row-a": '<p id="row-a">0</p>\n',
        "row-b": '<p id="row-b">0</p>\n',
    }
    pages.change("a")
    assert (await pages.hub.html(view, ["row-a", "row-b"]))["row-a"] == '<p id="row-a">1</p>\n'
    assert pages.rows.rendered == ["row-a", "row-b", "row-a"]


async def test_what_was_kept_before_nobody_looked_is_rendered_anew(pages: Pages) -> None:
    view = pages.view()
    pages.hub.mark(view)
    await pages.hub.html(view, ["row-a"])
    await pages.clock.turn(3 * LINGER_S)
    pages.change("a")
    pages.hub.mark(view)
    assert (await pages.hub.html(view, ["row-a"]))["row-a"] == '<p id="row-a">1</p>\n'


async def test_many_rows_are_made_a_few_at_a_time(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    real = pages.clock.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(seconds)

    monkeypatch.setattr(pages.clock, "sleep", sleep)
    view = pages.view()
    pages.hub.mark(view)
    await pages.hub.html(view, [f"row-{job}" for job in JOBS])
    assert waits == [0] * (len(JOBS) // TOGETHER - 1)


async def test_a_bug_in_one_page_ends_that_page_and_no_other(pages: Pages) -> None:
    page, other = await pages.open(), await pages.open(pages.view("other"))
    bad = pages.view("bad")
    bad.rows = type(pages.rows)(trouble=RuntimeError("a bug"))
    broken = await pages.open(bad)
    pages.change("a")
    with capture_logs() as logs:
        await pages.clock.turn(TICK_S)
    assert [line["event"] for line in logs] == ["a live page met a bug in spyweb"]
    assert broken.sink.story == ["ended"]
    assert page.read().shown["row-a"] == other.read().shown["row-a"] == "1"


async def test_subjects_are_bounded_and_a_page_that_lacks_a_forgotten_one_is_fetched_anew(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_hub, "MOST_SUBJECTS", 10)
    page, quick = await pages.open(), await pages.open(pages.view("quick"))
    page.sink.unsent = 1
    for job in JOBS[:12]:
        pages.change(job)
        await pages.clock.turn(TICK_S)
    assert len(pages.hub._changes) == 10
    page.sink.unsent = 0
    await pages.clock.turn(TICK_S)
    assert (page.read().resets, quick.read().resets) == (1, 0)


async def test_kept_parts_are_bounded(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_hub, "MOST_HTML", 100)
    view = pages.view()
    pages.hub.mark(view)
    for job in JOBS:
        await pages.hub.html(view, [f"row-{job}"])
    assert len(pages.hub._html) < 8


# -- logs -----------------------------------------------------------------------------------------------------


async def test_a_page_with_a_log_is_sent_its_end_and_then_what_is_added(pages: Pages) -> None:
    pages.lines += ["2026-01-01T00:00:00.000Z INFO one", "2026-01-01T00:00:00.000Z WARN two", "    and more"]
    page = await pages.open(pages.view(log=PRICES))
    await pages.clock.turn(TICK_S)
    assert page.read().log == ["one", "two\nand more"]
    pages.listening.line("three")
    pages.listening.line("for another", JobId("other"))
    await pages.clock.turn(TICK_S)
    assert page.read().log == ["one", "two\nand more", "three"]


async def test_more_lines_than_fit_are_counted(pages: Pages) -> None:
    page = await pages.open(pages.view(log=PRICES))
    await pages.clock.turn(TICK_S)
    for number in range(LOG_LINES + 5):
        pages.listening.line(str(number))
    await pages.clock.turn(TICK_S)
    assert page.read().log[:2] == ["5 left out", "5"]
    assert page.log[-1] == str(LOG_LINES + 4)


async def test_two_pages_with_one_log_are_each_sent_what_they_lack(pages: Pages) -> None:
    one = await pages.open(pages.view(log=PRICES))
    await pages.clock.turn(TICK_S)
    pages.listening.line("first")
    pages.lines.append("2026-01-01T00:00:00.000Z INFO first")
    other = await pages.open(pages.view(log=PRICES))
    await pages.clock.turn(TICK_S)
    pages.listening.line("second")
    await pages.clock.turn(TICK_S)
    assert one.read().log == other.read().log == ["first", "second"]


# -- pure -----------------------------------------------------------------------------------------------------


def test_a_line_of_data_never_ends_an_event() -> None:
    assert (
        frame_html("b-1", "a\rb\r\nc\n\nd") == b"event: html\nid: b-1\ndata: a\ndata: b\ndata: c\ndata: \ndata: d\n\n"
    )


def test_what_can_not_be_encoded_is_shown_all_the_same() -> None:
    assert b"\\ud800" in frame_html("b-1", "\ud800")


def test_one_change_of_very_many_parts_comes_whole() -> None:
    order = dict.fromkeys(JOBS, 7)
    assert first_parts(order, 9) == (JOBS, 7)
    assert first_parts({"a": 1, **order}, 9) == (["a"], 6)
