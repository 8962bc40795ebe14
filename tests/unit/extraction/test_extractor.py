"""Who is next: selector checks, then pages, in turns between jobs."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import Counter

import pytest

from spyweb.extraction.extractor import ExtractionQueue
from spyweb.extraction.process import ExtractionAnswer, ExtractionRequest
from spyweb.model import JobId

NOBODY: Counter[JobId] = Counter()


@pytest.fixture
def line() -> ExtractionQueue:
    return ExtractionQueue()


def make_request(job: str | None, name: str) -> ExtractionRequest:
    answer: Future[ExtractionAnswer] = get_running_loop().create_future()
    return ExtractionRequest(job=JobId(job) if job else None, task=name, head=b"", body=b"", names=(), answer=answer)


def add(line: ExtractionQueue, *names: str) -> None:
    """`a1` is a page of job a; `?x` a check."""
    for name in names:
        line.add(make_request(None if name[0] == "?" else name[0], name))


def in_hand(jobs: str) -> Counter[JobId]:
    return Counter(JobId(job) for job in jobs)


def taken(line: ExtractionQueue, hand: Counter[JobId]) -> list[str]:
    """The order in which they are taken, while as many end as begin."""
    names: list[str] = []
    while request := line.find_next(hand):
        line.remove(request)
        names.append(request.task)
    return names


async def test_jobs_take_turns_and_each_of_them_keeps_its_order(line: ExtractionQueue) -> None:
    add(line, "a1", "a2", "a3", "b1", "b2", "c1")

    assert taken(line, NOBODY) == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_selectors_are_checked_before_any_page(line: ExtractionQueue) -> None:
    add(line, "a1", "?x", "a2", "?y")

    assert taken(line, NOBODY) == ["?x", "?y", "a1", "a2"]


@pytest.mark.parametrize(
    ("hand", "taken_on"),
    [
        ("", ["b1", "a1"]),
        ("a", ["b1", "a1"]),
        ("aa", ["b1"]),  # half of them is all that one job may have
        ("ac", ["b1", "a1"]),
        ("acd", ["b1"]),  # the last one is for a job that has none
        ("aac", ["b1"]),
        ("abc", []),
        ("cdef", []),
    ],
)
async def test_a_job_leaves_processes_to_others(line: ExtractionQueue, hand: str, taken_on: list[str]) -> None:
    add(line, "b1", "a1")

    assert taken(line, in_hand(hand)) == taken_on


async def test_a_job_with_no_page_in_hand_comes_before_one_with_some(line: ExtractionQueue) -> None:
    add(line, "a1", "b1")

    assert taken(line, in_hand("a")) == ["b1", "a1"]


async def test_a_selector_is_checked_though_pages_have_all_processes(line: ExtractionQueue) -> None:
    add(line, "e1", "?x")

    assert line.count(in_hand("abcd")) == 1
    assert taken(line, in_hand("abcd")) == ["?x"]


async def test_what_waits_for_its_own_job_is_not_counted(line: ExtractionQueue) -> None:
    add(line, "a1", "a2", "b1", "?x")

    assert line.count(NOBODY) == 3
    assert line.count(in_hand("aa")) == 2


async def test_all_of_them_can_be_taken_out(line: ExtractionQueue) -> None:
    add(line, "a1", "?x", "b1")

    assert [request.task for request in line.take_all()] == ["?x", "a1", "b1"]
    assert line.find_next(NOBODY) is None
