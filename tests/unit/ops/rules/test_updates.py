"""Every row of iii's table of edge cases, by its own words."""

from __future__ import annotations

import copy

import pytest

from spyweb.limits import NUMBER_KEYS
from spyweb.model import NULL, Value, ValueKey
from spyweb.ops.rules.updates import DEEPEST_MERGE, MOST_MERGED_KEYS, Update, UpdateKind, apply
from spyweb.ops.rules.values import Unstorable
from tests.fakes.growth import LINEAR, growth

LARGEST = 2**63 - 1
MISSING: Value = None


def op(kind: str, *path: bytes, value: Value = NULL, by: int = 0) -> Update:
    return Update(kind=UpdateKind(kind), path=path, value=value, by=by)


def outcome(root: Value, *updates: Update) -> tuple[Value, list[str]]:
    """What it becomes, and the codes of what could not be done."""
    before = copy.deepcopy(root)
    updated = apply(root, updates)
    assert root == before, "what was read must stay as it was"
    return updated.value, [problem.code for problem in updated.problems]


TWO_LEVELS: Value = {b"a": {b"x": 1, b"y": 2}, b"b": 3}
EDITS: list[tuple[Value, list[Update], Value]] = [
    # A set makes or replaces one field.
    ({b"a": 1}, [op("set", b"b", value=2)], {b"a": 1, b"b": 2}),
    ({b"a": 1}, [op("set", b"a", value=[])], {b"a": []}),
    (MISSING, [op("set", b"a", value=1)], {b"a": 1}),
    ({b"a": 1}, [op("set", b"a")], {b"a": NULL}),
    # Dots do not separate.
    ({b"a": {b"n": 1}}, [op("set", b"a.n", value=2)], {b"a": {b"n": 1}, b"a.n": 2}),
    ({}, [op("merge", b"a.b", value={b"c": 1})], {b"a.b": {b"c": 1}}),
    # A nested merge replaces what is no object, and keeps the rest.
    ({b"a": {b"b": [1], b"k": 1}}, [op("merge", b"a", b"b", value={b"c": 1})], {b"a": {b"b": {b"c": 1}, b"k": 1}}),
    # A merge is shallow where it lands.
    (TWO_LEVELS, [op("merge", value={b"a": {b"x": 9}})], {b"a": {b"x": 9}, b"b": 3}),
    (TWO_LEVELS, [op("merge", b"a", value={b"x": 9})], {b"a": {b"x": 9, b"y": 2}, b"b": 3}),
    (TWO_LEVELS, [op("merge", value={b"b": NULL})], {b"a": {b"x": 1, b"y": 2}, b"b": NULL}),
    # A number or a boolean is merged over its like.
    ({True: 1, 0: 1}, [op("merge", value={True: 2, 0: 2})], {True: 2, 0: 2}),
    # Counting a missing field, or the root of a missing key, begins with `by`.
    ({}, [op("increment", b"n", by=5)], {b"n": 5}),
    ({}, [op("decrement", b"n", by=5)], {b"n": -5}),
    (MISSING, [op("increment", b"n", by=5)], {b"n": 5}),
    (MISSING, [op("increment", by=5)], 5),
    (MISSING, [op("decrement", by=5)], -5),
    (MISSING, [op("increment", by=5), op("decrement", by=2)], 3),
    # A float stays a float unless it comes out even.
    ({b"n": 1.5}, [op("increment", b"n", by=2)], {b"n": 3.5}),
    (1.5, [op("decrement", by=1)], 0.5),
    # Appending to an array adds one element, even an array; a string is joined to a string.
    ([1], [op("append", value=2)], [1, 2]),
    ({b"a": [1]}, [op("append", b"a", value=[2, 3])], {b"a": [1, [2, 3]]}),
    ([], [op("append", value=b"x")], [b"x"]),
    (b"ab", [op("append", value=b"cd")], b"abcd"),
    ({b"a": b"ab"}, [op("append", b"a", value=b"cd")], {b"a": b"abcd"}),
    # A missing leaf below a longer path always begins an array; one of null begins a text.
    ({}, [op("append", b"a", b"b", value=b"x")], {b"a": {b"b": [b"x"]}}),
    ({b"a": {}}, [op("append", b"a", b"b", value=1)], {b"a": {b"b": [1]}}),
    ({b"a": {b"b": NULL}}, [op("append", b"a", b"b", value=b"x")], {b"a": {b"b": b"x"}}),
    # A field is removed.
    ({b"a": 1, b"b": 2}, [op("remove", b"a")], {b"b": 2}),
    ({b"b": 2}, [op("remove", b"a")], {b"b": 2}),
    (MISSING, [op("remove", b"a")], {}),
    # A key that Lua wrote as a number is reached by its text.
    ({200: 5}, [op("increment", b"200", by=1)], {200: 6}),
    ({200: 5}, [op("remove", b"200")], {}),
    ({200: 5, b"200": 1}, [op("increment", b"200", by=1)], {200: 5, b"200": 2}),
    ({200: 5}, [op("increment", b"0200", by=1)], {200: 5, b"0200": 1}),
    ({-1: 5}, [op("increment", b"-1", by=1)], {-1: 5, b"-1": 1}),
]


