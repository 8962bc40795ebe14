"""One request under way, seen from its VM."""

from __future__ import annotations

import pytest

from spyweb.endpoints.exchange import EndpointAnswer, EndpointHost, Modules, answer_in
from tests.fakes.endpoints import FakeHost


def make_host(story: list[str], modules: Modules | None = None) -> EndpointHost:
    known: Modules = {} if modules is None else modules
    return EndpointHost(lambda: FakeHost(story), known, lambda: story.append("answered"))


async def test_the_first_answer_stands_and_is_told_once() -> None:
    story: list[str] = []
    exchange = make_host(story)
    assert await exchange.op("_respond", [201, {b"A": b"1"}, b"made"]) == ()
    exchange.answer(None)
    assert await exchange.answered == EndpointAnswer(201, b"made", {b"A": b"1"})
    assert story == ["answered"]


async def test_a_handler_that_has_raised_answers_without_an_answer() -> None:
    exchange = make_host([])
    await exchange.op("_respond", [])
    assert await exchange.answered is None


async def test_a_request_that_asks_for_nothing_needs_no_host() -> None:
    story: list[str] = []
    exchange = make_host(story)
    await exchange.op("_respond", [200, None, b""])
    before = exchange.has_asked
    assert await exchange.op("echo", [b"x"]) == [b"x"]
    exchange.log("info", b"hello")
    assert (before, exchange.has_asked) == (False, True)
    assert story == ["answered", "echo b'x'", "info: hello"]


async def test_a_module_is_read_once_for_all_requests_of_a_version() -> None:
    story: list[str] = []
    modules: Modules = {}
    for _ in range(2):
        assert await make_host(story, modules).op("_require", [b"lib.x"]) == [b"lib.x"]
    assert story == ["_require b'lib.x'"]


@pytest.mark.parametrize("result", [None, "text", [200], [1, 2, 3], {}])
def test_only_a_pair_is_an_answer(result: object) -> None:
    assert answer_in(result) is None
    assert answer_in([404, b"gone"]) == EndpointAnswer(404, b"gone")
