from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from spyweb.errors import OpError
from spyweb.model import BranchId, RunId
from spyweb.ops.state_locks import LONGEST_TIMEOUT, terms_of
from spyweb.ops.world import Call, World
from spyweb.settings.sections import StateSettings
from tests.fakes.clock import FakeClock, settle
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import BACKUP, PRICES, ask, make_call, make_world


@pytest.mark.parametrize(
    ("holder", "timeout", "terms"),
    [
        (None, None, (None, 30)),
        (60, None, (None, 60)),
        (0.5, None, (None, 0.5)),
        (60, 5, (None, 60)),
        (None, 5, (None, 5)),
        (b"60", None, (None, 60)),
        (b" 1.5 ", None, (None, 1.5)),
        (b"task-9", None, (b"task-9", 30)),
        (b"task-9", 300, (b"task-9", 300)),
        (b"task-9", b"300", (b"task-9", 300)),
        (b"60", 300, (b"60", 300)),
        (b"", None, (b"", 30)),
        (-5, None, (None, 0)),
        (math.inf, None, (None, LONGEST_TIMEOUT)),
    ],
)
def test_what_follows_the_name_is_told_apart_by_its_type(
    holder: object, timeout: object, terms: tuple[bytes | None, float]
) -> None:
    assert terms_of("state.lock", holder, timeout) == terms


@pytest.mark.parametrize(
    ("holder", "timeout", "text"),
    [
        (True, None, "bad argument #2 to 'state.lock' (number expected, got boolean)"),
        ({}, 5, "bad argument #2 to 'state.lock' (number expected, got table)"),
        (b"me", {}, "bad argument #3 to 'state.lock' (number expected, got table)"),
        (b"me", b"you", "bad argument #3 to 'state.lock' (number expected, got string)"),
    ],
)
def test_anything_else_raises(holder: object, timeout: object, text: str) -> None:
    with pytest.raises(OpError) as caught:
        terms_of("state.lock", holder, timeout)
    assert str(caught.value) == text


def two_runs(world: World | None = None, **changes: object) -> tuple[Call, Call]:
    world = world or make_world()
    return make_call(world, PRICES, **changes), make_call(world, BACKUP, run=RunId(2), **changes)


@pytest.mark.parametrize("given", [(math.nan,), (b"me", math.nan), (None, math.nan)])
async def test_a_timeout_that_is_no_number_gives_a_reason_and_no_lock(given: tuple[object, ...]) -> None:
    one, _ = two_runs()
    assert await ask(one, "state.lock", b"l", *given) == [False, "state.lock: lock 'l': the timeout is NaN"]
    assert await ask(one, "state.is_locked", b"l") == [False, None]


async def test_without_a_holder_it_waits_as_long_as_its_timeout() -> None:
    clock = FakeClock()
    one, two = two_runs(make_world(clock=clock))
    await ask(one, "state.lock", b"l")
    waiting = asyncio.create_task(ask(two, "state.lock", b"l", 5))
    await clock.turn(4.9)
    assert not waiting.done()
    await clock.turn(0.2)
    assert waiting.result() == [False, "state.lock: lock 'l' is held by 'prices#1'"]
    waiting = asyncio.create_task(ask(two, "state.lock", b"l", 5))
    await clock.turn(1)
    await ask(one, "state.unlock", b"l")
    await clock.turn()
    assert waiting.result() == [True]


async def test_with_a_holder_it_does_not_wait_and_says_so_in_the_log() -> None:
    lines: list[tuple[str, bytes]] = []
    one, two = two_runs(log=lambda level, text: lines.append((level, text)))
    await ask(one, "state.lock", b"l", b"task-9", 300)
    text = "state.lock: lock 'l' is held by 'task-9'"
    assert await ask(two, "state.lock", b"l", b"task-8", 300) == [False, text]
    assert lines == [("warn", text.encode())]
    await ask(two, "state.try_lock", b"l", b"task-8", 300)
    await ask(two, "state.lock", b"l", 0)
    assert len(lines) == 1, "those who are expected to look are not told twice"


@pytest.mark.parametrize(
    ("name", "arguments", "lease_ms"),
    [
        ("state.try_lock", [], 30_000),
        ("state.try_lock", [5], 5000),
        ("state.try_lock", [b"me", 0.0001], 1),
        ("state.lock", [60], 60_000),
        ("state.lock", [b"me", 300], 300_000),
        ("state.lock", [-1], 0),
    ],
)
async def test_the_timeout_is_how_long_it_outlasts_a_crash(
    name: str, arguments: Sequence[object], lease_ms: int
) -> None:
    store = MemoryStore(FakeClock())
    call = make_call(make_world(store=store))
    assert await ask(call, name, b"l", *arguments) == [True]
    held = await store.locks.holder(b"l")
    assert held is not None
    assert (held.lease_ms, held.run) == (lease_ms, call.run)


