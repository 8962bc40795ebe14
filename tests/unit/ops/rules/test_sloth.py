from __future__ import annotations

import pytest

from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Value
from spyweb.ops.rules import sloth
from spyweb.ops.rules.sloth import Subject, added
from spyweb.store.model.entries import KEEP, Drop, Entry, Leave, Put

HERE = Subject("state.f", b"k", None, 100)
LARGEST = 2**63 - 1


def entry(value: Value) -> Entry:
    return Entry(value=value, version=1, created_ms=1, updated_ms=2, expires_ms=9)


def holding(value: Value) -> Entry | None:
    return None if value is None else entry(value)


@pytest.mark.parametrize(
    ("before", "delta", "after"),
    [
        (None, 1, 1),
        (None, 2.5, 2.5),
        (5, -7, -2),
        (0.5, 0.5, 1),
        (b"41", 1, 42),
        (b" 1.5 ", 1, 2.5),
        (b"0x10", 1, 17),
        (LARGEST - 1, 1, LARGEST),
        (2**62, 0.5, 2**62),
        (2**53 + 1, 1.0, 2**53 + 2),
        (b"%d" % (2**53 + 1), 1.0, 2**53 + 2),
        (b"1e3", 2**53 + 1, 2**53 + 1001),
    ],
)
def test_a_number_or_a_numeric_text_is_added_to(before: Value, delta: float, after: Value) -> None:
    decision = sloth.increment(HERE, delta)(holding(before))
    assert decision == Put(after, KEEP, (after,))
    assert isinstance(decision, Put)
    assert type(decision.value) is type(after)


@pytest.mark.parametrize(
    ("before", "delta", "reason"),
    [
        (b"abc", 1, "it holds a string, not a number"),
        (b"", 1, "it holds a string, not a number"),
        (b"inf", 1, "it holds a string, not a number"),
        (True, 1, "it holds a boolean, not a number"),
        ([], 1, "it holds a list, not a number"),
        ({}, 1, "it holds a table, not a number"),
        (NULL, 1, "it holds null, not a number"),
        (LARGEST, 1, f"{LARGEST} + 1 leaves the range of numbers"),
        (-LARGEST, -2, f"{-LARGEST} + -2 leaves the range of numbers"),
        (LARGEST, 1.0, f"{LARGEST} + 1 leaves the range of numbers"),
        (b"1e999", 1, "inf + 1 leaves the range of numbers"),
        (1, float("nan"), "1 + nan leaves the range of numbers"),
        (1, float("inf"), "1 + inf leaves the range of numbers"),
        (1e308, 1e308, "1e+308 + 1e+308 leaves the range of numbers"),
    ],
)
def test_nothing_else_is_added_to_and_it_stays(before: Value, delta: float, reason: str) -> None:
    assert sloth.increment(HERE, delta)(holding(before)) == Leave((None, f"state.f: key 'k': {reason}"))


def test_a_sum_of_an_integer_and_a_float_beyond_all_floats_is_none() -> None:
    assert added(1.5, 10**400) is None


@pytest.mark.parametrize(("before", "text", "after"), [(None, b"ab", b"ab"), (b"x\x00", b"\xff", b"x\x00\xff")])
def test_a_text_grows_by_bytes(before: Value, text: bytes, after: bytes) -> None:
    assert sloth.append(HERE, text)(holding(before)) == Put(after, KEEP, (len(after),))


@pytest.mark.parametrize("before", [1, True, [], {}])
def test_only_a_text_can_be_appended_to(before: Value) -> None:
    decision = sloth.append(HERE, b"x")(holding(before))
    assert isinstance(decision, Leave)
    assert "not a string" in str(decision.result)


@pytest.mark.parametrize(
    ("before", "after"), [(None, [7]), ([], [7]), ({}, [7]), ([1, [2]], [1, [2], 7]), ([NULL], [NULL, 7])]
)
def test_an_item_goes_to_the_end_of_a_list(before: Value, after: list[Value]) -> None:
    assert sloth.list_push(HERE, 7)(holding(before)) == Put(after, KEEP, (len(after),))


@pytest.mark.parametrize("before", [None, [], {}])
def test_nothing_is_taken_from_an_empty_list(before: Value) -> None:
    assert sloth.list_pop(HERE)(holding(before)) == Leave((None,))
    assert sloth.list_length(HERE, holding(before)) == (0,)


@pytest.mark.parametrize(
    ("before", "kind"), [(1, "a number"), (b"x", "a string"), (True, "a boolean"), ({b"a": 1}, "a table")]
)
def test_only_a_list_is_a_list(before: Value, kind: str) -> None:
    refusal = (None, f"state.f: key 'k': it holds {kind}, not a list")
    assert sloth.list_push(HERE, 1)(entry(before)) == Leave(refusal)
    assert sloth.list_pop(HERE)(entry(before)) == Leave(refusal)
    assert sloth.list_length(HERE, entry(before)) == refusal


def test_a_list_over_the_limit_can_still_be_emptied() -> None:
    assert isinstance(sloth.list_pop(HERE)(entry([b"x" * 200, 1])), Put)


@pytest.mark.parametrize(
    ("before", "old", "swapped"),
    [
        (None, None, True),
        (None, 1, False),
        (1, None, False),
        (1, 1.0, True),
        (1, True, False),
        ({b"a": [1]}, {b"a": [1]}, True),
        ({b"a": [1]}, {b"a": [2]}, False),
    ],
)
def test_a_swap_needs_what_is_there(before: Value, old: Value, swapped: bool) -> None:
    decision = sloth.compare_swap(HERE, old, b"new")(holding(before))
    assert decision == (Put(b"new", None, (True,)) if swapped else Leave((False,)))


def test_a_set_replaces_the_expiry() -> None:
    assert sloth.put(HERE, 1, 50)(entry(0)) == Put(1, 50, (True,))
    assert sloth.put(HERE, 1, None)(entry(0)) == Put(1, None, (True,))


def test_a_delete_is_true_whatever_was_there() -> None:
    assert sloth.delete()(None) == sloth.delete()(entry(1)) == Drop((True,))


def test_what_grows_over_the_limit_is_refused_and_stays() -> None:
    too_large = (None, "state.f: key 'k': the value of 101 bytes is over the limit of 100")
    assert sloth.put(HERE, b"x" * 101, None)(None) == Leave(too_large)
    assert sloth.append(HERE, b"x")(entry(b"x" * 100)) == Leave(too_large)
    assert sloth.compare_swap(HERE, None, b"x" * 101)(None) == Leave(too_large)
    assert isinstance(sloth.list_push(HERE, b"x" * 100)(None), Leave)
    many: Value = dict.fromkeys(range(NUMBER_KEYS), 1)
    assert "number keys" in str(sloth.list_push(HERE, {1: 1})(entry([many])))
    assert "number keys" not in str(sloth.list_push(HERE, {b"a": 1})(entry([many])))
    assert isinstance(sloth.append(HERE, b"")(entry(b"x" * 100)), Put)
