"""What is proved before a newer version lives; test_swap.py and test_server.py show what comes of it."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.model import Field, Monitor
from spyweb.reload.proof import bounded_gather, find_selector_problems
from tests.fakes.clock import FakeClock
from tests.fakes.harness import make_spec


async def test_no_more_than_so_many_are_under_way_and_each_is_answered_in_its_place() -> None:
    under_way: list[asyncio.Future[None]] = []

    async def wait(thing: int) -> int:
        under_way.append(asyncio.get_running_loop().create_future())
        await under_way[-1]
        return thing

    clock = FakeClock()
    asked = asyncio.ensure_future(bounded_gather(3, wait, range(5)))
    for begun in (3, 4, 5):
        await clock.turn()
        assert len(under_way) == begun
        under_way[-1].set_result(None)
    for gate in under_way[:2]:
        gate.set_result(None)

    assert await asked == [0, 1, 2, 3, 4]


async def test_what_one_raises_ends_the_others() -> None:
    begun: list[int] = []

    async def fail_second(thing: int) -> None:
        begun.append(thing)
        if thing == 2:
            raise ValueError(thing)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(ValueError, match="2"):
        await bounded_gather(2, fail_second, [1, 2, 3])
    assert begun == [1, 2]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def find_selector_problem(selector: str, *, of_field: bool = False) -> str | None:
    return "no CSS" if "[" in selector or (not selector and not of_field) else None


@pytest.mark.parametrize(
    ("selector", "fields", "problems"),
    [
        ("li", {"a": "", "b": "a"}, []),
        ("li[", {"a": ""}, [("selector", "no CSS")]),
        (
            "li[",
            {"a": "", "b": "x[", "c": "y["},
            [("selector", "no CSS"), ("fields", "b: no CSS"), ("fields", "c: no CSS")],
        ),
    ],
)
async def test_every_selector_that_does_not_parse_is_told_with_its_key(
    selector: str, fields: dict[str, str], problems: list[tuple[str, str]]
) -> None:
    found = tuple(Field(name=name, selector=inner) for name, inner in fields.items())
    monitor = Monitor(urls=("https://a.b",), selector=selector, fields=found)
    told = await find_selector_problems(find_selector_problem, make_spec(monitor=monitor))
    assert [(problem.key, problem.reason) for problem in told] == problems
