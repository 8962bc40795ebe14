from __future__ import annotations

import pytest

from spyweb.errors import OpError
from spyweb.lua import answer, wire
from spyweb.lua.wire import Form, ResumeRun


def packed_in(message: ResumeRun) -> bytes:
    (packed,) = message.values
    assert isinstance(packed, bytes)
    return packed


def test_scalars_cross_one_by_one() -> None:
    message, _ = answer.resume(7, 3, [None, True, 3, 2.5, b"\xff\x00", "text"])

    assert message == ResumeRun(7, 3, Form.PLAIN, [None, True, 3, 2.5, b"\xff\x00", b"text"])


def test_a_table_makes_the_whole_list_cross_packed() -> None:
    message, _ = answer.resume(7, 3, [b"\xff", {"a": [1, 2]}])

    assert (message.run, message.number, message.form) == (7, 3, Form.PACKED)
    assert wire.unpack(packed_in(message)) == [b"\xff", {"a": [1, 2]}]


def test_the_size_of_an_answer_counts_its_strings() -> None:
    assert answer.resume(1, 1, [b"x" * 1000, "y" * 500])[1] == 1500
    assert answer.resume(1, 1, [[b"x" * 1000]])[1] > 1000


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0, 1 << 40])
def test_integers_of_64_bits_stay_integers(number: int) -> None:
    assert answer.resume(1, 1, [number])[0].values[0] == number
    assert type(answer.resume(1, 1, [number])[0].values[0]) is int
    assert wire.unpack(answer.pack([[number]])) == [[number]]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_larger_integers_become_floats_at_any_depth(number: int) -> None:
    assert answer.resume(1, 1, [number])[0].values[0] == float(number)

    values = wire.unpack(answer.pack([{"deep": [number]}, (number,)]))

    assert values == [{"deep": [float(number)]}, [float(number)]]
    assert isinstance(values[1], list)
    assert type(values[1][0]) is float


def test_an_integer_beyond_all_floats_is_infinite() -> None:
    assert answer.as_lua_integer(10**400) == float("inf")
    assert answer.as_lua_integer(-(10**400)) == float("-inf")


def test_a_file_name_that_is_not_utf8_gets_its_bytes_back() -> None:
    assert answer.resume(1, 1, ["a\udcff"])[0].values[0] == b"a\xff"
    assert wire.unpack(answer.pack([{"name": "a\udcff", "flag": True}])) == [{"name": b"a\xff", "flag": True}]


def test_what_is_no_value_at_all_is_refused() -> None:
    with pytest.raises(TypeError):
        answer.resume(1, 1, [object()])


def test_an_error_crosses_as_its_text_or_as_its_value() -> None:
    assert answer.resume_with_error(2, 5, "no")[0] == ResumeRun(2, 5, Form.RAISE, [b"no"])

    message, _ = answer.resume_with_error_value(2, 5, {"kind": "dns"})

    assert message.form == Form.RAISE_PACKED
    assert wire.unpack(packed_in(message)) == [{"kind": "dns"}]


def test_an_answer_that_must_be_walked_through_is_so_only_up_to_a_bound() -> None:
    name = "a\udcff"

    assert answer.pack([name, [1] * 1_000]) == wire.pack([b"a\xff", [1] * 1_000])
    with pytest.raises(OpError, match=r"^an answer with text that is not UTF-8 has more than 20000 values$"):
        answer.pack([name, [{}] * 20_000])
