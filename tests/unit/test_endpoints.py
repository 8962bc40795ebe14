"""What becomes of each request, with a pool that is made of Python."""

from __future__ import annotations

import asyncio
from asyncio import Future, get_running_loop
from collections.abc import Mapping

import pytest

from spyweb.endpoints import (
    AT_ONCE,
    ERROR,
    LIMIT_S,
    NOT_FOUND,
    TOO_SLOW,
    ConcurrencyLimiter,
    EndpointAnswer,
    EndpointHost,
    Modules,
    ServerVersion,
    read_answer,
)
from spyweb.errors import PoolError, Problem
from spyweb.lua.session import Host
from spyweb.model import Ending, Failure, Outcome
from spyweb.specs.server_file import code_of_server
from tests.fakes.clock import FakeClock
from tests.fakes.endpoints import FakeHost, Served, hang, serve

ASKED = {"method": "GET", "path": "/api/v/x"}
SUCCESS = Ending(outcome=Outcome.SUCCESS)


async def test_a_short_answer_is_the_runs_result() -> None:
    async with serve() as served:
        assert await served.endpoints.answer(ASKED) == EndpointAnswer(200, b"hello")
        assert served.pool.requests[0].arguments == (ASKED,)
        assert served.pool.requests[0].procedure == "request"


async def test_an_answer_leaves_before_the_run_ends_and_its_locks_go_with_the_run() -> None:
    go_on = asyncio.Event()

    async def handler(_: Mapping[str, object], host: Host) -> Ending:
        await host.op("_respond", [201, {b"A": b"1"}, b"made"])
        await go_on.wait()
        await host.op("echo", [1])
        return SUCCESS

    async with serve(handler) as served:
        assert await served.endpoints.answer(ASKED) == EndpointAnswer(201, b"made", {b"A": b"1"})
        assert served.story == []
        go_on.set()
        await served.clock.turn()
        assert served.story == ["echo 1", "ended 1"]


async def test_a_failure_is_a_plain_error_outside_and_told_in_full_inside() -> None:
    ending = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="init.lua:1: boom", traceback="stack")

    async def handler(_: Mapping[str, object], _host: Host) -> Ending:
        return ending

    async with serve(handler) as served:
        assert await served.endpoints.answer(ASKED) == ERROR
        assert served.failures == ["GET /api/v/x: init.lua:1: boom\nstack"]


async def test_a_handler_has_thirty_seconds() -> None:
    async with serve(hang) as served:
        asked = asyncio.create_task(served.endpoints.answer(ASKED))
        await served.clock.turn()
        await served.clock.turn(LIMIT_S)
        assert await asked == TOO_SLOW
        assert served.failures == ["GET /api/v/x: timed out"]


async def test_what_was_deferred_has_longer() -> None:
    async def handler(_: Mapping[str, object], host: Host) -> Ending:
        await host.op("_respond", [200, None, b""])
        return await hang(_, host)

    async with serve(handler) as served:
        await served.endpoints.answer(ASKED)
        await served.clock.turn(LIMIT_S * 2)
        assert served.failures == []
        assert served.pool.requests[0].timeout_ms == 330_000


async def test_without_a_server_nothing_is_found() -> None:
    async with serve() as served:
        served.endpoints.version = None
        assert await served.endpoints.answer(ASKED) == NOT_FOUND


async def test_a_broken_server_without_an_earlier_version_fails_and_says_why() -> None:
    async with serve() as served:
        served.endpoints.version = None
        served.endpoints.problem = Problem("server/init.lua", 3, None, "unexpected symbol")
        assert await served.endpoints.answer(ASKED) == ERROR
        assert served.failures == ["GET /api/v/x: server/init.lua:3: unexpected symbol"]


async def test_a_broken_save_leaves_the_earlier_version_answering() -> None:
    async with serve() as served:
        served.endpoints.problem = Problem("server/init.lua", 3, None, "unexpected symbol")
        assert await served.endpoints.answer(ASKED) == EndpointAnswer(200, b"hello")