@pytest.mark.parametrize(("root", "updates", "value"), EDITS)
def test_ops_make_of_a_value_what_they_say(root: Value, updates: list[Update], value: Value) -> None:
    assert outcome(root, *updates) == (value, [])


@pytest.mark.parametrize("root", [NULL, 5, b"text", True, [1]])
@pytest.mark.parametrize("kind", ["set", "increment", "decrement", "append", "remove"])
def test_a_field_op_on_a_root_that_is_no_object_is_an_error(kind: str, root: Value) -> None:
    assert outcome(root, op(kind, b"a", value=b"x", by=1)) == (root, [f"{kind}.target_not_object"])


@pytest.mark.parametrize("root", [MISSING, NULL, 5, {b"a": 1}])
@pytest.mark.parametrize("value", [7, b"x", [1], {b"b": 2}, NULL])
def test_set_without_a_path_replaces_the_root_with_anything(root: Value, value: Value) -> None:
    assert outcome(root, op("set", value=value)) == (value, [])


@pytest.mark.parametrize("value", [NULL, 1, b"x", True, [], [1]])
def test_only_an_object_can_be_merged(value: Value) -> None:
    assert outcome({b"a": 1}, op("merge", value=value)) == ({b"a": 1}, ["merge.value.not_an_object"])
    assert outcome({b"a": 1}, op("merge", b"a", value=value)) == ({b"a": 1}, ["merge.value.not_an_object"])


@pytest.mark.parametrize("root", [NULL, 5, b"text", [1]])
def test_a_merge_onto_a_root_that_is_no_object_silently_does_nothing(root: Value) -> None:
    assert outcome(root, op("merge", value={b"a": 1})) == (root, [])


@pytest.mark.parametrize("root", [MISSING, NULL, 5, [1], {}])
def test_a_nested_merge_makes_objects_of_all_that_is_on_its_way_the_root_included(root: Value) -> None:
    assert outcome(root, op("merge", b"a", b"b", value={b"c": 1})) == ({b"a": {b"b": {b"c": 1}}}, [])


def test_a_missing_root_that_an_op_has_made_an_object_is_no_number() -> None:
    assert outcome(MISSING, op("set", b"a", value=1), op("increment", by=1)) == ({b"a": 1}, ["increment.not_number"])


@pytest.mark.parametrize("held", [NULL, b"5", True, [], {}])
@pytest.mark.parametrize("kind", ["increment", "decrement"])
def test_only_a_number_can_be_counted_even_by_zero(kind: str, held: Value) -> None:
    assert outcome({b"n": held}, op(kind, b"n", by=0)) == ({b"n": held}, [f"{kind}.not_number"])
    assert outcome(held, op(kind, by=1)) == (held, [f"{kind}.not_number"])


@pytest.mark.parametrize(
    ("held", "kind", "by"), [(LARGEST, "increment", 1), (-LARGEST - 1, "decrement", 1), (0, "decrement", -LARGEST - 1)]
)
def test_a_sum_that_leaves_64_bits_is_an_error_and_never_wraps(held: int, kind: str, by: int) -> None:
    assert outcome({b"n": held}, op(kind, b"n", by=by)) == ({b"n": held}, [f"{kind}.not_number"])
    assert outcome(held, op(kind, by=by)) == (held, [f"{kind}.not_number"])


