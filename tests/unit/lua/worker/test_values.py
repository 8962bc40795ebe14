from __future__ import annotations

import pytest

from spyweb.lua import wire
from spyweb.lua.worker import values


def test_text_is_pushed_as_bytes_and_counted() -> None:
    assert values.for_lua([1, "ü", b"xyz", None, 2.5, True]) == ([1, b"\xc3\xbc", b"xyz", None, 2.5, True], 5)


def test_what_is_no_scalar_is_never_pushed() -> None:
    with pytest.raises(TypeError, match="a list can't be pushed"):
        values.for_lua([[1]])


def test_an_op_keeps_its_values_and_gets_its_name_as_text() -> None:
    assert values.op_message(7, 2, (0, b"store_set", 0, b"k", 1)) == [wire.FromWorker.OP, 7, 2, "store_set", 0, b"k", 1]


def test_a_scalar_result_is_packed_here() -> None:
    message = values.end_message(7, (1, 0, b"", b"", None, False, 5), 0.0126)

    assert message == [wire.FromWorker.END, 7, 0, b"", b"", 13, wire.pack([5]), False]


def test_a_message_is_as_large_as_the_bytes_it_holds() -> None:
    assert values.size_of([2, 1, 7, "x", 0, b"a" * 1000, 5, b"b", None]) == 1001
