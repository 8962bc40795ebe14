"""On a real file, in real processes: what waits for whom, and what is ended when."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sqlite3
from asyncio import Task
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from spyweb.clock import RealClock
from spyweb.errors import StoreClosed, StoreError
from spyweb.model import BranchId, Durability, JobId, RunId
from spyweb.store.user_sql import user_db
from spyweb.store.user_sql.connection import Answered, Opening
from spyweb.store.user_sql.user_db import SqlProcess, SqlSpawner, SqlUser, UserDatabase
from tests.fakes.clock import FakeClock
from tests.fakes.ops import SPAWNER, make_sql
from tests.fakes.sql import Asker, statement

T = TypeVar("T")

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
# One step of SQLite's machine that takes minutes: nothing can interrupt it.
STUCK = "SELECT instr(zeroblob(9000000), zeroblob(4500000) || x'01') AS a"


PATIENCE_S = 0.3


@pytest.fixture
async def database(tmp_path: Path, clock: FakeClock) -> AsyncIterator[UserDatabase]:
    async with make_sql(tmp_path, clock, patience_s=PATIENCE_S) as database:
        await Asker(database, "setup").changed("CREATE TABLE t (a)")
        yield database


def begun(work: Coroutine[None, None, T]) -> Task[T]:
    return asyncio.get_running_loop().create_task(work)


async def until(condition: Callable[[], object]) -> None:
    """Let the processes do what they do meanwhile."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0)


def is_running(database: UserDatabase, job: str) -> bool:
    """Whether the job's statement has begun in its process."""
    session = database._sessions.get(SqlUser(JobId(job)))
    return session is not None and session.running is not None and session.cpu_of(session.running) > 0.002


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def with_patience(clock: FakeClock, *tasks: Task[T]) -> None:
    """Let time pass until these are done, but only while somebody waits for somebody else."""
    async with asyncio.timeout(30):
        while not all(task.done() for task in tasks):
            if clock.next_in is not None and clock.next_in <= PATIENCE_S:
                await clock.turn(clock.next_in)
            await asyncio.sleep(0)


async def numbers(asker: Asker) -> list[object]:
    return [row["a"] for row in await asker.rows("SELECT a FROM t ORDER BY a")]


async def test_a_write_waits_for_another_jobs_transaction_and_reads_do_not(
    database: UserDatabase, clock: FakeClock
) -> None:
    a, b = Asker(database, "a", 1), Asker(database, "b", 2)
    await a.changed("BEGIN")
    await a.changed("INSERT INTO t VALUES (1)")
    waiting = begun(b.changed("INSERT INTO t VALUES (2)"))
    await until(lambda: clock.next_in == user_db.RETRY_S)
    assert await numbers(Asker(database, "c", 3)) == []
    assert not waiting.done()
    await a.changed("COMMIT")
    await with_patience(clock, waiting)
    assert await waiting == 1
    assert await numbers(b) == [1, 2]


async def test_a_write_that_waits_too_long_finds_the_database_locked(database: UserDatabase, clock: FakeClock) -> None:
    await Asker(database, "a", 1).changed("BEGIN IMMEDIATE")
    waiting = [begun(Asker(database, job, 2).changed("INSERT INTO t VALUES (2)")) for job in ("b", "c", "d")]
    await with_patience(clock, *waiting)
    for task in waiting:
        with pytest.raises(StoreError, match=r"^database is locked$"):
            await task


async def test_a_file_that_was_removed_is_left_for_what_lies_there_now(database: UserDatabase, tmp_path: Path) -> None:
    a, b = Asker(database, "a", 1), Asker(database, "b", 2)
    await b.changed("INSERT INTO t VALUES (1)")
    await a.changed("BEGIN")
    await a.changed("INSERT INTO t VALUES (2)")
    for file in tmp_path.rglob("user.db*"):
        file.unlink()
    with pytest.raises(StoreError, match=r"user\.db: was removed or replaced while spyweb uses it"):
        await a.changed("COMMIT")
    await b.changed("CREATE TABLE t (a)")
    await b.changed("INSERT INTO t VALUES (3)")
    database.run_ended(RunId(1))
    assert await numbers(Asker(database, "a", 3)) == [3]


async def test_two_runs_of_a_job_do_not_mix_in_a_transaction(database: UserDatabase, clock: FakeClock) -> None:
    first, second = Asker(database, "a", 1), Asker(database, "a", 2)
    await first.changed("BEGIN")
    await first.changed("INSERT INTO t VALUES (1)")
    refused = begun(second.changed("COMMIT"))
    await with_patience(clock, refused)
    with pytest.raises(StoreError, match=r"^database is locked$"):
        await refused
    waiting = begun(second.changed("INSERT INTO t VALUES (2)"))
    await until(lambda: clock.next_in == PATIENCE_S)
    database.run_ended(RunId(1))
    assert await waiting == 1
    assert await numbers(second) == [2]