@pytest.mark.parametrize(
    ("held", "value"), [(b"ab", 1), (b"ab", [b"x"]), (5, b"x"), (5, 5), (True, 1), ({}, 1), ({b"x": 1}, {b"y": 2})]
)
def test_other_types_do_not_meet(held: Value, value: Value) -> None:
    assert outcome({b"a": held}, op("append", b"a", value=value)) == ({b"a": held}, ["append.type_mismatch"])
    assert outcome(held, op("append", value=value)) == (held, ["append.type_mismatch"])


@pytest.mark.parametrize(("value", "begun"), [(b"x", b"x"), (1, [1]), ([1], [[1]]), ({}, [{}]), (NULL, [NULL])])
def test_appending_to_null_or_a_missing_field_or_root_begins_a_text_or_an_array(value: Value, begun: Value) -> None:
    assert outcome(NULL, op("append", value=value)) == (begun, [])
    assert outcome({b"a": NULL}, op("append", b"a", value=value)) == ({b"a": begun}, [])
    assert outcome({}, op("append", b"a", value=value)) == ({b"a": begun}, [])
    assert outcome(MISSING, op("append", b"a", value=value)) == ({b"a": begun}, [])
    assert outcome(MISSING, op("append", value=value)) == (begun, [])


@pytest.mark.parametrize("middle", [[1, 2], 5, b"text", NULL])
def test_an_append_on_its_way_replaces_what_is_no_object(middle: Value) -> None:
    root: Value = {b"a": middle, b"keep": 1}
    assert outcome(root, op("append", b"a", b"b", value=1)) == ({b"a": {b"b": [1]}, b"keep": 1}, [])


def test_an_append_that_fails_has_replaced_nothing() -> None:
    root: Value = {b"a": {b"b": {b"c": 5}}}
    assert outcome(root, op("append", b"a", b"b", b"c", value=1)) == (root, ["append.type_mismatch"])


@pytest.mark.parametrize("root", [MISSING, 5, {b"a": 1}, NULL])
def test_removing_the_root_leaves_null(root: Value) -> None:
    assert outcome(root, op("remove")) == (NULL, [])


def test_a_missing_key_becomes_an_empty_object_even_when_nothing_is_done() -> None:
    assert outcome(MISSING) == ({}, [])
    assert outcome(MISSING, op("merge", value=5)) == ({}, ["merge.value.not_an_object"])


def test_a_failed_op_is_reported_with_its_own_index_and_does_not_stop_the_others() -> None:
    updated = apply(
        {b"n": 1, b"s": b"x"},
        [
            op("increment", b"n", by=1),
            op("increment", b"s", by=1),
            op("set", b"t", value=True),
            op("append", b"n", value=1),
        ],
    )
    assert updated.value == {b"n": 2, b"s": b"x", b"t": True}
    assert [(problem.op_index, problem.code) for problem in updated.problems] == [
        (1, "increment.not_number"),
        (3, "append.type_mismatch"),
    ]
    assert updated.problems[0].message == "'s' holds a string, not a number"
    assert updated.problems[1].message == "'n': a number can't be appended to a number"
    below = apply({b"a": {b"\xff": 5}}, [op("append", b"a", b"\xff", value=1), op("increment", by=1)])
    assert below.problems[0].message == r"'a.\xff': a number can't be appended to a number"
    assert below.problems[1].message.startswith("the value holds ")


@pytest.mark.parametrize("kind", list(UpdateKind))
@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ((b"a",) * 33, "too_deep", "a path of 33 segments; at most 32"),
        ((b"x" * 257,), "segment_too_long", "a segment of 257 bytes; at most 256"),
        ((b"a", b""), "empty_segment", "a segment of the path is empty"),
        ((b"a", b"__proto__"), "proto_polluted", "a path can't go through '__proto__'"),
        ((b"constructor",), "proto_polluted", "a path can't go through 'constructor'"),
        ((b"prototype",), "proto_polluted", "a path can't go through 'prototype'"),
    ],
)
def test_every_op_checks_its_path(kind: UpdateKind, path: tuple[bytes, ...], code: str, message: str) -> None:
    updated = apply({}, [op(kind, *path, value={}, by=1)])
    assert updated.value == {}
    assert [(each.code, each.message) for each in updated.problems] == [(f"{kind}.path.{code}", message)]


