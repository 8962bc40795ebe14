"""`parallel` and `parallel_map` with real ops in real workers: locks, transactions, the order of writes, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import Failure, Outcome
from tests.fakes.scripts import Scripts, open_scripts


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path, workers=1) as scripts:
        yield scripts


async def nothing_is_held(scripts: Scripts) -> bool:
    return not await scripts.store.locks.list() and await scripts.succeed("db_exec('BEGIN') db_exec('COMMIT')") is None


async def test_functions_wait_side_by_side(scripts: Scripts) -> None:
    took = await scripts.succeed(
        """
        local began, items = os.clock(), {}
        for i = 1, 50 do items[i] = i end
        local results, n = parallel_map(items, function(i) sleep(50) return store_set("k" .. i, i) end, 50)
        assert(n == 50 and results[1] == nil)
        for i = 1, 50 do assert(store_get("k" .. i) == tostring(i)) end
        return os.clock() - began
        """
    )

    assert isinstance(took, float)
    assert took < 1.5


async def test_what_a_function_writes_is_written_in_its_order(scripts: Scripts) -> None:
    text = await scripts.succeed(
        """
        local names = {"a", "b", "c"}
        parallel_map(names, function(name)
          for i = 1, 20 do state.list_push(name, i) end
        end)
        for _, name in ipairs(names) do
          for i, value in ipairs(state.get(name)) do assert(i == value) end
        end
        return "in order"
        """
    )

    assert text == b"in order"


async def test_functions_wait_for_each_others_locks(scripts: Scripts) -> None:
    order = await scripts.succeed(
        """
        local order = {}
        local function work(name)
          return function()
            assert(state.lock("door", 10))
            order[#order + 1] = name
            sleep(20)
            order[#order + 1] = name
            assert(state.unlock("door"))
          end
        end
        parallel(work("a"), work("b"), work("c"))
        return table.concat(order)
        """
    )

    assert isinstance(order, bytes)
    assert sorted(order[::2]) == sorted(b"abc")
    assert order[::2] == order[1::2]
    assert await nothing_is_held(scripts)


async def test_functions_that_wait_for_each_other_give_up_like_runs(scripts: Scripts) -> None:
    told = await scripts.succeed(
        """
        local function take(first, second)
          return function()
            assert(state.lock(first, 10))
            sleep(20)
            return select(2, state.lock(second, 0.2)) or "both"
          end
        end
        local a, b = parallel(take("one", "two"), take("two", "one"))
        return a .. "; " .. b
        """
    )

    assert isinstance(told, bytes)
    assert b"state.lock: lock 'two' is held by 'a#1.2'" in told
    assert await nothing_is_held(scripts)


async def test_a_lock_of_the_run_is_refused_in_its_functions_at_once(scripts: Scripts) -> None:
    told = await scripts.succeed(
        'assert(state.lock("door", 10)) return (parallel(function() return select(2, state.lock("door", 10)) end))'
    )

    assert told == b"state.lock: lock 'door' is held by this run already, as 'a#1'"


async def test_what_a_function_has_taken_is_free_when_it_has_ended(scripts: Scripts) -> None:
    await scripts.succeed("db_exec('CREATE TABLE t (a)')")
    told = await scripts.succeed(
        """
        local ok, problem = pcall(parallel, function()
          assert(state.lock("door", 10))
          db_exec("BEGIN")
          db_exec("INSERT INTO t VALUES (1)")
          sleep(10000)
        end, function()
          while not state.is_locked("door") do sleep(5) end
          sleep(50)
          error("enough", 0)
        end)
        assert(state.try_lock("door"))
        db_exec("INSERT INTO t VALUES (2)")
        return problem .. " " .. #db_query("SELECT a FROM t")
        """
    )

    assert told == b"enough (function 2 of parallel) 1"
    assert await nothing_is_held(scripts)


async def test_a_transaction_of_one_function_keeps_the_others_out(scripts: Scripts) -> None:
    await scripts.succeed("db_exec('CREATE TABLE t (a)')")
    told = await scripts.succeed(
        """
        parallel(function()
          db_exec("BEGIN")
          db_exec("INSERT INTO t VALUES (1)")
          sleep(100)
          db_exec("ROLLBACK")
        end, function()
          sleep(20)
          db_exec("INSERT INTO t VALUES (2)")
        end)
        return db_query("SELECT group_concat(a) AS all_of_it FROM t")[1].all_of_it
        """
    )

    assert told == b"2"


async def test_a_cancelled_run_leaves_nothing_behind(scripts: Scripts) -> None:
    await scripts.succeed("db_exec('CREATE TABLE t (a)')")
    source = """
        local items = {}
        for i = 1, 20 do items[i] = i end
        parallel_map(items, function(i)
          assert(state.lock("lock " .. i, 10))
          if i == 1 then db_exec("BEGIN") db_exec("INSERT INTO t VALUES (1)") end
          log("has " .. i)
          pcall(sleep, 60000)
        end, 20)
        """
    run = await scripts.begin("a")
    task = asyncio.ensure_future(scripts.live_through(run, source, "a"))
    while len(scripts.texts("info")) < 20:  # noqa: ASYNC110 - the lines come from a worker
        await asyncio.sleep(0.01)

    scripts.cancel(run)

    assert (await task).failure is Failure.CANCELLED
    assert await nothing_is_held(scripts)
    assert await scripts.succeed("return #db_query('SELECT a FROM t')") == 0


async def test_a_thousand_functions_at_once(scripts: Scripts) -> None:
    total = await scripts.succeed(
        "local t = {} for i = 1, 1000 do t[i] = i end "
        "parallel_map(t, function(i) state.increment('n', 1) end, 1000) return state.get('n')"
    )

    assert total == 1000


async def test_what_takes_the_number_of_an_item_for_its_options_says_where_it_comes_from(scripts: Scripts) -> None:
    ending = await scripts.run('parallel_map({"http://a.test/"}, http_get)')
    assert ending.outcome is Outcome.FAILED
    assert "bad argument #2 to 'http_get' (table expected, got number)" in ending.reason
    assert "(function 1 of parallel_map, which gives it the number of its item as argument #2)" in ending.reason
    ending = await scripts.run("parallel_map({1}, function() setmetatable({}, 1) end)")
    assert ending.reason.endswith("(function 1 of parallel_map)")
