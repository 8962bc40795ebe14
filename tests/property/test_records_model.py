"""The SQLite store and the one of dictionaries agree on whatever pages come, and on every pruning between."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import Durability, JobId
from spyweb.store.protocol import Store
from spyweb.store.records_protocol import NewRecord
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import FakeClock
from tests.fakes.memory.memory import MemoryStore

DAY_S = 86_400

JOBS = st.sampled_from([JobId("a"), JobId("b")])
HASHES = st.sampled_from([bytes([number]) for number in range(6)])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ITEMS = st.builds(
    NewRecord,
    hash=HASHES,
    fields=st.dictionaries(TEXTS, TEXTS, max_size=3),
    matches=st.lists(TEXTS, max_size=2),
    url=TEXTS,
)
PAGES = st.tuples(JOBS, st.lists(ITEMS, max_size=8))
# How many records are kept, of how many days, and since when items are forgotten.  Whole weeks and more: within a day
# of it the real store may remember an item longer.
PRUNINGS = st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(8, 30))
STEPS = st.lists(st.tuples(st.integers(0, 20).map(lambda days: days * DAY_S), PAGES | PRUNINGS), max_size=12)


async def play(store: Store, clock: FakeClock, steps: list[tuple[int, tuple[object, ...]]]) -> list[object]:
    """What the store says on the way."""
    story: list[object] = []
    for seconds, step in steps:
        clock.advance(seconds)
        match step:
            case (str() as job, list() as items):
                story.append(await store.records.add(JobId(job), items))
            case (int() as keep, int() as days, int() as unseen_days):
                now_ms = clock.now_ms()
                story.append(
                    await store.records.prune(
                        keep=keep,
                        older_than_ms=now_ms - days * DAY_S * 1000,
                        unseen_since_ms=now_ms - unseen_days * DAY_S * 1000,
                    )
                )
        story.append(await store.records.list())
    return story


async def both(steps: list[tuple[int, tuple[object, ...]]], path: Path) -> tuple[list[object], list[object]]:
    clock = FakeClock()
    real = await open_store(path, clock=clock, durability=Durability.NORMAL)
    told = await play(real, clock, steps)
    await real.close()
    clock = FakeClock()
    return told, await play(MemoryStore(clock), clock, steps)


@given(steps=STEPS)
def test_both_stores_tell_the_same_story(steps: list[tuple[int, tuple[object, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, model = asyncio.run(both(steps, Path(folder) / "spyweb.db"))
    assert real == model