async def test_branches_of_a_run_do_not_mix_in_a_transaction(database: UserDatabase) -> None:
    run, one, two = (Asker(database, "a", 1, branch) for branch in (0, 1, 2))
    await one.changed("BEGIN")
    await one.changed("INSERT INTO t VALUES (1)")
    waiting = [begun(asker.changed("INSERT INTO t VALUES (2)")) for asker in (run, two)]
    await until(lambda: database._sessions[SqlUser(JobId("a"))].calls == 2)
    database.run_ended(BranchId(RunId(1), 1))
    await asyncio.wait(waiting)
    assert await numbers(two) == [2, 2]


async def test_the_end_of_another_run_rolls_nothing_back(database: UserDatabase) -> None:
    a = Asker(database, "a", 1)
    await a.changed("BEGIN")
    await a.changed("INSERT INTO t VALUES (1)")
    database.run_ended(RunId(2))
    await a.changed("COMMIT")
    assert await numbers(a) == [1]


async def test_a_transaction_that_begins_as_its_run_ends_is_rolled_back(database: UserDatabase) -> None:
    beginning = begun(Asker(database, "a", 1).changed("BEGIN IMMEDIATE"))
    await asyncio.sleep(0)
    database.run_ended(RunId(1))
    await asyncio.wait([beginning])
    assert await Asker(database, "b", 2).changed("INSERT INTO t VALUES (2)") == 1


