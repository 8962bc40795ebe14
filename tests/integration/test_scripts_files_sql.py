"""fs_*, db_query and db_exec as a script sees them: real workers, real files, a real database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spyweb.model import Failure, Outcome
from tests.fakes.scripts import Scripts


async def test_a_script_keeps_files_of_its_own_and_shared_ones(scripts: Scripts, tmp_path: Path) -> None:
    await scripts.succeed(
        r"""
        assert(fs_read("data.csv") == nil)
        for i = 1, 3 do assert(select("#", fs_append("data.csv", i .. ",\0\255\n")) == 0) end
        assert(fs_read("data.csv") == "1,\0\255\n2,\0\255\n3,\0\255\n")
        fs_overwrite("shared/last.json", json_encode{n = 3.0})
        assert(fs_read("last.json") == '{"n":3}')
        local ok, err = pcall(fs_read, "../b/data.csv")
        assert(not ok and string.find(err, "'..' is not allowed", 1, true), err)
        assert(not pcall(fs_overwrite, "hooks.lua", "x"))
        """
    )
    assert (tmp_path / "jobs/a/data.csv").read_bytes() == b"1,\0\xff\n2,\0\xff\n3,\0\xff\n"
    await scripts.succeed("assert(fs_read('data.csv') == nil) assert(fs_read('last.json') == '{\"n\":3}')", "b")


async def test_rows_and_changes(scripts: Scripts) -> None:
    await scripts.succeed(
        r"""
        assert(db_exec("CREATE TABLE products (id TEXT PRIMARY KEY, name TEXT, price REAL, sold)") == 0)
        local insert = "INSERT INTO products (id, name, price, sold) VALUES (?, ?, ?, ?)"
        assert(db_exec(insert, {"prod-1", "Widget", 9.99, true}) == 1)
        assert(db_exec(insert, {"prod-2", nil, 3.0, 0}) == 1)
        local rows = db_query("SELECT * FROM products ORDER BY id")
        assert(#rows == 2 and rows[1].name == "Widget" and rows[1].price == 9.99 and rows[1].sold == 1)
        assert(rows[2].name == nil and math.type(rows[2].sold) == "integer")
        assert(#db_query("DELETE FROM products WHERE id = ? RETURNING id", {"prod-1"}) == 1)
        assert(#db_query("SELECT 1 FROM products WHERE 0") == 0)
        local ok, err = pcall(db_exec, insert, {"prod-2", nil, 1, 1})
        assert(not ok and string.find(err, "UNIQUE constraint failed", 1, true), err)
        assert(string.find(err, "^jobs/a.lua:11: "), err)
        """
    )
    assert await scripts.succeed("return db_query('SELECT count(*) AS n FROM products')[1].n", "b") == 1


async def test_a_job_has_one_connection_in_all_its_runs(scripts: Scripts) -> None:
    await scripts.succeed("db_exec('CREATE TABLE t (id INTEGER PRIMARY KEY)') db_exec('INSERT INTO t VALUES (41)')")
    await scripts.succeed("db_exec('INSERT INTO t DEFAULT VALUES')")
    assert await scripts.succeed("return db_query('SELECT last_insert_rowid() AS id')[1].id") == 42


async def test_a_queue_shared_by_many_workers_gives_each_task_once(scripts: Scripts) -> None:
    await scripts.succeed(
        """
        db_exec("CREATE TABLE queue (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL DEFAULT 0)")
        for i = 1, 30 do db_exec("INSERT INTO queue (id) VALUES (?)", {i}) end
        """
    )
    take = """
        local taken = {}
        while true do
            local rows = db_query([[UPDATE queue SET taken = 1
                WHERE id = (SELECT id FROM queue WHERE taken = 0 LIMIT 1) RETURNING id]])
            if #rows == 0 then return table.concat(taken, " ") end
            taken[#taken + 1] = rows[1].id
        end
    """
    endings = await scripts.together([(f"worker{number}", take) for number in range(4)])
    assert {ending.outcome for ending in endings} == {Outcome.SUCCESS}
    taken = [int(task) for ending in endings if isinstance(ending.result, bytes) for task in ending.result.split()]
    assert sorted(taken) == list(range(1, 31))


@pytest.mark.parametrize("ends", ["return", "error('x')", "while true do sleep(60000) end"])
async def test_a_transaction_left_open_is_gone_with_its_run_however_it_ends(scripts: Scripts, ends: str) -> None:
    await scripts.succeed("db_exec('CREATE TABLE t (a)')")
    await scripts.run(f"db_exec('BEGIN') db_exec('INSERT INTO t VALUES (1)') {ends}", timeout_ms=300)
    assert await scripts.succeed("return db_exec('INSERT INTO t VALUES (2)')", "b") == 1
    assert await scripts.succeed("return db_query('SELECT sum(a) AS n FROM t')[1].n") == 2


async def test_a_statement_that_never_ends_fails_its_run_alone_and_ends_with_it(scripts: Scripts) -> None:
    endless = "db_query('WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c')"
    ids = [await scripts.begin(f"bomb{number}") for number in range(3)]
    bombs = [asyncio.create_task(scripts.live_through(run, endless, f"bomb{number}")) for number, run in enumerate(ids)]
    await asyncio.sleep(0.1)
    assert await scripts.succeed("return db_query('SELECT 1 AS a')[1].a") == 1
    assert not any(bomb.done() for bomb in bombs)
    for run in ids:
        scripts.cancel(run)
    for bomb in bombs:
        assert (await bomb).failure is Failure.CANCELLED
    async with asyncio.timeout(20):  # a deadline for a hang
        while any(session.turn_of for session in scripts.world.sql._sessions.values()):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


async def test_a_runs_timeout_ends_its_statement_even_one_that_nothing_can_interrupt(scripts: Scripts) -> None:
    stuck = "db_query([[SELECT instr(zeroblob(9000000), zeroblob(4500000) || x'01')]])"
    ending = await scripts.run(f"db_exec('BEGIN IMMEDIATE') {stuck}", timeout_ms=300)
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.TIMEOUT)
    await scripts.succeed("db_exec('CREATE TABLE t (a)')", "b")
    assert await scripts.succeed("return #db_query('SELECT * FROM t')") == 0
