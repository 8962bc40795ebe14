from __future__ import annotations

import pytest

from spyweb.lua.session import StoreAnswer
from spyweb.ops import catalog
from spyweb.ops.arguments import Int, Text, Value
from spyweb.ops.op import describe
from spyweb.reference.language import Argument, ResultType, function, function_of, op_families


class Call: ...


async def example(call: Call, name: Text, count: Int = 1, extra: Value = None) -> tuple[str | None, int]:
    """Does something new.

    And more.
    """
    return None, 1


def at_once(call: Call, name: Text) -> StoreAnswer[None]:
    """Does something at once."""
    raise NotImplementedError


def test_a_new_op_tells_its_types_itself() -> None:
    found = function_of(describe("example", example))

    assert found.usage == "example(name, count?, extra?)"
    assert found.text == "Does something new. And more."
    assert found.arguments == (
        Argument("name", "string"),
        Argument("count", "integer", optional=True),
        Argument("extra", "any", optional=True),
    )
    assert found.results == (ResultType("string?"), ResultType("integer"))
    assert found.waits


def test_an_op_that_hands_on_a_future_of_nothing_gives_nothing() -> None:
    assert function_of(describe("at_once", at_once)).results == ()


def test_every_public_op_is_in_one_family() -> None:
    named = [each.name for family in op_families() for each in family.functions]
    assert sorted(named) == [name for name in sorted(catalog.CATALOGUE) if not name.startswith("_")]


def test_every_family_has_functions() -> None:
    assert all(family.functions for family in op_families())
    assert len({family.name for family in op_families()}) == len(op_families())


def test_what_is_told_of_an_op_beside_its_signature_fits_it() -> None:
    """The parameters that the decorator is given in Lua's words are those of the function."""
    for name, operation in catalog.CATALOGUE.items():
        shown = [(each.name, each.optional) for each in function_of(operation).arguments]
        assert shown == [(each.name, each.optional) for each in operation.parameters], name


def test_no_op_leaves_open_what_it_gives() -> None:
    """`any` alone is an answer only where a script's own values come back, or those of a document."""
    own_values = {"state.get", "state.list_pop", "state.get_version", "data.parse_yaml"}
    vague = {
        each.name
        for family in op_families()
        for each in family.functions
        for result in each.results
        if result.type in ("any", "table")
    }
    assert vague <= own_values


def test_types_may_hold_commas_and_parentheses() -> None:
    found = function("f(a: table<string, integer>, b: fun(x: any): (any, any)): {a: any, b: any}, string? why", "")
    assert [each.type for each in found.arguments] == ["table<string, integer>", "fun(x: any): (any, any)"]
    assert found.results == (ResultType("{a: any, b: any}"), ResultType("string?", "why"))


@pytest.mark.parametrize("signature", ["", "f", "f(a: any"])
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(ValueError, match=r"not a signature|not closed"):
        function(signature, "")
