from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from spyweb.confined.frames import FrameReader
from spyweb.extraction.wire import Check, Done, decode_answer
from spyweb.extraction.worker import main
from spyweb.extraction.worker.document import ExtractionProblem
from spyweb.extraction.worker.main import OUTPUT_LIMIT, PART, TOO_MUCH_MEMORY, Serving, _in_parts


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

    with pytest.raises(ExtractionProblem, match="more than 64 MB"):
        list(_in_parts(rows()))
    assert taken <= OUTPUT_LIMIT // 1_000_000 + 1


def test_an_error_that_could_not_be_raised_is_raised_later(monkeypatch: pytest.MonkeyPatch) -> None:

    class Dying:
        def __del__(self) -> None:
            raise MemoryError

    def read(_ask: Check, _body: bytes) -> Iterator[msgspec.Struct]:
        yield from ()
        Dying()

    assert answer_by(monkeypatch, read) == Done(TOO_MUCH_MEMORY, is_spent=True)


def answer_when(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> object:
    def fail(_ask: Check, _body: bytes) -> Iterator[msgspec.Struct]:
        raise error

    return answer_by(monkeypatch, fail)


def answer_by(monkeypatch: pytest.MonkeyPatch, work: Callable[[Check, bytes], Iterator[msgspec.Struct]]) -> object:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(main, "_work", work)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        (answer,) = FrameReader(decode_answer).feed(Serving(theirs)._answer(Check(selector="p", of_field=False), b""))
    return answer


def test_memory_that_ends_in_c_code_is_told_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    error = SystemError("<find> returned a result with an exception set")
    error.__cause__ = MemoryError()

    assert answer_when(monkeypatch, error) == Done(TOO_MUCH_MEMORY, is_spent=True)


def test_another_error_of_c_code_ends_the_extractor(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemError):
        answer_when(monkeypatch, SystemError("a bug"))
