"""One request under way, seen from its VM."""

from __future__ import annotations

from asyncio import Future, get_running_loop

import pytest

from spyweb.endpoints.endpoints import ERROR, EndpointAnswer, EndpointHost, Modules, read_answer
from tests.fakes.endpoints import FakeHost


def make_host(story: list[str], modules: Modules | None = None) -> tuple[EndpointHost, Future[EndpointAnswer]]:
    answered: Future[EndpointAnswer] = get_running_loop().create_future()
    known: Modules = {} if modules is None else modules
    return EndpointHost(lambda: FakeHost(story), known, answered, on_answer=lambda: story.append("answered")), answered


async def test_the_first_answer_stands_and_is_told_once() -> None:
    story: list[str] = []
    host, answered = make_host(story)
    assert await host.op("_respond", [201, {b"A": b"1"}, b"made"]) == ()
    host.answer(ERROR)
    assert await answered == EndpointAnswer(201, b"made", {b"A": b"1"})
    assert story == ["answered"]


async def test_a_handler_that_has_raised_is_an_error_at_once() -> None:
    host, answered = make_host([])
    await host.op("_respond", [])
    assert await answered == ERROR


async def test_a_request_that_asks_for_nothing_needs_no_host() -> None:
    story: list[str] = []
    host, _ = make_host(story)
    await host.op("_respond", [200, None, b""])
    before = host.has_asked
    assert await host.op("echo", [b"x"]) == [b"x"]
    host.log("info", b"hello")
    assert (before, host.has_asked) == (False, True)
    assert story == ["answered", "echo b'x'", "info: hello"]


async def test_a_module_is_read_once_for_all_requests_of_a_version() -> None:
    story: list[str] = []
    modules: Modules = {}
    for _ in range(2):
        assert await make_host(story, modules)[0].op("_require", [b"lib.x"]) == [b"lib.x"]
    assert story == ["_require b'lib.x'"]


@pytest.mark.parametrize("result", [None, "text", [200], [1, 2, 3], {}])
def test_only_a_pair_is_an_answer(result: object) -> None:
    assert read_answer(result) == ERROR
    assert read_answer([404, b"gone"]) == EndpointAnswer(404, b"gone")