async def test_names_have_the_limit_of_keys() -> None:
    call = make_call(make_world(state=StateSettings(max_key_bytes=3)))
    long = "lock 'abcd': 4 bytes are over the limit of 3"
    assert await ask(call, "state.lock", b"abcd") == [False, f"state.lock: {long}"]
    assert await ask(call, "state.try_lock", b"l", b"abcd", 1) == [False, f"state.try_lock: {long}"]
    assert await ask(call, "state.lock", b"abc") == [True]


async def test_a_name_may_be_a_number_and_any_bytes() -> None:
    call = make_call()
    assert await ask(call, "state.lock", 7) == [True]
    assert await ask(call, "state.is_locked", b"7") == [True, b"prices#1"]
    assert await ask(call, "state.lock", b"\xff\x00") == [True]
    with pytest.raises(OpError, match=r"bad argument #1 to 'state\.lock'"):
        await ask(call, "state.lock", None)


# Branches of one run


def branches_of_a_run(*lineages: tuple[int, ...]) -> list[Call]:
    world = make_world()
    return [make_call(world, PRICES, lineage=lineage) for lineage in lineages]


async def test_a_branch_holds_a_lock_by_itself_and_another_waits_for_it() -> None:
    one, two = branches_of_a_run((1,), (2,))
    assert await ask(one, "state.try_lock", b"l") == [True]
    assert await ask(two, "state.is_locked", b"l") == [True, b"prices#1.1"]
    assert await ask(two, "state.try_lock", b"l") == [False, "state.try_lock: lock 'l' is held by 'prices#1.1'"]
    assert await ask(two, "state.unlock", b"l") == [
        False,
        "state.unlock: lock 'l' is held by 'prices#1.1', not by 'prices#1.2'",
    ]

    waiting = asyncio.ensure_future(ask(two, "state.lock", b"l", 60))
    await settle()
    assert not waiting.done()
    assert await ask(one, "state.unlock", b"l") == [True]
    assert await waiting == [True]


@pytest.mark.parametrize("holder", [(), (b"me", 60)])
async def test_the_end_of_a_branch_frees_its_locks_and_no_others(holder: tuple[object, ...]) -> None:
    run, one, two = branches_of_a_run((), (1,), (2,))
    for call, name in ((run, b"r"), (one, b"a"), (one, b"b"), (two, b"c")):
        assert await ask(call, "state.try_lock", name, *holder) == [True]

    one.world.branch_ended(BranchId(one.run, 1))

    locked = [(await ask(run, "state.is_locked", name))[0] for name in (b"r", b"a", b"b", b"c")]
    assert locked == [True, False, False, True]


@pytest.mark.parametrize("lineage", [(), (1,)])
async def test_a_lock_of_whoever_waits_for_the_branch_is_refused_at_once(lineage: tuple[int, ...]) -> None:
    outer, inner = branches_of_a_run(lineage, (2, *lineage))
    await ask(outer, "state.lock", b"l", 60)

    held_by = "prices#1.1" if lineage else "prices#1"
    assert await ask(inner, "state.lock", b"l", 60) == [
        False,
        f"state.lock: lock 'l' is held by this run already, as '{held_by}'",
    ]


async def test_a_lock_that_was_given_back_is_not_freed_again_with_its_branch() -> None:
    one, two = branches_of_a_run((1,), (2,))
    await ask(one, "state.try_lock", b"l", b"me", 60)
    await ask(one, "state.unlock", b"l", b"me")
    await ask(two, "state.try_lock", b"l", b"me", 60)

    one.world.branch_ended(BranchId(one.run, 1))

    assert await ask(two, "state.is_locked", b"l") == [True, b"me"]


async def test_a_lock_that_comes_when_its_branch_has_ended_is_given_back() -> None:
    one, two = branches_of_a_run((1,), (2,))
    asking = asyncio.ensure_future(ask(one, "state.try_lock", b"l"))
    await asyncio.sleep(0)
    one.world.branch_ended(BranchId(one.run, 1))
    await asyncio.wait([asking])
    await settle()

    assert await ask(two, "state.is_locked", b"l") == [False, None]
