from __future__ import annotations

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, OpCall, PackedOpCall, RunEnd
from spyweb.lua.worker import values


def test_text_is_pushed_as_bytes_and_counted() -> None:
    assert values.for_lua([1, "ü", b"xyz", None, 2.5, True]) == ([1, b"\xc3\xbc", b"xyz", None, 2.5, True], 5)


def test_what_is_no_scalar_is_never_pushed() -> None:
    with pytest.raises(TypeError, match="a list can't be pushed"):
        values.for_lua([[1]])


def test_an_op_keeps_its_values_and_gets_its_name_as_text() -> None:
    assert values.op_message(7, 2, (0, b"store_set", 0, b"k", 1), 0) == OpCall(7, 2, "store_set", [b"k", 1])


def test_packed_values_go_with_their_count() -> None:
    message = values.op_message(7, 2, (0, b"state.set", 1, b"packed", 5), 3)

    assert message == PackedOpCall(7, 2, "state.set", b"packed", 5, 3)


def test_a_scalar_result_is_packed_here() -> None:
    message = values.end_message(7, (1, 0, b"", b"", None, False, 5), 0.0126)

    assert message == RunEnd(7, Ended.SUCCESS, b"", b"", 13, wire.pack([5]), False)


def test_a_message_is_as_large_as_the_bytes_it_holds() -> None:
    assert values.size_of(OpCall(1, 7, "x", [b"a" * 1000, 5, b"b", None])) == 1001
    assert values.size_of(PackedOpCall(1, 7, "x", b"a" * 1000, 3)) == 1000
