from __future__ import annotations

import pytest

from spyweb.model import JobId
from spyweb.specs.follow import find_cycles


def follows(**names: str) -> dict[JobId, list[JobId]]:
    return {JobId(job): [JobId(name) for name in followed.split()] for job, followed in names.items()}


@pytest.mark.parametrize(
    "links", [{}, {"a": "b"}, {"a": "b c", "b": "c"}, {"a": "b", "b": "d", "c": "d"}, {"a": "missing"}]
)
def test_chains_are_no_cycles(links: dict[str, str]) -> None:
    assert find_cycles(follows(**links)) == []


@pytest.mark.parametrize(
    ("links", "cycle"),
    [
        ({"a": "a"}, ["a"]),
        ({"a": "b", "b": "a"}, ["a", "b"]),
        ({"x": "a", "a": "b", "b": "c", "c": "a"}, ["a", "b", "c"]),
        ({"a": "x b", "b": "a"}, ["a", "b"]),
    ],
)
def test_a_cycle_is_told_in_order(links: dict[str, str], cycle: list[str]) -> None:
    assert find_cycles(follows(**links)) == [cycle]


def test_without_the_jobs_of_the_cycles_none_is_left() -> None:
    links = follows(a="b", b="c d", c="a", d="c", e="f", f="e")
    told = {job for cycle in find_cycles(links) for job in cycle}
    rest = {job: [name for name in followed if name not in told] for job, followed in links.items() if job not in told}

    assert find_cycles(rest) == []


def test_a_chain_of_thousands_does_not_exhaust_the_stack() -> None:
    links = {JobId(f"j{n}"): [JobId(f"j{n + 1}")] for n in range(5_000)}

    assert find_cycles(links) == []
    links[JobId("j5000")] = [JobId("j0")]
    assert len(find_cycles(links)[0]) == 5_001


def test_jobs_that_all_name_each_other_are_told_in_few_cycles() -> None:
    names = [JobId(f"j{n}") for n in range(40)]
    cycles = find_cycles(dict.fromkeys(names, names))

    assert len(cycles) <= len(names)
    assert {name for cycle in cycles for name in cycle} == set(names)
