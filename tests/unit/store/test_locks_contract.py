"""What every store promises about locks: the same tests against SQLite, encrypted SQLite, and dictionaries."""

from __future__ import annotations

import pytest

from spyweb.model import Outcome, RunId
from spyweb.store.model.entries import Held
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_end, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import ENGINES, until_told

STORES = ENGINES

NAME, ME, YOU = b"deploy", b"me", b"you\xff\0"


@pytest.fixture
def freed(store: Store) -> list[bytes]:
    """The names that the store has told of."""
    names: list[bytes] = []
    store.locks.on_committed(names.extend)
    return names


def held(clock: FakeClock, *, holder: bytes = ME, run: RunId | None = None, lease_ms: int = 1000) -> Held:
    now_ms = clock.now_ms()
    return Held(name=NAME, holder=holder, run=run, acquired_ms=now_ms, expires_ms=now_ms + lease_ms, lease_ms=lease_ms)


async def test_a_free_lock_is_acquired_and_then_somebody_has_it(store: Store, clock: FakeClock) -> None:
    assert await store.locks.holder(NAME) is None
    assert await store.locks.acquire(NAME, ME, None, 1000) is None

    assert await store.locks.holder(NAME) == held(clock)
    assert await store.locks.acquire(NAME, YOU, None, 1000) == held(clock)
    assert await store.locks.acquire(NAME, ME, None, 1000) == held(clock)
    assert await store.locks.acquire(b"other", YOU, None, 1000) is None


async def test_its_holder_releases_it_and_nobody_else(store: Store, clock: FakeClock, freed: list[bytes]) -> None:
    assert await store.locks.release(NAME, ME) is None
    await store.locks.acquire(NAME, ME, None, 1000)

    assert await store.locks.release(NAME, YOU) == held(clock)
    assert await store.locks.holder(NAME) == held(clock)
    await until_told()
    freed.clear()

    assert await store.locks.release(NAME, ME) == held(clock)
    assert await store.locks.holder(NAME) is None
    await until_told()
    assert freed == [NAME]


async def test_a_lease_that_has_expired_is_free(store: Store, clock: FakeClock) -> None:
    await store.locks.acquire(NAME, ME, RunId(1), 1000)
    clock.advance(0.999)
    assert await store.locks.acquire(NAME, YOU, None, 1000)

    clock.advance(0.001)
    assert await store.locks.holder(NAME) is None
    assert await store.locks.release(NAME, ME) is None
    assert await store.locks.acquire(NAME, YOU, None, 1000) is None


async def test_a_clock_that_was_set_back_makes_a_lease_no_longer_for_whoever_wants_the_lock(
    store: Store, clock: FakeClock
) -> None:
    await store.locks.acquire(NAME, ME, None, 1000)
    clock.jump(-3600)
    told = await store.locks.acquire(NAME, YOU, None, 500)
    assert told is not None
    assert told.expires_ms == clock.now_ms() + 1000

    clock.advance(0.999)
    assert await store.locks.acquire(NAME, YOU, None, 500) is not None
    clock.advance(0.001)
    assert await store.locks.acquire(NAME, YOU, None, 500) is None


async def test_a_lease_that_has_expired_still_holds_while_its_run_lives(store: Store, clock: FakeClock) -> None:
    living = {RunId(1)}
    store.locks.alive = living.__contains__
    await store.locks.acquire(NAME, ME, RunId(1), 1000)
    clock.advance(5)

    assert await store.locks.acquire(NAME, YOU, None, 1000)
    assert [lock.holder for lock in await store.locks.list()] == [ME]
    await store.values.sweep()

    living.clear()
    assert await store.locks.acquire(NAME, YOU, None, 1000) is None


async def test_the_leases_of_living_runs_begin_anew(store: Store, clock: FakeClock) -> None:
    await store.locks.acquire(NAME, ME, RunId(1), 1000)
    await store.locks.acquire(b"a", ME, RunId(1), 5000)
    await store.locks.acquire(b"b", YOU, RunId(2), 5000)
    clock.advance(0.5)

    assert await store.locks.renew([RunId(1), RunId(3)]) == 2

    now_ms = clock.now_ms()
    assert {lock.name: lock.expires_ms - now_ms for lock in await store.locks.list()} == {
        b"a": 5000, NAME: 1000, b"b": 4500,
    }  # fmt: skip


async def test_locks_are_listed_by_name_when_they_are_held(store: Store, clock: FakeClock) -> None:
    await store.locks.acquire(b"b", ME, None, 1000)
    await store.locks.acquire(b"a", YOU, RunId(7), 1000)
    await store.locks.acquire(b"expired", YOU, RunId(7), 0)

    assert [(lock.name, lock.holder, lock.run) for lock in await store.locks.list()] == [
        (b"a", YOU, 7),
        (b"b", ME, None),
    ]


async def test_a_lock_can_be_broken_whoever_has_it(store: Store, clock: FakeClock, freed: list[bytes]) -> None:
    await store.locks.acquire(NAME, ME, None, 1000)

    assert await store.locks.release(NAME, None) == held(clock)
    assert await store.locks.release(NAME, None) is None
    assert await store.locks.acquire(NAME, YOU, None, 1000) is None
    await until_told()
    assert NAME in freed


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.LOST])
async def test_the_end_of_a_run_releases_its_locks_however_it_ends(
    store: Store, freed: list[bytes], outcome: Outcome
) -> None:
    mine, other = await start_run(store, PRICES), await start_run(store, NEWS)
    await store.locks.acquire(NAME, ME, mine, 1000)
    await store.locks.acquire(b"second", ME, mine, 1000)
    await store.locks.acquire(b"other", YOU, other, 1000)
    await store.locks.acquire(b"nobody's", YOU, None, 1000)

    ended = store.runs.record(Change(end=[make_end(mine, outcome=outcome)]))
    next_one = store.locks.acquire(NAME, YOU, None, 1000)  # asked for before the end is committed

    assert await ended == []
    assert await next_one is None
    assert [lock.name for lock in await store.locks.list()] == [NAME, b"nobody's", b"other"]
    await until_told()
    assert sorted(freed) == [NAME, b"second"]


async def test_all_locks_of_a_run_can_be_released_at_once(store: Store, freed: list[bytes]) -> None:
    await store.locks.acquire(NAME, ME, RunId(1), 1000)
    await store.locks.acquire(b"a", ME, RunId(1), 1000)
    await store.locks.acquire(b"b", ME, RunId(2), 1000)

    assert await store.locks.release_run(RunId(1)) == [b"a", NAME]
    assert await store.locks.release_run(RunId(1)) == []
    assert [lock.name for lock in await store.locks.list()] == [b"b"]
    await until_told()
    assert sorted(set(freed)) == [b"a", NAME]


async def test_a_sweep_tells_of_locks_whose_lease_has_expired(
    store: Store, clock: FakeClock, freed: list[bytes]
) -> None:
    await store.locks.acquire(NAME, ME, RunId(1), 1000)
    await store.locks.acquire(b"later", ME, RunId(1), 2000)
    clock.advance(1)

    await store.values.sweep()
    await until_told()

    assert freed == [NAME]


async def test_clearing_values_leaves_locks_alone(store: Store) -> None:
    await store.locks.acquire(NAME, ME, None, 1000)
    await store.values.clear("state")

    assert await store.locks.holder(NAME)
