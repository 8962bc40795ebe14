from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from spyweb.errors import OpError
from spyweb.limits import NUMBER_KEYS
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import MIB, NULL, HistoryRule, Value
from spyweb.ops.world import Call
from spyweb.settings.sections import StateSettings
from spyweb.store.model.entries import Put
from spyweb.store.sqlite.scanning import ITEM_COST
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import ask, make_call, make_world

A_FUNCTION = Foreign(Ext.FOREIGN, "function")


async def test_a_missing_key_is_nil_or_the_default() -> None:
    call = make_call()
    assert await ask(call, "state.get", b"k") == [None]
    assert await ask(call, "state.get", b"k", 7) == [7]
    await ask(call, "state.set", b"k", False)
    assert await ask(call, "state.get", b"k", 7) == [False]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("state.set", [b"k"], "bad argument #2 to 'state.set' (value expected, got nil)"),
        ("state.set", [b"k", None], "bad argument #2 to 'state.set' (value expected, got nil)"),
        ("state.set", [], "bad argument #1 to 'state.set' (string expected, got no value)"),
        ("state.set", [True, 1], "bad argument #1 to 'state.set' (string expected, got boolean)"),
        ("state.set", [NULL, 1], "bad argument #1 to 'state.set' (string expected, got null)"),
        ("state.set", [b"k", 1, {}], "bad argument #3 to 'state.set' (number expected, got table)"),
        ("state.set_with_ttl", [b"k", 1], "bad argument #3 to 'state.set_with_ttl' (number expected, got no value)"),
        ("state.set_with_ttl", [b"k", None, 1], "bad argument #2 to 'state.set_with_ttl' (value expected, got nil)"),
        ("state.exists", [{}], "bad argument #1 to 'state.exists' (string expected, got table)"),
        ("state.increment", [b"k", b"x"], "bad argument #2 to 'state.increment' (number expected, got string)"),
        ("state.append", [b"k", {}], "bad argument #2 to 'state.append' (string expected, got table)"),
        ("state.compare_swap", [b"k", 1], "bad argument #3 to 'state.compare_swap' (value expected, got nil)"),
        ("state.list_push", [b"k"], "bad argument #2 to 'state.list_push' (value expected, got nil)"),
        ("state.update", [b"k"], "bad argument #1 to 'state.update' (table expected, got string)"),
        ("state.rollback", [b"k"], "bad argument #2 to 'state.rollback' (number expected, got no value)"),
        ("store_set", [b"k", {}], "bad argument #2 to 'store_set' (string expected, got table)"),
        ("store_set", [b"k"], "bad argument #2 to 'store_set' (string expected, got no value)"),
        ("store_get", [True], "bad argument #1 to 'store_get' (string expected, got boolean)"),
        ("global_store_incr", [b"k", 0], "bad argument #3 to 'global_store_incr' (number expected, got no value)"),
        ("global_store_incr", [b"k", 0, 2.0**70], "bad argument #3 to 'global_store_incr' (number out of range)"),
        ("fs_append", [b"a.csv"], "bad argument #2 to 'fs_append' (string expected, got no value)"),
        ("fs_read", [True], "bad argument #1 to 'fs_read' (string expected, got boolean)"),
    ],
)
async def test_a_wrong_type_raises(name: str, arguments: Sequence[object], text: str) -> None:
    with pytest.raises(OpError) as caught:
        await ask(make_call(), name, *arguments)
    assert (str(caught.value), caught.value.value) == (text, None)


@pytest.mark.parametrize(
    ("name", "arguments", "results"),
    [
        ("state.set", [b"k", A_FUNCTION], [False, "key 'k': a function can't be stored"]),
        ("state.set", [b"k", {b"a": math.nan}], [False, "key 'k': NaN can't be stored (at .a)"]),
        ("state.set", [b"k", NULL], [False, "key 'k': JSON's null can only be kept inside a table"]),
        ("state.set", [b"k", 1, math.nan], [False, "key 'k': the ttl is NaN"]),
        ("state.set_with_ttl", [b"k", A_FUNCTION, 5], [False, "key 'k': a function can't be stored"]),
        ("state.set_ttl", [b"k", math.nan], [False, "key 'k': the ttl is NaN"]),
        ("state.set", [b"k", b"x" * 101], [False, "key 'k': the value of 101 bytes is over the limit of 100"]),
        ("state.compare_swap", [b"k", None, A_FUNCTION], [False, "key 'k': a function can't be stored"]),
        ("state.compare_swap", [b"k", A_FUNCTION, 1], [False, "key 'k': a function can't be stored"]),
        ("state.list_push", [b"k", A_FUNCTION], [-1, "key 'k': a function can't be stored"]),
    ],
)
async def test_what_can_not_be_kept_gives_a_reason_and_writes_nothing(
    name: str, arguments: Sequence[object], results: list[object]
) -> None:
    call = make_call(make_world(state=StateSettings(max_value_bytes=100)))
    results[1] = f"{name}: {results[1]}"
    assert await ask(call, name, *arguments) == results
    assert await ask(call, "state.keys") == [[]]


