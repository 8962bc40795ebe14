"""A connection and its thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from pathlib import Path

import pytest

from spyweb.store.sqlite.connection import Connection
from tests.fakes.tables import make_table


async def test_functions_run_one_after_the_other_on_its_thread() -> None:
    connection = await Connection.open(partial(sqlite3.connect, ":memory:"))

    threads = await asyncio.gather(*(connection.run(lambda _: threading.current_thread()) for _ in range(3)))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await connection.run(lambda database: database.execute("SELECT * FROM absent"))
    await connection.close()

    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()


async def test_an_opening_that_is_cancelled_is_over_once_nothing_is_made_any_more(tmp_path: Path) -> None:
    entered, may_go_on = threading.Event(), threading.Event()
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        entered.set()
        assert may_go_on.wait(5)
        made.append(make_table(tmp_path / "late.db"))
        return made[0]

    opening = asyncio.create_task(Connection.open(connect))
    await asyncio.to_thread(entered.wait)
    opening.cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening

    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        made[0].total_changes  # noqa: B018  # the one thing that another thread may ask
    assert not [thread for thread in threading.enumerate() if "connection_worker" in thread.name]


async def test_a_connection_that_cannot_be_made_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        await Connection.open(partial(sqlite3.connect, tmp_path / "absent" / "x.db"))
