from __future__ import annotations

from collections.abc import Iterator

import pytest

from spyweb.errors import OpError
from spyweb.ops import catalog
from spyweb.ops import op as op_module
from spyweb.ops.arguments import Int, Table, Text
from spyweb.ops.op import CATALOGUE, Operation, describe, op
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
    assert [parameter.reader.kind for parameter in GREET.parameters] == ["string", "integer", "table"]


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
    assert op()(greet) is greet
    assert op(name="state.greet")(greet) is greet
    assert {name: operation.name for name, operation in catalogue.items()} == {
        "greet": "greet",
        "state.greet": "state.greet",
    }


def test_two_ops_of_one_name_are_a_mistake(catalogue: dict[str, Operation]) -> None:
    op()(greet)
    with pytest.raises(TypeError, match="two ops named greet"):
        op()(greet)


def test_an_op_that_returns_none_gives_nothing() -> None:
    async def quiet(call: Call) -> None: ...

    assert describe("quiet", quiet).gives_nothing
    assert not GREET.gives_nothing


def test_every_op_says_what_it_is_for() -> None:
    for name, operation in catalog.CATALOGUE.items():
        assert operation.name == name
        assert operation.doc.partition("\n")[0].endswith(".")