async def test_whoever_is_cancelled_ends_its_statement(database: UserDatabase) -> None:
    asked = statement(ENDLESS, longest_s=60.0)
    waiting = begun(database.ask(JobId("a"), RunId(1), asked))
    await until(lambda: is_running(database, "a"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asked.unwanted
    assert await asyncio.wait_for(Asker(database, "a", 2).rows("SELECT 1 AS a"), 5) == [{"a": 1}]


async def test_endless_statements_of_many_jobs_keep_nobody_from_the_loop(
    database: UserDatabase, clock: FakeClock
) -> None:
    endless = [begun(Asker(database, f"j{number}", number).rows(ENDLESS, longest_s=60.0)) for number in range(12)]
    first, others = range(user_db.MOST_AT_ONCE), range(user_db.MOST_AT_ONCE, len(endless))
    for some in (first, others):
        await until(lambda some=some: all(is_running(database, f"j{number}") for number in some))  # type: ignore[misc]
        await clock.turn(60)
        await until(lambda some=some: all(endless[number].done() for number in some))  # type: ignore[misc]
    for task in endless:
        with pytest.raises(StoreError, match=r"interrupted: a statement may take 60 s"):
            await task


async def test_a_statement_that_can_not_be_ended_costs_its_process_and_nothing_else(
    database: UserDatabase, clock: FakeClock
) -> None:
    stuck = begun(Asker(database, "a", 1).rows(STUCK, longest_s=60.0))
    await until(lambda: is_running(database, "a"))
    await clock.turn(60 + user_db.GRACE_S)
    with pytest.raises(StoreError, match="interrupted"):
        await stuck
    assert await Asker(database, "b", 2).changed("INSERT INTO t VALUES (2)") == 1
    assert await numbers(Asker(database, "a", 1)) == [2]


async def test_what_can_not_be_ended_does_not_outlive_its_run(database: UserDatabase, clock: FakeClock) -> None:
    await Asker(database, "a", 1).changed("BEGIN IMMEDIATE")
    waiting = begun(Asker(database, "a", 1).rows(STUCK, longest_s=60.0))
    await until(lambda: is_running(database, "a"))
    process = database._sessions[SqlUser(JobId("a"))].process
    assert process is not None
    database.run_ended(RunId(1))
    await clock.turn(user_db.GRACE_S)
    with pytest.raises(StoreError, match="interrupted"):
        await waiting
    await until(lambda: not is_alive(process.pid))
    assert await Asker(database, "b", 2).changed("INSERT INTO t VALUES (2)") == 1


async def test_a_transaction_whose_process_ends_is_rolled_back_and_said_so(database: UserDatabase) -> None:
    a = Asker(database, "a", 1)
    await a.changed("BEGIN")
    await a.changed("INSERT INTO t VALUES (1)")
    session = database._sessions[SqlUser(JobId("a"))]
    assert session.process is not None
    session.process._commands.shutdown(socket.SHUT_WR)
    assert await session.process._reader.read(1) == b""
    with pytest.raises(StoreError, match="the process for its SQL ended: an open transaction is rolled back"):
        await a.changed("INSERT INTO t VALUES (2)")
    assert await numbers(a) == []


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
async def test_a_fault_in_the_midst_of_an_answer_fails_one_statement_and_the_job_goes_on(
    database: UserDatabase, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    a = Asker(database, "a", 1)
    await a.changed("BEGIN")
    with monkeypatch.context() as patched, capture_logs() as told:

        def fail(_: bytes) -> Answered:
            raise error

        patched.setattr(user_db, "decode_answer", fail)
        with pytest.raises(StoreError, match=f"failed inside spyweb \\({type(error).__name__}\\)"):
            await a.changed("INSERT INTO t VALUES (1)")
    assert [line["event"] for line in told] == ["user_db.bug"]
    assert await a.changed("INSERT INTO t VALUES (2)") == 1
    assert await numbers(Asker(database, "b", 2)) == [2], "what it had begun is rolled back"


async def test_connections_are_few_and_those_that_nobody_would_miss_give_way(tmp_path: Path, clock: FakeClock) -> None:
    opening = Opening(path=tmp_path / "user.db", engine=None, durability=Durability.NORMAL)
    async with UserDatabase(opening, clock, spawner=SPAWNER, patience_s=PATIENCE_S, most_connections=2) as database:
        await Asker(database, "kept", 1).changed("CREATE TABLE t (a)")
        await Asker(database, "read", 2).rows("SELECT 1")
        await Asker(database, "new", 3).changed("INSERT INTO t VALUES (1)")
        assert sorted(user.job for user in database._sessions) == ["kept", "new"]
        refused = begun(Asker(database, "late", 4).rows("SELECT 1"))
        await with_patience(clock, refused)
        with pytest.raises(StoreError, match=r"too many jobs use SQL at once \(2\)"):
            await refused
        database.run_ended(RunId(1))
        await Asker(database, "late", 4).rows("SELECT 1")
        assert sorted(user.job for user in database._sessions) == ["late", "new"]


async def test_a_connection_that_is_not_used_is_closed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with make_sql(tmp_path, clock) as database:
        await Asker(database, "a", 1).changed("CREATE TABLE t (a)")
        await clock.turn(user_db.IDLE_S + 2 * user_db.CHECK_S)
        assert len(database._sessions) == 1, "its run lives"
        database.run_ended(RunId(1))
        await clock.turn(user_db.IDLE_S + 2 * user_db.CHECK_S)
        assert len(database._sessions) == 0


async def test_what_is_open_at_the_end_is_rolled_back_and_nothing_is_asked_after_it(tmp_path: Path) -> None:
    async with make_sql(tmp_path, RealClock()) as database:
        await Asker(database).changed("CREATE TABLE t (a)")
        await Asker(database).changed("BEGIN")
        await Asker(database).changed("INSERT INTO t VALUES (1)")
        await Asker(database, "b", 2).rows("SELECT 1")
        running = begun(Asker(database, "b", 2).rows(ENDLESS, longest_s=60.0))
        await until(lambda: is_running(database, "b"))
    with pytest.raises(StoreError, match="interrupted"):
        await running
    for job in ("a", "c"):
        with pytest.raises(StoreClosed):
            await Asker(database, job).rows("SELECT 1")
    with sqlite3.connect(tmp_path / "data/user.db") as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == []
    connection.close()


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/user.db").write_bytes(b"not a database" * 100)
    async with make_sql(tmp_path, RealClock()) as database:
        for _ in range(2):
            with pytest.raises(StoreError, match="damaged"):
                await Asker(database).rows("SELECT 1")


async def test_that_scripts_have_tables_is_noted_once_and_with_the_first_change(tmp_path: Path) -> None:
    story: list[str] = []
    opening = Opening(path=tmp_path / "data/user.db", engine=None, durability=Durability.NORMAL)
    async with UserDatabase(opening, RealClock(), note_begun=lambda: story.append("noted")) as database:
        asker = Asker(database, "a", 1)
        await asker.rows("SELECT 1 AS a")
        story.append("read")
        await asker.changed("CREATE TABLE t (a)")
        story.append("changed")
        await asker.changed("INSERT INTO t VALUES (1)")
    assert story == ["read", "noted", "changed"]


@pytest.fixture
def spawner() -> Iterator[SqlSpawner]:
    spawner = SqlSpawner()
    yield spawner
    spawner.close()


def opening(folder: Path) -> Opening:
    return Opening(path=folder / "user.db", engine=None, durability=Durability.NORMAL)


async def test_one_that_died_is_started_again_and_its_children_go_on(spawner: SqlSpawner, tmp_path: Path) -> None:
    first = await SqlProcess.start(spawner, opening(tmp_path), JobId("a"))
    assert spawner._child is not None
    spawner._child.kill()
    await spawner._child.wait(RealClock(), 1)
    second = await SqlProcess.start(spawner, opening(tmp_path), JobId("b"))
    for process in (first, second):
        assert (await process.perform(statement("SELECT 1 AS a"), RealClock())).rows == [{"a": 1}]
        await process.close()


async def test_a_large_answer_is_decoded_where_no_thread_can_be_had(
    spawner: SqlSpawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    process = await SqlProcess.start(spawner, opening(tmp_path), JobId("a"))
    answered = await process.perform(statement("SELECT zeroblob(300000) AS a"), RealClock())
    assert answered.rows == [{"a": bytes(300_000)}]
    await process.close()


async def test_what_can_not_be_had_is_a_plain_error(
    spawner: SqlSpawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_sockets(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", no_sockets)
    with pytest.raises(StoreError, match=r"^no process for SQL could be started: Too many open files$"):
        await SqlProcess.start(spawner, opening(tmp_path), JobId("a"))
