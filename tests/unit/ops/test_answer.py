from __future__ import annotations

import asyncio
from asyncio import Future

import pytest

from spyweb.errors import StoreError
from spyweb.ops.answer import Answer, Results


def settle(source: Future[bytes]) -> Results:
    try:
        return (source.result(),)
    except StoreError:
        return (b"otherwise",)


def make_source() -> Future[bytes]:
    return asyncio.get_running_loop().create_future()


async def test_an_answer_is_its_source_seen_through_settle() -> None:
    source = make_source()
    answer = Answer(source, settle)
    assert not answer.done()
    source.set_result(b"v")
    assert answer.done()
    assert answer.result() == (b"v",)
    assert answer.exception() is None
    assert await answer == (b"v",)


async def test_an_answer_can_be_awaited_before_it_is_there() -> None:
    source = make_source()
    answer = Answer(source, settle)
    asyncio.get_running_loop().call_soon(source.set_result, b"v")
    assert await asyncio.wait_for(answer, 1) == (b"v",)


async def test_a_failure_that_settle_makes_good_is_none() -> None:
    source = make_source()
    answer = Answer(source, settle)
    asyncio.get_running_loop().call_soon(source.set_exception, StoreError("full"))
    assert await answer == (b"otherwise",)
    assert answer.exception() is None


async def test_a_failure_that_settle_leaves_is_the_answers() -> None:
    source = make_source()
    answer = Answer(source, settle)
    asyncio.get_running_loop().call_soon(source.set_exception, LookupError("bug"))
    with pytest.raises(LookupError):
        await answer
    assert isinstance(answer.exception(), LookupError)


async def test_settle_is_asked_once() -> None:
    asked: list[object] = []

    def settle_and_tell(source: Future[bytes]) -> Results:
        asked.append(source)
        return (1,)

    source = make_source()
    source.set_result(b"v")
    answer = Answer(source, settle_and_tell)
    assert answer.result() is answer.result()
    assert len(asked) == 1


async def test_cancelling_an_answer_cancels_what_was_asked_of_the_store() -> None:
    source = make_source()
    answer = Answer(source, settle)
    answer.cancel()
    assert source.cancelled()
    assert answer.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await answer


async def test_callbacks_get_the_answer_and_can_be_removed() -> None:
    told: list[object] = []
    source = make_source()
    answer = Answer(source, settle)
    answer.add_done_callback(told.append)
    answer.add_done_callback(print)
    assert answer.remove_done_callback(print) == 1
    source.set_result(b"v")
    await asyncio.sleep(0)
    assert told == [answer]
