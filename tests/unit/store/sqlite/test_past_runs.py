"""Questions about past runs look at a bounded number of rows, by an index."""

from __future__ import annotations

import sqlite3

import pytest

from spyweb.model import JobId, Outcome, RunId, TriggerType
from spyweb.store.model.runs import RunFilter
from spyweb.store.sqlite import past_runs
from spyweb.store.sqlite.past_runs import find_followers, search_runs
from spyweb.store.sqlite.store import connect_to_memory

ADD = """
    INSERT INTO run (job, state, attempt, "trigger", started_ms, ended_ms, outcome)
    VALUES ('prices', 'ended', 1, ?, ?, ?, ?)
"""


@pytest.fixture
def connection() -> sqlite3.Connection:
    return connect_to_memory(0)


def add(connection: sqlite3.Connection, outcome: str, trigger: str = "{}") -> None:
    connection.execute(ADD, (trigger, 1, 2, outcome))


def test_a_search_that_finds_little_says_how_far_it_looked(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "SEARCHED", 10)
    add(connection, "lost")
    for _ in range(25):
        add(connection, "success")

    wanted = RunFilter(triggers=[TriggerType.MANUAL])
    first = search_runs(connection, wanted, 5, None)
    second = search_runs(connection, wanted, 5, first.before)
    third = search_runs(connection, wanted, 5, second.before)

    assert [page.before for page in (first, second, third)] == [17, 7, None]
    assert first.runs == second.runs == third.runs == []


def test_what_failed_is_found_without_a_walk_over_what_succeeded(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "SEARCHED", 10)
    add(connection, "lost")
    for _ in range(25):
        add(connection, "success")

    page = search_runs(connection, RunFilter(outcomes=[Outcome.LOST]), 5, None)
    assert ([run.id for run in page.runs], page.before) == ([1], None)


def test_a_damaged_trigger_is_no_error(connection: sqlite3.Connection) -> None:
    add(connection, "success", "no JSON")
    add(connection, "success", "no JSON")

    assert search_runs(connection, RunFilter(job=JobId("prices"), triggers=[TriggerType.RETRY]), 5, None).runs == []
    assert find_followers(connection, RunId(1), 5) == []