TOO_LONG = "key '1234567890x': 11 bytes are over the limit of 10"


OF_KEYS: list[tuple[str, list[object], object]] = [  # name, what follows the key, the failure value
    ("state.set", [1], False),
    ("state.set_with_ttl", [1, 5], False),
    ("state.get", [], None),
    ("state.exists", [], False),
    ("state.delete", [], False),
    ("state.set_ttl", [5], False),
    ("state.get_ttl", [], -1),
    ("state.increment", [], None),
    ("state.decrement", [], None),
    ("state.append", [b"x"], -1),
    ("state.compare_swap", [None, 1], False),
    ("state.list_push", [1], -1),
    ("state.list_pop", [], None),
    ("state.list_length", [], 0),
    ("state.history", [], None),
    ("state.get_version", [1], None),
    ("state.rollback", [1], False),
]


@pytest.mark.parametrize(("name", "arguments", "failure"), OF_KEYS)
async def test_a_key_that_is_too_long_gives_the_failure_value_and_a_reason(
    name: str, arguments: list[object], failure: object
) -> None:
    call = make_call(make_world(state=StateSettings(max_key_bytes=10)))
    assert await ask(call, name, b"1234567890x", *arguments) == [failure, f"{name}: {TOO_LONG}"]
    results = await ask(call, name, b"1234567890", *arguments)
    assert TOO_LONG not in str(results)


@pytest.mark.parametrize(
    ("name", "arguments", "failure"),
    [
        *((name, [b"k", *more], failure) for name, more, failure in OF_KEYS),
        ("state.clear", [], False),
        ("state.keys", [], None),
        ("state.list", [], None),
        ("state.stats", [], None),
        ("state.lock", [b"k"], False),
        ("state.try_lock", [b"k"], False),
        ("state.unlock", [b"k"], False),
        ("state.is_locked", [b"k"], False),
    ],
)
async def test_a_failing_store_gives_the_failure_value_and_its_text_and_is_counted(
    name: str, arguments: Sequence[object], failure: object
) -> None:
    store = MemoryStore(FakeClock())
    await store.close()
    call = make_call(make_world(store=store))
    with capture_logs() as logs:
        results = await ask(call, name, *arguments)
    assert results == [failure, f"{name}: The store is closed."]
    assert call.tally.storage_errors == 1
    assert [(line["event"], line["op"]) for line in logs] == [("store.failed", name)]


async def test_a_ttl_counts_down_and_then_the_key_is_gone_for_every_function() -> None:
    clock = FakeClock()
    call = make_call(make_world(clock=clock))
    await ask(call, "state.set", b"k", [1], 60)
    assert await ask(call, "state.get_ttl", b"k") == [60]
    clock.advance(59.5)
    assert await ask(call, "state.get_ttl", b"k") == [1]
    clock.advance(0.5)
    assert await ask(call, "state.get_ttl", b"k") == [-2]
    assert await ask(call, "state.get", b"k") == [None]
    assert await ask(call, "state.exists", b"k") == [False]
    assert await ask(call, "state.keys") == [[]]
    assert await ask(call, "state.list") == [{}]
    assert await ask(call, "state.list_length", b"k") == [0]
    assert await ask(call, "state.set_ttl", b"k", 5) == [False, "state.set_ttl: key 'k': there is no such key"]
    assert await ask(call, "state.list_push", b"k", 7) == [1]
    assert await ask(call, "state.get_ttl", b"k") == [-1]


async def test_a_ttl_beyond_any_calendar_is_none() -> None:
    call = make_call()
    assert await ask(call, "state.set", b"k", 1, math.inf) == [True]
    assert await ask(call, "state.get_ttl", b"k") == [-1]


