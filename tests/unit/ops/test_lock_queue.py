from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable

import pytest

from spyweb.clock import Handle
from spyweb.errors import StoreError
from spyweb.model import RunId
from spyweb.ops.lock_queue import LockQueue, LockRequest
from spyweb.store.values_protocol import Held
from tests.fakes.clock import FakeClock, settle


class FakeDaemonService:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.asked: list[tuple[LockRequest, Future[Held | None]]] = []
        self.given_back: list[int] = []

    def acquire(self, wish: LockRequest) -> Future[Held | None]:
        future: Future[Held | None] = asyncio.get_running_loop().create_future()
        self.asked.append((wish, future))
        return future

    def give_back(self, wish: LockRequest) -> None:
        self.given_back.append(wish.run)

    def call_when_expired(self, held: Held, callback: Callable[[], object]) -> Handle:
        return self.clock.call_later(10, callback)

    async def answer(self, held: Held | Exception | None) -> None:
        _, future = self.asked[-1]
        if isinstance(held, Exception):
            future.set_exception(held)
        else:
            future.set_result(held)
        await settle()


@pytest.fixture
def desk() -> FakeDaemonService:
    return FakeDaemonService()


def wish(run: int) -> LockRequest:
    return LockRequest(name=b"door", holder=b"%d" % run, run=RunId(run), lease_ms=1)


def held_by(run: int) -> Held:
    return Held(name=b"door", holder=b"%d" % run, run=RunId(run), acquired_ms=0, expires_ms=1, lease_ms=1)


async def test_only_the_first_is_asked_for_and_one_question_at_a_time(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    line.join(wish(1))
    line.join(wish(2))
    line.ask()
    line.ask()
    assert [asked.run for asked, _ in desk.asked] == [1]


async def test_when_it_may_have_become_free_meanwhile_the_question_is_put_again(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    line.join(wish(1))
    line.ask()
    await desk.answer(held_by(9))
    assert [asked.run for asked, _ in desk.asked] == [1, 1]
    await desk.answer(held_by(9))
    assert len(desk.asked) == 2
    desk.clock.advance(10)
    assert len(desk.asked) == 3, "its lease may have ended"


async def test_the_next_one_moves_up_and_waits_to_be_told(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    first, second = line.join(wish(1)), line.join(wish(2))
    await desk.answer(None)
    assert first.served.result() is True
    assert line.first is second
    assert len(desk.asked) == 1
    line.ask()
    assert desk.asked[-1][0].run == 2


async def test_who_lost_patience_while_being_asked_for_still_gets_it(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    waiter = line.join(wish(1))
    line.lose_patience(waiter)
    assert not waiter.served.done()
    await desk.answer(None)
    assert waiter.served.result() is True


async def test_who_lost_patience_goes_and_the_next_one_is_asked_for(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    first, second = line.join(wish(1)), line.join(wish(2))
    line.lose_patience(first)
    await desk.answer(held_by(9))
    assert first.served.result() is False
    assert desk.asked[-1][0].run == 2
    line.lose_patience(second)
    await desk.answer(held_by(9))
    assert second.served.result() is False
    assert line.first is None
    assert desk.clock.pending == 0


async def test_a_lock_for_somebody_who_is_gone_is_given_back(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    waiter = line.join(wish(1))
    waiter.served.cancel()
    await desk.answer(None)
    assert desk.given_back == [1]


async def test_those_who_are_gone_are_passed_over(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    line.join(wish(1))
    line.join(wish(2)).served.cancel()
    line.join(wish(3))
    await desk.answer(None)
    line.ask()
    assert desk.asked[-1][0].run == 3


async def test_an_error_goes_to_whoever_was_asked_for_and_the_next_one_tries(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    first, _ = line.join(wish(1)), line.join(wish(2))
    await desk.answer(StoreError("no room"))
    assert isinstance(first.served.exception(), StoreError)
    assert desk.asked[-1][0].run == 2


async def test_leaving_twice_is_fine_and_an_empty_line_asks_nothing(desk: FakeDaemonService) -> None:
    line = LockQueue(desk)
    waiter = line.join(wish(1))
    await desk.answer(held_by(9))
    line.leave(waiter)
    line.leave(waiter)
    line.ask()
    assert len(desk.asked) == 1
    assert desk.clock.pending == 0
