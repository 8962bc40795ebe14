from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterator

import pytest

from spyweb.errors import OpError, StoreError
from spyweb.ops import op as op_module
from spyweb.ops.arguments import Int, Table, Text
from spyweb.ops.op import CATALOGUE, Answer, Operation, Results, describe, op
from spyweb.ops.world import Call
from tests.fakes.ops import make_call


def greet(call: Call, name: Text, times: Int = 1, options: Table | None = None) -> tuple[object, ...]:
    """Say hello.

    More than once if asked.
    """
    return name, times, options


GREET = describe("greet", greet)
CALL = make_call()


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Operation]]:
    """An empty one, so that a test's ops don't stay."""
    fresh: dict[str, Operation] = {}
    monkeypatch.setattr(op_module, "CATALOGUE", fresh)
    yield fresh
    assert "greet" not in CATALOGUE


def refusal(*given: object) -> str:
    with pytest.raises(OpError) as error:
        GREET.begin(CALL, given)
    return str(error.value)


def test_the_signature_is_the_usage_and_the_docstring_the_reference() -> None:
    assert GREET.usage == "greet(name, times?, options?)"
    assert GREET.doc == "Say hello.\n\nMore than once if asked."
    assert [parameter.kind for parameter in GREET.parameters] == ["string", "integer", "table"]


def test_arguments_are_converted() -> None:
    assert GREET.begin(CALL, [3.0, b"2", [b"x"]]) == (b"3", 2, {1: b"x"})


@pytest.mark.parametrize("given", [[b"x"], [b"x", None], [b"x", None, None]])
def test_what_is_left_out_or_nil_takes_its_default(given: list[object]) -> None:
    assert GREET.begin(CALL, given) == (b"x", 1, None)


def test_arguments_too_many_are_ignored() -> None:
    assert GREET.begin(CALL, [b"x", 1, None, b"more", {}]) == (b"x", 1, None)


def test_a_wrong_argument_reads_like_an_error_of_lua() -> None:
    assert refusal({}) == "bad argument #1 to 'greet' (string expected, got table)"
    assert refusal(b"x", b"y") == "bad argument #2 to 'greet' (number expected, got string)"
    assert refusal(b"x", float("nan")) == "bad argument #2 to 'greet' (number has no integer representation)"


def test_no_value_is_told_from_nil() -> None:
    assert refusal() == "bad argument #1 to 'greet' (string expected, got no value)"
    assert refusal(None) == "bad argument #1 to 'greet' (string expected, got nil)"


def test_the_first_wrong_argument_is_the_one_named() -> None:
    assert "#1" in refusal(True, b"y")


def test_a_function_becomes_an_op_under_its_own_name_or_another(catalogue: dict[str, Operation]) -> None:
    assert op(greet) is greet
    assert op("state.greet")(greet) is greet
    assert {name: operation.name for name, operation in catalogue.items()} == {
        "greet": "greet",
        "state.greet": "state.greet",
    }


def test_two_ops_of_one_name_are_a_mistake(catalogue: dict[str, Operation]) -> None:
    op(greet)
    with pytest.raises(TypeError, match="two ops named greet"):
        op(greet)


def test_an_op_that_returns_none_gives_nothing() -> None:
    async def quiet(call: Call) -> None: ...

    assert describe("quiet", quiet).gives_nothing
    assert not GREET.gives_nothing


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
    asked = []
    source = make_source()
    source.set_result(b"v")
    answer = Answer(source, lambda source: asked.append(source) or (1,))
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
