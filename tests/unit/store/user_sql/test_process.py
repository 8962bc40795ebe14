"""What a job's SQL may take is its own process's: the daemon's memory and its store stay as they were."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import select
import socket
import sqlite3
import subprocess
import sys
from asyncio import TaskGroup
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.confined import frames
from spyweb.confined.frames import HEADER
from spyweb.errors import StoreError
from spyweb.model import MIB, JobId
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql import process as user_process
from spyweb.store.user_sql.connection import Answered, SqlRequest, UserConnection, decode_answer
from spyweb.store.user_sql.process import BEHIND, ENDED_FIRST, HEAP_LIMIT, LOWEST, SqlServer
from spyweb.store.user_sql.user_db import SqlUser, UserDatabase
from spyweb.store.user_sql.views import Guard
from tests.fakes.ops import make_sql
from tests.fakes.repository import ROOT
from tests.fakes.sql import Asker, statement

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")

ELEMENTS = (300_000, 60_000, 500)
ALLOWED = 40 * MIB  # of one's own: Python, the caches, and what malloc keeps


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[UserDatabase]:
    async with make_sql(tmp_path, RealClock()) as database:
        yield database


async def ask_for_all_memory(asker: Asker) -> None:
    for elements in ELEMENTS:
        await asker.rows(f"SELECT 1 WHERE 1 IN ({'1,' * elements}1)", longest_s=60.0)


async def test_jobs_whose_sql_takes_all_it_can_leave_the_store_working_and_memory_as_it_was(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=RealClock())
    try:
        async with make_sql(tmp_path, RealClock(), patience_s=60.0) as database:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            async with TaskGroup() as jobs:
                askers = [Asker(database, f"j{number}", number) for number in range(2)]
                for asker in askers:
                    jobs.create_task(ask_for_all_memory(asker))
                for number in range(50):
                    await store.values.set(GLOBAL, b"%d" % number, b"x" * 1000)
            # Prepared statements of more than SQL_KEPT bytes are given up.
            for asker in askers:
                assert await memory_of(asker) < ALLOWED
            assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < ALLOWED
        with sqlite3.connect(":memory:") as connection:
            assert connection.execute("PRAGMA hard_heap_limit").fetchone() == (0,), "a limit of the whole process"
        connection.close()
        assert await store.values.get(GLOBAL, b"49") == b"x" * 1000
    finally:
        await store.close()


async def memory_of(asker: Asker) -> int:
    """What its process has of its own, in bytes."""
    status = Path(f"/proc/{await pid_of(asker)}/status").read_text()
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(kib) * 1024


async def pid_of(asker: Asker) -> int:
    """The process of its SQL."""
    await asker.rows("SELECT 1")
    process = asker.database._sessions[SqlUser(JobId(asker.job))].process
    assert process is not None
    return process.pid


async def test_rows_of_many_large_values_end_the_statement_and_cost_the_neighbours_nothing(
    database: UserDatabase,
) -> None:
    many = HEAP_LIMIT // 9_000_000 + 2
    large = ", ".join(f"randomblob(9000000) AS c{number}" for number in range(many))
    with pytest.raises(StoreError, match="out of memory"):
        await Asker(database, "a", 1).rows(f"SELECT {large}", longest_s=60.0)
    assert await memory_of(Asker(database, "a", 1)) < ALLOWED
    assert await Asker(database, "b", 2).rows("SELECT 1 AS a") == [{"a": 1}]


def test_an_interruption_that_comes_before_its_statement_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda _: None)
    ours, its = socket.socketpair()
    with its, closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        server = SqlServer(its)
        with ours:
            ours.sendall((7).to_bytes(HEADER, "little"))
        server.watch(its)
        user = UserConnection(connection, Guard(), server.is_unwanted)
        asked = [SqlRequest(number=number, now_ms=0, statement=statement("SELECT 1")) for number in (6, 7, 8)]
        assert [server.answer(user, each).reason for each in asked] == [None, "the run has ended", None]


def test_a_process_that_can_not_be_had_is_said_to_who_wanted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", no_process)
    ours, theirs = socket.socketpair()
    with ours:
        user_process._fork(ours, [theirs.detach()])
        answered = decode_answer(ours.recv(4096)[HEADER:])
        assert ours.recv(1) == b"", "nothing is kept open"
    assert answered.reason == "no process for SQL could be started: Resource temporarily unavailable"


def test_rows_too_large_for_a_frame_cost_no_process_and_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "HEADER", 1)
    ours, its = socket.socketpair()
    with ours, its:
        SqlServer(its)._send(Answered(values=[[b"x" * 256]], in_transaction=True))
        answered = decode_answer(frames.receive_frame(ours))
    assert answered.reason
    assert answered.reason.startswith("the rows are too large")
    assert answered.in_transaction


async def test_it_gives_way_to_the_daemon(database: UserDatabase) -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    pid = await pid_of(Asker(database))
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(mine + BEHIND, LOWEST)
    assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) == int(ENDED_FIRST)


async def test_it_gains_no_privileges_and_leaves_no_core(database: UserDatabase) -> None:
    pid = await pid_of(Asker(database))
    assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
    assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)


async def test_what_does_not_fit_into_its_cache_is_sorted_on_the_disk(database: UserDatabase) -> None:
    sql = """
        WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 30000), large AS (
            SELECT x, hex(randomblob(150)) AS filler FROM c ORDER BY filler
        )
        SELECT count(DISTINCT filler) AS n FROM large
    """
    assert await Asker(database).rows(sql, longest_s=60.0) == [{"n": 30_000}]


async def test_it_ends_with_the_daemon(tmp_path: Path) -> None:
    """Killed, with a statement under way that nothing can interrupt."""
    script = f"""
import asyncio, os, signal
from pathlib import Path
from spyweb.clock import RealClock
from spyweb.confined.frames import HEADER
from tests.fakes.ops import make_sql
from tests.fakes.repository import ROOT
from tests.fakes.sql import Asker, statement

async def main():
    async with make_sql(Path({str(tmp_path)!r}), RealClock()) as database:
        asker = Asker(database)
        await asker.rows("SELECT 1")
        print(next(iter(database._sessions.values())).process.pid, flush=True)
        stuck = asyncio.create_task(asker.rows("SELECT instr(zeroblob(9000000), zeroblob(4500000) || x'01')"))
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    daemon = await asyncio.create_subprocess_exec(*(sys.executable, "-c", script), stdout=subprocess.PIPE, cwd=ROOT)
    output, _ = await daemon.communicate()
    await asyncio.to_thread(wait_for_end, int(output))


def wait_for_end(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([process], [], [], 10)
    os.close(process)
    assert ended
