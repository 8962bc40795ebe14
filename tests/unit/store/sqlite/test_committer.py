"""Each commit that changes something has a number, in the database and beside it; and how long it took is known."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spyweb.store.marker import LastCommit
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.committer import RECENT, Committer, find_last_commit
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import START_MS, FakeClock


def test_a_commit_is_numbered_in_its_own_transaction_and_noted_after_it(database: sqlite3.Connection) -> None:
    noted: list[tuple[LastCommit, bool]] = []
    committer = Committer(FakeClock(), LastCommit(4, 0), lambda commit: noted.append((commit, database.in_transaction)))
    database.execute("BEGIN IMMEDIATE")
    committer.commit(database)

    assert noted == [(LastCommit(5, START_MS), False)]
    assert find_last_commit(database) == LastCommit(5, START_MS)


async def test_what_changes_nothing_is_not_numbered_and_writes_nothing(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    await store.values.set(GLOBAL, b"k", b"1")
    size = (tmp_path / "spyweb.db-wal").stat().st_size
    await store.probe()
    await store.values.delete(GLOBAL, b"absent")

    assert (tmp_path / "spyweb.db-wal").stat().st_size == size
    await store.close()


def test_a_disk_is_slow_when_even_the_fastest_of_the_latest_commits_was(database: sqlite3.Connection) -> None:
    clock = FakeClock()
    committer = Committer(clock, LastCommit(0, 0))
    took: list[float] = []
    database.set_trace_callback(lambda statement: clock.advance(took[-1]) if statement == "COMMIT" else None)

    for seconds in [0.01, *[0.2] * (RECENT - 1)]:
        took.append(seconds)
        database.execute("BEGIN IMMEDIATE")
        assert committer.usual_s == 0
        committer.commit(database)
    assert round(committer.usual_s, 3) == 0.01
    database.execute("BEGIN IMMEDIATE")
    committer.commit(database)
    assert round(committer.usual_s, 3) == 0.2
