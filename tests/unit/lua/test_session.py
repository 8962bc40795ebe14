from __future__ import annotations

import asyncio
from asyncio import Future

import pytest

from spyweb.errors import StoreError
from spyweb.lua.session import Results, StoreAnswer


def results_of(source: Future[bytes]) -> Results:
    try:
        return (source.result(),)
    except StoreError:
        return (b"otherwise",)


def make_source() -> Future[bytes]:
    return asyncio.get_running_loop().create_future()


async def test_an_answer_is_its_source_seen_through_what_makes_its_results() -> None:
    source = make_source()
    answer = StoreAnswer(source, results_of)
    asyncio.get_running_loop().call_soon(source.set_result, b"v")
    assert await asyncio.wait_for(answer, 1) == (b"v",)
    assert answer.source is source
    assert answer.result() == (b"v",)
    assert await answer == (b"v",)


async def test_a_failure_that_is_not_made_good_is_the_answers() -> None:
    for error in (StoreError("full"), LookupError("bug")):
        source = make_source()
        answer = StoreAnswer(source, results_of)
        asyncio.get_running_loop().call_soon(source.set_exception, error)
        if isinstance(error, StoreError):
            assert await answer == (b"otherwise",)
        else:
            with pytest.raises(LookupError):
                await answer


async def test_giving_an_answer_up_cancels_what_was_asked_of_the_store() -> None:
    source = make_source()
    waiting = asyncio.ensure_future(StoreAnswer(source, results_of))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert source.cancelled()
