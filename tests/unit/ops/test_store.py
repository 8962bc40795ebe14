from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from spyweb.errors import OpError
from spyweb.model import NULL, OnStoreError, Value
from spyweb.ops.store import LOGGED_PER_RUN
from spyweb.store.model.entries import GLOBAL, Put, Watch
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import PRICES, ask, make_call, make_world

LARGEST = 2**63 - 1


async def test_a_number_is_kept_as_its_text() -> None:
    call = make_call()
    await ask(call, "store_set", 1, 3.0)
    assert await ask(call, "store_get", b"1") == [b"3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, b"7"), (1.5, b"1.5"), (True, b"true"), (NULL, b"null"), ([1, b"a"], b'[1,"a"]'), ({b"a": 1}, b'{"a":1}')],
)
async def test_a_typed_value_is_read_as_text(value: Value, text: bytes) -> None:
    call = make_call()
    await call.world.store.values.transform(GLOBAL, b"k", lambda entry: Put(value))
    assert await ask(call, "global_store_get", b"k") == [text]


@pytest.mark.parametrize(
    ("before", "default", "delta", "total"),
    [
        (None, 100, 10, 110),
        (b"6", 100, 1, 7),
        (b"-3", 0, -3, -6),
        (b"+5", 0, 1, 6),
        (b"abc", 100, 1, 101),
        (b"12abc", 100, 1, 101),
        (b"1.5", 100, 1, 101),
        (b" 7", 100, 1, 101),
        (b"", 100, 1, 101),
        (b"6", b"100", 1.0, 7),
    ],
)
async def test_a_counter_counts_from_what_is_there_or_from_the_default(
    before: bytes | None, default: object, delta: object, total: int
) -> None:
    call = make_call()
    if before is not None:
        await ask(call, "global_store_set", b"n", before)
    assert await ask(call, "global_store_incr", b"n", default, delta) == [total]
    assert await ask(call, "global_store_get", b"n") == [b"%d" % total]


async def test_a_counter_refuses_a_fraction() -> None:
    call = make_call()
    with pytest.raises(OpError, match=r"bad argument #3 to 'global_store_incr' \(number has no integer repr"):
        await ask(call, "global_store_incr", b"n", 0, 0.25)


@pytest.mark.parametrize("op", ["store", "global_store"])
async def test_a_fraction_is_kept_as_the_shortest_text_that_reads_back_the_same(op: str) -> None:
    call = make_call()
    await ask(call, f"{op}_set", b"k", 1 / 3)
    assert await ask(call, f"{op}_get", b"k") == [b"0.3333333333333333"]
    await ask(call, f"{op}_set", b"k", 0.1)
    assert await ask(call, f"{op}_get", b"k") == [b"0.1"]
    await ask(call, f"{op}_set", b"k", 2.0**66 / 3)  # an integer beyond 64 bits
    assert await ask(call, f"{op}_get", b"k") == [b"2.4595658764946067e+19"]


async def test_a_counter_that_overflows_gives_its_default_and_stays() -> None:
    call = make_call()
    await ask(call, "global_store_set", b"n", b"%d" % LARGEST)
    with capture_logs() as logs:
        assert await ask(call, "global_store_incr", b"n", 7, 1) == [7]
    assert await ask(call, "global_store_get", b"n") == [b"%d" % LARGEST]
    assert call.tally.storage_errors == 1
    assert [line["op"] for line in logs] == ["global_store_incr"]


in_each_op = pytest.mark.parametrize(
    ("name", "more", "otherwise"),
    [
        ("store_set", [b"v"], []),
        ("store_get", [], [None]),
        ("store_delete", [], []),
        ("global_store_set", [b"v"], []),
        ("global_store_get", [], [None]),
        ("global_store_delete", [], []),
        ("global_store_incr", [5, 1], [5]),
    ],
)


@in_each_op
async def test_a_failing_store_is_logged_and_counted_and_never_raises(
    name: str, more: list[object], otherwise: list[object]
) -> None:
    store = MemoryStore(FakeClock())
    await store.close()
    call = make_call(make_world(store=store))
    with capture_logs() as logs:
        assert await ask(call, name, b"k", *more) == otherwise
    assert call.tally.storage_errors == 1
    assert call.world.metrics.errors[name] == 1
    assert call.world.metrics.storage_errors == {name: 1}
    assert [(line["event"], line["op"], line["job"]) for line in logs] == [("store.failed", name, "prices")]


@pytest.mark.parametrize("name", ["store_set", "global_store_set", "state.set"])
@pytest.mark.parametrize(
    ("of_job", "of_world", "raises"),
    [(None, "raise", True), ("raise", "log", True), ("log", "raise", False), (None, "log", False)],
)
async def test_a_failing_store_is_an_error_of_the_script_where_the_settings_say_so(
    name: str, of_job: str | None, of_world: str, raises: bool
) -> None:
    store = MemoryStore(FakeClock())
    await store.close()
    world = replace(make_world(store=store), on_store_error=OnStoreError(of_world))
    call = make_call(world, on_store_error=OnStoreError(of_job) if of_job else None)
    with pytest.raises(OpError, match=f"^{name}: The store is closed") if raises else nullcontext():
        await ask(call, name, b"k", b"v")
    assert call.tally.storage_errors == 1
    assert world.metrics.storage_error_at_ms == world.clock.now_ms()


async def test_a_loop_over_a_failing_store_does_not_flood_the_log() -> None:
    store = MemoryStore(FakeClock())
    await store.close()
    call = make_call(make_world(store=store))
    with capture_logs() as logs:
        for _ in range(LOGGED_PER_RUN * 3):
            await ask(call, "store_set", b"k", b"v")
    assert call.tally.storage_errors == LOGGED_PER_RUN * 3
    assert len(logs) == LOGGED_PER_RUN


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("store_set", [b"k", b"1"]),
        ("store_delete", [b"k"]),
        ("global_store_set", [b"k", b"1"]),
        ("global_store_delete", [b"k"]),
        ("global_store_incr", [b"k", 0, 1]),
    ],
)
async def test_a_watched_write_says_whose_it_is(name: str, arguments: Sequence[object]) -> None:
    store = MemoryStore(FakeClock())
    call = make_call(make_world(store=store), depth=3)
    await store.values.set("job:prices", b"k", b"0")
    await store.values.set("global", b"k", b"0")
    store.events.watch([Watch(job=PRICES, namespace=namespace) for namespace in ("job:prices", "global")])
    await ask(call, name, *arguments)
    (event,) = await store.events.wanted(2)
    assert (event.origin.job, event.origin.run, event.origin.depth) == (PRICES, call.run, 3)


@in_each_op
async def test_a_key_of_more_than_4_kb_is_a_failure_of_the_store(
    name: str, more: list[object], otherwise: list[object]
) -> None:
    call = make_call()
    with capture_logs() as logged:
        assert await ask(call, name, b"k" * 4097, *more) == otherwise
    assert call.tally.storage_errors == 1
    (line,) = logged
    assert line["reason"] == "the key has 4097 bytes, at most 4096 are allowed"


async def test_a_key_of_4_kb_is_kept() -> None:
    call = make_call()
    await ask(call, "store_set", b"k" * 4096, b"v")
    assert await ask(call, "store_get", b"k" * 4096) == [b"v"]
