"""Sweeping and clearing in slices: each its own batch, so that what is asked for meanwhile gets between."""

from __future__ import annotations

import asyncio
from pathlib import Path

from spyweb.model import HistoryRule
from spyweb.store.model.entries import Leave
from spyweb.store.sqlite.connections import SLICE
from spyweb.store.sqlite.store import open_store
from spyweb.store.sqlite.values import SLICE_S, in_time
from tests.fakes.clock import FakeClock
from tests.fakes.stores import opened, put, putting


async def test_a_write_gets_between_two_slices_of_a_sweep(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "spyweb.db", clock=clock)
    expiring = [
        store.values.transform("state", b"%d" % number, putting(1, clock.now_ms() + 1)) for number in range(5 * SLICE)
    ]
    for write in expiring:
        await write
    clock.advance(1)

    written = 0
    swept = asyncio.ensure_future(store.values.sweep())
    while not swept.done():
        await store.values.transform("other", b"k", putting(1))
        written += 1

    assert await swept == 5 * SLICE
    assert written >= 5, "each is answered with the slice that it was queued behind"
    await store.close()


async def test_a_write_gets_between_two_slices_of_a_clear(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    for write in [store.values.transform("state", b"%d" % number, putting(1)) for number in range(5 * SLICE)]:
        await write

    cleared = asyncio.ensure_future(store.values.clear("state"))
    seen = [store.values.transform("state", key, lambda entry: Leave(entry is not None)) for key in (b"0", b"999")]

    assert [await each for each in seen] == [False, True], "keys are cleared in their order"
    assert await cleared == 5 * SLICE
    assert await store.values.keys("state") == []
    await store.close()


class SlowRows(FakeClock):
    """Each row of a slice takes all the time that there is."""

    def monotonic(self) -> float:
        self.advance(SLICE_S)
        return super().monotonic()


def test_a_slice_ends_with_the_row_that_reaches_its_limit_of_time() -> None:
    clock, taken = FakeClock(), []
    for number in in_time(clock, range(10)):
        taken.append(number)
        clock.advance(SLICE_S * 0.4)

    assert taken == [0, 1, 2]
    assert list(in_time(clock, range(10))) == list(range(10))


async def test_rows_that_take_long_are_all_cleared_swept_and_forgotten(tmp_path: Path) -> None:
    clock = SlowRows()
    async with opened("sqlite", tmp_path / "spyweb.db", clock, {"state": HistoryRule(age_ms=1)}) as store:
        for number in range(7):
            await put(store, b"%d" % number, number)
        assert await store.values.clear("state") == 7
        assert await store.values.keys("state") == []

        clock.advance(1)
        for number in range(7):
            await put(store, b"%d" % number, number, namespace="other", expires_ms=clock.now_ms() + 1)
        clock.advance(1)
        assert await store.values.sweep() == 7
        assert await store.values.history("state", b"0") == []