async def test_a_listing_that_no_vm_could_hold_is_refused() -> None:
    call = make_call(memory_limit=MIB)
    for number in range(5):
        await ask(call, "state.set", b"%d" % number, b"x" * (MIB // 5))
        await ask(call, "state.set", {b"scope": b"s", b"key": b"%d" % number, b"value": b"x" * (MIB // 5)})
    too_large = "the answer would be larger than 1 MB, which is this job's memory limit"

    assert await ask(call, "state.list") == [None, f"state.list: {too_large}"]
    with pytest.raises(OpError) as raised:
        await ask(call, "state.list", {b"scope": b"s"})
    assert raised.value.value == {"code": "LIST_ERROR", "message": f"state.list: {too_large}"}
    assert call.tally.storage_errors == 0
    await ask(call, "state.delete", b"4")
    assert len((await ask(call, "state.list"))[0]) == 4  # type: ignore[arg-type]


async def test_keys_that_no_vm_could_hold_are_refused() -> None:
    call = make_call(memory_limit=3 * ITEM_COST)
    for key in [b"a", b"b", b"c"]:
        await ask(call, "state.set", key, key)

    assert (await ask(call, "state.keys"))[0] is None
    assert await ask(call, "state.keys", b"a*") == [[b"a"]]


async def test_versions_are_kept_and_come_back_where_there_is_a_history() -> None:
    clock = FakeClock()
    store = MemoryStore(clock, history={"state": HistoryRule(versions=5)})
    call = make_call(make_world(store=store, clock=clock))
    for value in (b"one", {b"two": 2}):
        await ask(call, "state.set", b"k", value, 60)
        clock.advance(1)
    (versions,) = await ask(call, "state.history", b"k")
    started = clock.now_ms() / 1000
    assert versions == [
        {"version": 2, "value": {b"two": 2}, "updated_at": started - 1},
        {"version": 1, "value": b"one", "updated_at": started - 2},
    ]
    assert len((await ask(call, "state.history", b"k", 1))[0]) == 1  # type: ignore[arg-type]
    assert await ask(call, "state.get_version", b"k", 1) == [b"one"]
    assert await ask(call, "state.get_version", b"k", 9) == [None]
    assert await ask(call, "state.rollback", b"k", 1) == [True]
    assert await ask(call, "state.get", b"k") == [b"one"]
    assert await ask(call, "state.get_ttl", b"k") == [-1]
    assert await ask(call, "state.rollback", b"k", 9) == [False, "state.rollback: key 'k': version 9 is not kept"]


async def test_the_statistics_have_the_fields_of_both_generations_and_ours() -> None:
    clock = FakeClock()
    call = make_call(make_world(clock=clock))
    await ask(call, "state.set", b"a", 1)
    await ask(call, "state.set", b"b", 1, 1)
    await ask(call, "state.get", b"a")
    await ask(call, "state.try_lock", b"l")
    clock.advance(2)
    (stats,) = await ask(call, "state.stats")
    assert isinstance(stats, dict)
    assert (stats["total_keys"], stats["expired_keys"], stats["active_locks"]) == (1, 1, 1)
    assert (stats["db_path"], stats["backend"]) == (":memory:", "memory")
    assert stats["total_size"] == stats["db_size_bytes"]
    assert stats["last_modified"] == clock.now_ms() / 1000 - 2
    assert (stats["reads"], stats["writes"]) == (2, 2)
    assert stats["op_ms_p50"] <= stats["op_ms_p99"]


async def test_last_modified_is_nil_where_there_is_nothing() -> None:
    (stats,) = await ask(make_call(), "state.stats")
    assert isinstance(stats, dict)
    assert stats["last_modified"] is None


@pytest.mark.parametrize(("name", "failure"), [("state.keys", None), ("state.clear", False)])
async def test_a_pattern_that_is_too_long_gives_the_failure_value_and_says_why(name: str, failure: object) -> None:
    call = make_call()

    assert await ask(call, name, b"*a" * 1000) == [
        failure,
        f"{name}: a pattern has 2000 bytes, at most 1024 are allowed",
    ]
    assert call.tally.storage_errors == 0


LARGEST = 2**63 - 1


async def holding(before: Value) -> Call:
    """A call of a run where `k` holds this, for a while; None: nothing."""
    call = make_call(make_world(state=StateSettings(max_value_bytes=100)))
    if before is not None:
        await call.values.transform(call.state_namespace, b"k", lambda _: Put(before), origin=call.origin)
        await ask(call, "state.set_ttl", b"k", 60)
    return call


async def assert_refused(before: Value, name: str, arguments: Sequence[object], results: list[object]) -> None:
    """The call is refused, and what is there stays."""
    call = await holding(before)
    assert await ask(call, name, b"k", *arguments) == [results[0], f"{name}: key 'k': {results[1]}"]
    assert await ask(call, "state.get", b"k") == [before]


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
async def test_a_number_or_a_numeric_text_is_added_to(before: Value, delta: float, after: Value) -> None:
    call = await holding(before)
    (total,) = await ask(call, "state.increment", b"k", delta)
    assert (total, type(total)) == (after, type(after))
    assert await ask(call, "state.get", b"k") == [after]
    assert await ask(call, "state.get_ttl", b"k") == [-1 if before is None else 60]


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
async def test_nothing_else_is_added_to_and_it_stays(before: Value, delta: float, reason: str) -> None:
    await assert_refused(before, "state.increment", [delta], [None, reason])


@pytest.mark.parametrize(
    ("before", "kind"), [(1, "a number"), (b"x", "a string"), (True, "a boolean"), ({b"a": 1}, "a table")]
)
async def test_only_a_list_is_a_list_and_only_a_text_is_appended_to(before: Value, kind: str) -> None:
    reason = f"it holds {kind}, not a list"
    await assert_refused(before, "state.list_push", [1], [-1, reason])
    await assert_refused(before, "state.list_pop", [], [None, reason])
    await assert_refused(before, "state.list_length", [], [0, reason])
    if kind != "a string":
        await assert_refused(before, "state.append", [b"x"], [-1, f"it holds {kind}, not a string"])


@pytest.mark.parametrize(
    ("name", "before", "given", "after"),
    [
        ("state.append", None, b"ab", b"ab"),
        ("state.append", b"x\x00", b"\xff", b"x\x00\xff"),
        ("state.append", b"x" * 100, b"", b"x" * 100),
        ("state.list_push", None, 7, [7]),
        ("state.list_push", [], 7, [7]),
        ("state.list_push", {}, 7, [7]),
        ("state.list_push", [1, [2]], 7, [1, [2], 7]),
        ("state.list_push", [NULL], 7, [NULL, 7]),
    ],
)
async def test_what_is_added_goes_to_the_end(name: str, before: Value, given: object, after: bytes) -> None:
    call = await holding(before)
    assert await ask(call, name, b"k", given) == [len(after)]
    assert await ask(call, "state.get", b"k") == [after]


@pytest.mark.parametrize("before", [None, [], {}])
async def test_nothing_is_taken_from_an_empty_list(before: Value) -> None:
    call = await holding(before)
    assert await ask(call, "state.list_pop", b"k") == [None]
    assert await ask(call, "state.list_length", b"k") == [0]


async def test_a_list_over_the_limit_can_still_be_emptied() -> None:
    call = await holding([b"x" * 200, 1])
    assert await ask(call, "state.list_pop", b"k") == [1]
    assert await ask(call, "state.list_length", b"k") == [1]


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
async def test_a_swap_needs_what_is_there_and_ends_its_expiry(before: Value, old: Value, swapped: bool) -> None:
    call = await holding(before)
    assert await ask(call, "state.compare_swap", b"k", old, b"new") == [swapped]
    assert await ask(call, "state.get", b"k") == [b"new" if swapped else before]
    assert not swapped or await ask(call, "state.get_ttl", b"k") == [-1]


async def test_a_delete_is_true_whatever_was_there() -> None:
    for before in (None, 1):
        assert await ask(await holding(before), "state.delete", b"k") == [True]


async def test_what_grows_over_the_limit_is_refused_and_stays() -> None:
    too_large = "the value of 101 bytes is over the limit of 100"
    await assert_refused(b"x" * 100, "state.append", [b"x"], [-1, too_large])
    await assert_refused(None, "state.compare_swap", [None, b"x" * 101], [False, too_large])
    await assert_refused(None, "state.list_push", [b"x" * 100], [-1, "the value of 103 bytes is over the limit of 100"])
    many: Value = [dict.fromkeys(range(NUMBER_KEYS), 1)]
    call = await holding(many)
    assert "number keys" in str(await ask(call, "state.list_push", b"k", {1: 1}))
    assert "number keys" not in str(await ask(call, "state.list_push", b"k", {b"a": 1}))
