"""Questions about past runs look at a bounded number of rows, by an index."""

from __future__ import annotations

import pytest

from spyweb.model import JobId, Outcome, RunId, TriggerType
from spyweb.store.model.runs import RunFilter
from spyweb.store.sqlite import past_runs
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore

ADD = """
    INSERT INTO run (job, state, attempt, "trigger", started_ms, ended_ms, outcome)
    VALUES ('prices', 'ended', 1, ?, ?, ?, ?)
"""


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


def add(store: MemoryStore, outcome: str, trigger: str = "{}") -> None:
    store.execute(ADD, trigger, 1, 2, outcome)


async def test_a_search_that_finds_little_says_how_far_it_looked(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "SEARCHED", 10)
    add(store, "lost")
    for _ in range(25):
        add(store, "success")

    wanted = RunFilter(triggers=[TriggerType.MANUAL])
    first = await store.past_runs.search(wanted, limit=5)
    second = await store.past_runs.search(wanted, limit=5, before=first.before)
    third = await store.past_runs.search(wanted, limit=5, before=second.before)

    assert [page.before for page in (first, second, third)] == [17, 7, None]
    assert first.runs == second.runs == third.runs == []


async def test_what_failed_is_found_without_a_walk_over_what_succeeded(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "SEARCHED", 10)
    add(store, "lost")
    for _ in range(25):
        add(store, "success")

    page = await store.past_runs.search(RunFilter(outcomes=[Outcome.LOST]), limit=5)
    assert ([run.id for run in page.runs], page.before) == ([1], None)


async def test_a_damaged_trigger_is_no_error(store: MemoryStore) -> None:
    add(store, "success", "no JSON")
    add(store, "success", "no JSON")

    wanted = RunFilter(job=JobId("prices"), triggers=[TriggerType.RETRY])
    assert (await store.past_runs.search(wanted, limit=5)).runs == []
    assert await store.past_runs.followers(RunId(1), limit=5) == []