@pytest.mark.parametrize("kind", list(UpdateKind))
@pytest.mark.parametrize("path", [(b"a",) * 32, (b"a", b"x" * 256)])
def test_a_path_within_the_limits_is_fine(kind: UpdateKind, path: tuple[bytes, ...]) -> None:
    assert outcome({}, op(kind, *path, value={}, by=1))[1] == []


def test_what_is_merged_has_its_limits() -> None:
    many: Value = {b"%d" % number: 1 for number in range(MOST_MERGED_KEYS + 1)}
    assert outcome({}, op("merge", value=many)) == ({}, ["merge.value.too_many_keys"])
    assert outcome({}, op("merge", value=nested(DEEPEST_MERGE)))[1] == []
    assert outcome({}, op("merge", value=nested(DEEPEST_MERGE + 1))) == ({}, ["merge.value.too_deep"])
    assert outcome({}, op("merge", value={b"a": [{b"__proto__": 1}]})) == ({}, ["merge.value.proto_polluted"])
    assert outcome({}, op("merge", value={b"constructor": 1})) == ({}, ["merge.value.proto_polluted"])


def nested(levels: int) -> Value:
    """Objects and arrays in turn, an object outermost."""
    value: Value = {}
    for level in range(levels - 1):
        value = {b"a": value} if level % 2 == levels % 2 else [value]
    return value


@pytest.mark.parametrize(("there", "segment"), [(True, b"1"), (False, b"0")])
def test_a_boolean_key_is_no_number_that_a_path_spells(there: bool, segment: bytes) -> None:
    held: Value = {there: b"kept"}

    value, codes = outcome(held, op("remove", segment), op("set", segment, value=b"new"), op("remove", b"x"))

    assert codes == []
    assert isinstance(value, dict)
    assert [(type(key), item) for key, item in value.items()] == [(bool, b"kept"), (bytes, b"new")]


@pytest.mark.parametrize(("held", "merged"), [({True: 1}, {1: 2}), ({0: 1}, {False: 2, b"a": 3})])
def test_a_table_never_has_both_a_boolean_and_the_number_that_python_takes_for_it(held: Value, merged: Value) -> None:
    assert outcome(held, op("merge", value=merged)) == (held, ["merge.value.mixed_keys"])


def test_ops_on_the_key_1_take_no_longer_in_a_large_table_than_their_number_says() -> None:
    def table_and_ops(size: int) -> tuple[Value, list[Update]]:
        table: dict[ValueKey, Value] = {b"k%d" % number: 1 for number in range(size)}
        steps = [op("increment", b"1", by=1), op("merge", value={1: 1, b"z": 1})]
        return {**table, 1: 1}, steps * (size // 10)

    assert growth(lambda given: apply(*given), table_and_ops, 1_000) < LINEAR


def test_more_number_keys_than_a_value_may_have_are_refused_at_the_merge_that_brings_them() -> None:
    half: dict[ValueKey, Value] = dict.fromkeys(range(-1, -NUMBER_KEYS // 2 - 1, -1), 1)
    merges = [op("merge", value=dict.fromkeys(range(at, at + 500), 1)) for at in range(0, NUMBER_KEYS, 500)]

    assert outcome({}, *merges)[0] == dict.fromkeys(range(NUMBER_KEYS), 1)
    with pytest.raises(Unstorable, match="a table over the limit of 5000 number keys in all can't be stored"):
        apply(half, merges[:6])
    with pytest.raises(Unstorable, match="number keys"):
        apply({b"a": 1}, [*merges, op("merge", b"b", value={1.5: 1}), op("remove", b"b")])
    with pytest.raises(Unstorable, match="number keys"):
        apply({}, [op("set", b"a", value=half), op("set", b"b", value=half), op("set", b"c", value={1: 1})])
    same: dict[ValueKey, Value] = dict.fromkeys(range(1_000), 1)
    assert outcome(same, *[op("merge", value=same)] * 6) == (same, [])


def test_a_table_of_many_numbers_is_merged_and_counted_in() -> None:
    held: Value = dict.fromkeys(range(5_000), 1)

    value, codes = outcome(held, op("merge", value={9_000: 1}), op("increment", b"7", by=1), op("remove", b"8"))

    assert isinstance(value, dict)
    assert (len(value), codes) == (5_000, [])
