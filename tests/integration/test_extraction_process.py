"""The extractor on its real processes: what a page can do to them, and what it can't do to others."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from spyweb.clock import RealClock
from spyweb.errors import ExtractionError
from spyweb.extraction.extractor import MOST, Extractor, Page, open_extractor
from spyweb.model import Field, JobId

LIMIT = 1.0
BEHIND = 5  # levels of niceness
TEXT = (Field(name="text", selector=""),)
GOOD = b"<p>a<p>b"
# Quadratic in Lexbor: each of these takes minutes.
ENDLESS = b"<ul>" + b"<li>x</li>" * 100_000
ENDLESS_SELECTOR = "li:nth-child(2n)"
TOO_LONG = f'taking the page apart took longer than 1 s (selector "{ENDLESS_SELECTOR}")'


def page(body: bytes = GOOD, selector: str = "p", fields: tuple[Field, ...] = TEXT, job: str = "shop") -> Page:
    return Page(
        job=JobId(job), body=body, content_type="text/html", url="http://h.example/", selector=selector, fields=fields
    )


def endless(job: str = "shop") -> Page:
    return page(ENDLESS, ENDLESS_SELECTOR, job=job)


@pytest.fixture
async def extractor() -> AsyncIterator[Extractor]:
    async with open_extractor(RealClock(), limit=LIMIT) as pool:
        yield pool


@pytest.fixture
async def patient() -> AsyncIterator[Extractor]:
    async with open_extractor(RealClock()) as pool:
        yield pool


async def texts(extractor: Extractor, wanted: Page | None = None) -> list[str]:
    return [item["text"] for item in await extractor.extract(wanted or page())]


def pids(extractor: Extractor) -> list[int]:
    return [process.pid for process in extractor._processes]


def busy(extractor: Extractor) -> list[int]:
    return [process.pid for process in extractor._processes if process.request is not None]


async def wait_until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells a test
        await asyncio.sleep(0.005)


async def pid_of_busy(extractor: Extractor) -> int:
    await wait_until(lambda: busy(extractor))
    return busy(extractor)[0]


async def test_a_process_is_started_when_the_first_page_comes_and_kept(extractor: Extractor) -> None:
    assert pids(extractor) == []

    assert await texts(extractor) == ["a", "b"]
    first = pids(extractor)

    assert await texts(extractor) == ["a", "b"]
    assert len(first) == 1
    assert pids(extractor) == first


async def test_a_process_gives_way_to_the_daemon(extractor: Extractor) -> None:
    await texts(extractor)

    theirs = os.getpriority(os.PRIO_PROCESS, pids(extractor)[0])
    assert theirs == min(os.getpriority(os.PRIO_PROCESS, 0) + BEHIND, 19)


async def test_the_order_of_the_answers_is_that_of_the_pages(extractor: Extractor) -> None:
    found = await asyncio.gather(*(texts(extractor, page(b"<p>%d" % number)) for number in range(200)))

    assert found == [[str(number)] for number in range(200)]
    assert len(pids(extractor)) <= 2


async def test_pages_of_a_slow_job_hold_up_no_other_job(patient: Extractor) -> None:
    slow = [asyncio.create_task(texts(patient, endless())) for _ in range(6)]
    slow.append(asyncio.create_task(texts(patient)))
    await pid_of_busy(patient)

    others = (texts(patient, page(job="other")) for _ in range(20))
    assert await asyncio.gather(*others) == [["a", "b"]] * 20
    assert not any(task.done() for task in slow)
    for task in slow:
        task.cancel()


async def test_a_page_that_takes_too_long_fails_and_the_next_has_its_process(extractor: Extractor) -> None:
    slow = asyncio.create_task(texts(extractor, endless()))
    queued = asyncio.create_task(texts(extractor))

    with pytest.raises(ExtractionError, match=re.escape(TOO_LONG)):
        await slow
    assert await queued == ["a", "b"]
    assert await texts(extractor) == ["a", "b"]


async def test_a_killed_process_costs_the_page_in_hand(extractor: Extractor) -> None:
    slow = asyncio.create_task(texts(extractor, endless()))
    os.kill(await pid_of_busy(extractor), signal.SIGSEGV)
    waiting = [asyncio.create_task(texts(extractor)) for _ in range(5)]

    with pytest.raises(ExtractionError, match="the extractor process died: it was ended by SIGSEGV"):
        await slow
    assert await asyncio.gather(*waiting) == [["a", "b"]] * 5


async def test_a_process_that_was_killed_while_idle_is_not_missed(extractor: Extractor) -> None:
    await texts(extractor)
    os.kill(pids(extractor)[0], signal.SIGKILL)
    await wait_until(lambda: not pids(extractor))

    assert await texts(extractor) == ["a", "b"]


async def test_a_page_of_10_mb_does_not_hold_up_the_loop(patient: Extractor) -> None:
    item = b"<div class=item><h2>Title</h2><a href=/x/y.html>link</a><p>" + b"Lorem ipsum " * 40 + b"</p></div>\n"
    fields = (Field(name="title", selector="h2"),)
    await texts(patient)
    turns = 0

    extraction = asyncio.create_task(patient.extract(page(item * (10_485_760 // len(item)), ".item", fields)))
    while not extraction.done():
        await asyncio.sleep(0.001)
        turns += 1

    assert len(await extraction) == 10_485_760 // len(item)
    assert turns > 10, "the loop goes on while another process parses"


@pytest.mark.parametrize(
    ("body", "selector", "count"),
    [
        (b"<ul>" + b"<li>x</li>" * 100_000, "li", 100_000),
        (b"<div>" * 10_000 + b"x", "div", 10_000),
        (b"<div>" * 1000 + b"x", "div:has(b)", 0),
        (b"", "p", 0),
        (b"\0" * 1000, "p", 0),
        (b"\xff" * 1000 + b"<p>", "p", 1),
        (b'{"a": 1}', "p", 0),
    ],
)
async def test_pages_of_strange_shapes(patient: Extractor, body: bytes, selector: str, count: int) -> None:
    assert len(await patient.extract(page(body, selector, fields=()))) == count


async def test_items_inside_items_do_not_multiply_without_end(patient: Extractor) -> None:
    with pytest.raises(ExtractionError, match="the fields hold more than 64 MB"):
        await patient.extract(page(b"<div>" * 3000 + b"x" * 100_000, "div"))


async def test_a_selector_is_checked_whatever_slow_pages_there_are() -> None:
    async with open_extractor(RealClock(), limit=30) as extractor:
        slow = [asyncio.create_task(texts(extractor, endless(f"job {number % 4}"))) for number in range(20)]
        await wait_until(lambda: len(busy(extractor)) == MOST)

        assert await extractor.find_selector_problem("div[") == "'div[' is not a CSS selector"
        assert not any(task.done() for task in slow)
        assert len(busy(extractor)) == MOST


async def test_headers_and_selectors_that_are_no_text_do_no_harm(extractor: Extractor) -> None:
    strange = Page(
        job=JobId("shop"), body=GOOD, content_type="a\udcff", url="http://h/\udcff", selector="p", fields=TEXT
    )

    assert await texts(extractor, strange) == ["a", "b"]
    assert await extractor.find_selector_problem("p\udcff")


async def test_whoever_stops_waiting_holds_up_nobody(extractor: Extractor) -> None:
    pages = [asyncio.create_task(texts(extractor)) for _ in range(20)]
    await asyncio.sleep(0)
    for task in pages[::2]:
        task.cancel()

    assert await asyncio.gather(*pages[1::2]) == [["a", "b"]] * 10


async def test_closing_ends_what_is_in_hand_and_what_waits() -> None:
    async with open_extractor(RealClock()) as extractor:
        pages = [asyncio.create_task(texts(extractor, endless())) for _ in range(6)]
        pid = await pid_of_busy(extractor)

    found = await asyncio.gather(*pages, return_exceptions=True)
    assert all(isinstance(failure, ExtractionError) for failure in found)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ExtractionError, match="closed"):
        await texts(extractor)


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere/python"])
async def test_where_no_process_can_be_had_that_is_said(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", executable)
        with pytest.raises(ExtractionError, match=r"no extractor process could be started: .+"):
            await texts(extractor)
        assert await extractor.find_selector_problem("div[") is None

    assert await texts(extractor) == ["a", "b"]


def test_it_runs_on_the_daemons_event_loop() -> None:
    async def main() -> list[str]:
        async with open_extractor(RealClock(), limit=LIMIT) as extractor:
            with pytest.raises(ExtractionError, match="took longer"):
                await extractor.extract(endless())
            return await texts(extractor, page(b"<p>x" + b" " * 1_000_000))

    assert uvloop.run(main()) == ["x"]
