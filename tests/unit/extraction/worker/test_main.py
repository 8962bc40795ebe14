from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from spyweb.extraction.worker.document import Problem
from spyweb.extraction.worker.main import OUTPUT_LIMIT, PART, Unraised, _in_parts


def test_few_items_are_one_part_and_none_are_one_too() -> None:
    assert [part.rows for part in _in_parts([["a"], ["b"]])] == [[["a"], ["b"]]]
    assert [part.rows for part in _in_parts([])] == [[]]


def test_many_items_come_in_parts_of_a_size_that_holds_up_nothing() -> None:
    rows = [["x" * 1000]] * 1000

    parts = [part.rows for part in _in_parts(rows)]

    assert [row for part in parts for row in part] == rows
    assert max(len(part) for part in parts) <= PART // 1000 + 1


def test_a_result_without_end_is_refused_before_it_is_all_there() -> None:
    taken = 0

    def rows() -> Iterator[list[str]]:
        nonlocal taken
        while True:
            taken += 1
            yield ["x" * 1_000_000]

    with pytest.raises(Problem, match="more than 64 MB"):
        list(_in_parts(rows()))
    assert taken <= OUTPUT_LIMIT // 1_000_000 + 1


def test_an_error_that_could_not_be_raised_is_raised_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    unraised = Unraised()
    unraised.raise_it()

    class Dying:
        def __del__(self) -> None:
            raise MemoryError

    Dying()
    with pytest.raises(MemoryError):
        unraised.raise_it()