async def ask_often(served: Served, count: int) -> list[asyncio.Task[EndpointAnswer]]:
    asked = [asyncio.create_task(served.endpoints.answer(ASKED)) for _ in range(count)]
    await served.clock.turn()
    return asked


async def test_only_so_many_are_under_way_and_who_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.endpoints.PATIENCE_S", 0.01)
    async with serve(hang) as served:
        asked = await ask_often(served, AT_ONCE + 1)
        assert len(served.pool.requests) == AT_ONCE
        with pytest.raises(PoolError, match="too many requests"):
            await asked[-1]
        await served.endpoints.close(0)
        await asyncio.gather(*asked, return_exceptions=True)


async def test_room_is_free_again_whatever_ended_a_request() -> None:
    async def handler(_: Mapping[str, object], _host: Host) -> Ending:
        raise PoolError("no worker")

    async with serve(handler) as served:
        for _ in range(AT_ONCE * 2):
            assert await served.endpoints.answer(ASKED) == ERROR


async def test_a_request_goes_to_the_worker_with_the_fewest_those_of_an_older_version_included() -> None:
    async with serve(hang) as served:
        first, second = (code_of_server(b"", 1, worker) for worker in range(2))
        served.endpoints.version = ServerVersion(codes=[first, second])
        asked = await ask_often(served, 3)
        assert [request.code for request in served.pool.requests] == [first, second, first]

        newer = [code_of_server(b"x", 2, worker) for worker in range(2)]
        served.endpoints.version = ServerVersion(codes=newer)
        asked += await ask_often(served, 1)
        assert served.pool.requests[-1].code == newer[1]
        for request in served.pool.requests[:3:2]:
            served.pool.finish(request.run)
        await asyncio.gather(asked[0], asked[2])
        asked += await ask_often(served, 1)
        assert served.pool.requests[-1].code == newer[0]
        await served.endpoints.close(0)
        await asyncio.gather(*asked)


async def test_a_request_that_was_taken_in_just_before_the_close_is_ended_with_the_others() -> None:
    """Its task has not had its first turn yet."""
    async with serve(hang) as served:
        asked = asyncio.create_task(served.endpoints.answer(ASKED))
        await asyncio.sleep(0)
        assert not served.pool.requests
        closing = asyncio.create_task(served.endpoints.close(0))
        await served.clock.turn()
        await closing
        assert await asked == ERROR
        assert served.failures == ["GET /api/v/x: stopped"]


async def test_closing_begins_nothing_and_ends_what_does_not_end_by_itself() -> None:
    async with serve(hang) as served:
        (asked,) = await ask_often(served, 1)
        closing = asyncio.create_task(served.endpoints.close(5))
        await served.clock.turn()
        with pytest.raises(PoolError, match="stopping"):
            await served.endpoints.answer(ASKED)
        assert not closing.done()
        await served.clock.turn(5)
        await closing
        assert await asked == ERROR
        assert served.failures == ["GET /api/v/x: stopped"]


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


async def test_a_full_line_turns_away_at_once() -> None:
    limiter = ConcurrencyLimiter(room=0, line=0, patience_s=10)
    with pytest.raises(PoolError, match="0 are waiting"):
        await limiter.enter()


async def test_who_gives_up_waiting_is_not_in_line_any_more() -> None:
    clock = FakeClock()
    limiter = ConcurrencyLimiter(room=1, line=1, patience_s=10)
    await limiter.enter()
    gone = asyncio.create_task(limiter.enter())
    await clock.turn()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    next_one = asyncio.create_task(limiter.enter())
    await clock.turn()
    limiter.leave()
    await asyncio.wait_for(next_one, 1)


async def test_nothing_is_answered_while_another_node_may_have_taken_the_work_over() -> None:
    async with serve() as served:
        served.endpoints.is_trusted = lambda: False
        with pytest.raises(PoolError, match="has not reached the database"):
            await served.endpoints.answer(ASKED)
