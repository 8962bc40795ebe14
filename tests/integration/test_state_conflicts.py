"""Where the systems that spyweb brings together disagree about state: one test for each of the 34 rules, by its number.

Each is a script in a real worker, over a real database.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from pathlib import Path

import pytest

from spyweb.model import ChangeKind, Ending, Outcome
from spyweb.settings.sections import StateSettings
from spyweb.specs.parse import job_id
from spyweb.specs.watches import watches_of
from spyweb.store.model.entries import ChangeEvent
from tests.fakes.changes import kept
from tests.fakes.harness import make_spec
from tests.fakes.scripts import Scripts, open_scripts
from tests.fakes.triggered import read_on

CHECKS = """
local function same(a, b, path)
  path = path or "value"
  if type(a) ~= type(b) then error(path .. ": " .. tostring(a) .. " is not " .. tostring(b), 0) end
  if type(a) ~= "table" or a == state.null or b == state.null then
    if a ~= b or math.type(a) ~= math.type(b) then
      error(path .. ": " .. tostring(a) .. " is not " .. tostring(b), 0)
    end
    return
  end
  for k in pairs(a) do if b[k] == nil then error(path .. "." .. tostring(k) .. " is too much", 0) end end
  for k in pairs(b) do same(a[k], b[k], path .. "." .. tostring(k)) end
end
local function is(got, ...)
  local wanted = table.pack(...)
  for i = 1, wanted.n do same(got[i], wanted[i], "result " .. i) end
end
local function raises(part, f, ...)
  local ok, err = pcall(f, ...)
  if ok then error("nothing was raised; expected " .. part, 0) end
  local text = type(err) == "table" and err.code .. ": " .. err.message or err
  if not string.find(text, part, 1, true) then error("raised " .. text .. "; expected " .. part, 0) end
end
"""


async def check(scripts: Scripts, script: str, job: str = "a", *, agent: str = "local") -> None:
    """The script's own checks hold: `is({f(...)}, ...)` wants exactly these results, `raises` a part of an error."""
    await scripts.succeed(CHECKS + script, job, agent=agent)


async def held(scripts: Scripts, name: str, script: str = "sleep(60000)", job: str = "holder") -> Task[Ending]:
    """A run that has taken a lock, and goes on with a script."""
    source = f"assert(state.try_lock('{name}', 60)) {script}"
    task = asyncio.create_task(scripts.run(source, job))
    while not task.done() and await scripts.store.locks.holder(name.encode()) is None:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.005)
    return task


async def stop(scripts: Scripts, task: Task[Ending]) -> Ending:
    for run in await scripts.store.runs.open():
        scripts.cancel(run.id)
    return await task


RULES = {
    "rule_01_a_table_first_is_iii_and_a_text_or_number_is_sloth": """
        state.set("k", "mine")
        state.set{scope = "s", key = "k", value = "theirs"}
        is({state.get("k")}, "mine")
        is({state.get{scope = "s", key = "k"}}, "theirs")
        is({state.get("s", "k")}, "k")                      -- a default, never a scope
        state.set(5, "five")
        is({state.get("5")}, "five")
        raises("deserialization_error: state.get: missing field 'scope'", state.get, {})
        raises("bad argument #1 to 'state.get' (string expected, got boolean)", state.get, true)
        """,
    "rule_02_what_set_and_delete_give_follows_the_form": """
        is({state.set("k", 1)}, true)
        is({state.delete("k")}, true)
        is({state.delete("k")}, true)
        is({state.set{scope = "s", key = "k", value = 1}}, {new_value = 1})
        is({state.set{scope = "s", key = "k", value = 2}}, {old_value = 1, new_value = 2})
        is({state.delete{scope = "s", key = "k"}}, 2)
        is({state.delete{scope = "s", key = "k"}}, nil)
        """,
    "rule_03_list_is_a_map_by_prefix_or_an_array_of_a_scope": """
        state.set("a:2", "two") state.set("a:1", {1}) state.set("b", true)
        is({state.list("a:")}, {["a:1"] = {1}, ["a:2"] = "two"})
        is({state.list()}, {["a:1"] = {1}, ["a:2"] = "two", b = true})
        state.set{scope = "s", key = "z", value = "first"} state.set{scope = "s", key = "a", value = "second"}
        is({state.list{scope = "s"}}, {"first", "second"})
        is({state.list{scope = "unknown"}}, {})
        """,
    "rule_04_keys_are_a_sorted_array_by_a_pattern": """
        for _, key in ipairs{"b", "a:2", "a:1", "c"} do state.set(key, 1) end
        is({state.keys("a:*")}, {"a:1", "a:2"})
        is({state.keys()}, {"a:1", "a:2", "b", "c"})
        is({state.keys("a:")}, {})
        """,
    "rule_05_clear_honours_its_pattern_and_never_goes_beyond_the_namespace": """
        for _, key in ipairs{"tmp:1", "tmp:2", "kept"} do state.set(key, 1) end
        store_set("kept", "1") global_store_set("kept", "1") state.set{scope = "s", key = "kept", value = 1}
        assert(state.try_lock("kept"))
        is({state.clear("tmp:*")}, true)
        is({state.keys()}, {"kept"})
        is({state.clear()}, true)
        is({state.keys()}, {})
        is({store_get("kept"), global_store_get("kept"), state.get{scope = "s", key = "kept"}}, "1", "1", 1)
        is({state.is_locked("kept")}, true)
        """,
    "rule_06_the_four_shapes_of_lock_and_try_lock": """
        local function holder(...)
          assert(state.lock("l", ...))
          local _, who = state.is_locked("l")
          assert(state.unlock("l", who))
          return who
        end
        local own = holder()
        assert(string.find(own, "^a#%d+$"), own)
        is({holder(60)}, own)
        is({holder(nil)}, own)
        is({holder("60")}, own)                             -- a numeric text alone is a timeout
        is({holder("task-9", 60)}, "task-9")
        is({holder("60", 60)}, "60")
        is({holder("task-9")}, "task-9")
        is({state.try_lock("l", "task-9", 60)}, true)
        is({state.unlock("l", "task-9")}, true)
        raises("bad argument #2 to 'state.lock' (number expected, got boolean)", state.lock, "l", true)
        """,
    "rule_09_with_lock_takes_its_arguments_in_any_order": """
        local function who() local _, holder = state.is_locked("l") return holder end
        local own = state.with_lock("l", who)
        assert(string.find(own, "^a#%d+$"), own)
        is({state.with_lock("l", who, 15)}, own)
        is({state.with_lock("l", "task-9", 300, who)}, "task-9")
        is({state.with_lock("l", who, 300, "task-9")}, "task-9")
        is({state.with_lock("l", "60", who)}, "60")
        is({state.is_locked("l")}, false)
        raises("bad argument #2 to 'state.with_lock' (function expected, got number)", state.with_lock, "l", 15)
        """,
    "rule_10_all_results_come_through_with_their_nils": """
        local got = table.pack(state.with_lock("l", function() sleep(1) return nil, 2, nil, {3}, nil end))
        assert(got.n == 5)
        is(got, nil, 2, nil, {3}, nil)
        is({select("#", state.with_lock("l", function() end))}, 0)
        """,
    "rule_10_with_lock_where_ops_can_not_be_called_takes_no_lock": """
        local function inside() state.with_lock("l", function() end) end
        raises("can't be called inside a table.sort comparator", table.sort, {2, 1}, inside)
        raises("can't be called inside a table.sort comparator", string.gsub, "x", "x", inside)
        local function deeper(level)
          local ok, err = pcall(level > 0 and deeper or inside, level - 1)
          if not ok then error(err, 0) end
        end
        raises("too many nested protected calls", deeper, 148)
        is({state.is_locked("l")}, false, nil)
        local function slowly() sleep(1) return "in a coroutine" end
        local co = coroutine.wrap(function() return state.with_lock("l", slowly) end)
        is({co()}, "in a coroutine")
        is({state.is_locked("l")}, false, nil)
        """,
    "rule_12_the_run_is_the_holder_and_does_not_wait_for_itself": """
        assert(state.lock("l", 600))
        local began = os.clock()
        local ok, err = state.lock("l", 600)
        assert(ok == false and string.find(err, "held by this run already"), err)
        assert(state.lock("l", "another name", 600) == false)
        is({state.with_lock("l", function() return "inside" end, 600)}, nil)
        assert(os.clock() - began < 10)
        """,
    "rule_13_where_counting_a_missing_key_begins": """
        is({global_store_incr("n", 100, 10)}, 110)
        is({state.increment("n", 10)}, 10)
        is({state.decrement("m")}, -1)
        is({state.update{scope = "s", key = "n", ops = {{type = "increment", by = 7}}}}, {new_value = 7})
        """,
    "rule_14_counting_what_is_no_number": """
        global_store_set("n", "12abc")
        is({global_store_incr("n", 100, 1)}, 101)
        state.set("n", "41")
        is({state.increment("n")}, 42)
        state.set("w", "word")
        is({state.increment("w")}, nil, "state.increment: key 'w': it holds a string, not a number")
        is({state.get("w")}, "word")
        state.set{scope = "s", key = "n", value = "5"}
        local result = state.update{scope = "s", key = "n", ops = {{type = "increment", by = 1}}}
        is({result.new_value, result.errors[1].code}, "5", "increment.not_number")
        """,
    "rule_15_integers_and_floats": """
        is({global_store_incr("n", 1, 2.0)}, 3)
        assert(not pcall(global_store_incr, "n", 0, 0.25))
        is({state.increment("f", 0.5)}, 0.5)
        is({state.increment("f", 0.5)}, 1)
        state.set("v", 3.0)
        is({"config:v" .. state.get("v"), "config:v" .. state.increment("v")}, "config:v3", "config:v4")
        state.set("max", math.maxinteger)
        assert(state.increment("max") == nil)
        is({state.get("max")}, math.maxinteger)
        state.set{scope = "s", key = "k", value = {f = 1.5, max = math.maxinteger}}
        local ops = {{type = "increment", path = "f", by = 1}, {type = "increment", path = "max", by = 1}}
        local result = state.update{scope = "s", key = "k", ops = ops}
        is({result.new_value, result.errors[1].op_index}, {f = 2.5, max = math.maxinteger}, 1)
        raises("deserialization_error", state.update, {scope = "s", key = "k", ops = {{type = "increment", by = 1.5}}})
        """,
    "rule_16_texts_in_store_and_types_in_state": """
        store_set("n", 3.0) state.set("n", 3.5) state.set("b", false) state.set("t", {1, {x = "y"}})
        is({store_get("n"), state.get("n"), state.get("b"), state.get("t")}, "3", 3.5, false, {1, {x = "y"}})
        for _, value in ipairs{true, {}} do raises("string expected", store_set, "k", value) end
        raises("string expected", store_set, "k", nil)
        state.set("s", "\\0\\255") is({state.get("s")}, "\\0\\255")
        """,
    "rule_17_nil_and_null": """
        raises("bad argument #2 to 'state.set' (value expected, got nil)", state.set, "k", nil)
        raises("bad argument #2 to 'state.set'", state.set, "k")
        raises("missing field 'value'", state.set, {scope = "s", key = "k"})
        state.set{scope = "s", key = "k", value = state.null}
        is({state.get{scope = "s", key = "k"}, state.keys{scope = "s"}}, nil, {"k"})
        state.set("k", {a = state.null, b = {state.null}})
        local value = state.get("k")
        assert(value.a == state.null and value.b[1] == state.null)
        assert(state.set("k", state.null) == false)
        """,
    "rule_18_who_keeps_the_expiry_and_who_replaces_it": """
        local function after(f)
          state.set("k", "1", 60)
          f()
          return state.get_ttl("k")
        end
        is({after(function() state.increment("k") end)}, 60)
        is({after(function() state.decrement("k") end)}, 60)
        is({after(function() state.append("k", "0") end)}, 60)
        is({after(function() state.set("k", 1) end)}, -1)
        is({after(function() state.set("k", 1, -5) end)}, -2)
        is({after(function() state.set_with_ttl("k", 1, 7.5) end)}, 8)
        is({after(function() state.compare_swap("k", "1", 2) end)}, -1)
        state.set("l", {1}, 60) state.list_push("l", 2) state.list_pop("l")
        is({state.get_ttl("l")}, 60)
        """,
    "rule_18_in_scopes_a_set_replaces_it_and_an_update_keeps_it": """
        state.set{scope = "s", key = "k", value = {}, ttl = 0.2}
        state.update{scope = "s", key = "k", ops = {{type = "set", path = "a", value = 1}}}
        state.set{scope = "s", key = "j", value = {}, ttl = 0.2}
        state.set{scope = "s", key = "j", value = {}}
        sleep(250)
        is({state.keys{scope = "s"}}, {"j"})
        """,
    "rule_19_what_is_left_is_rounded_up": """
        state.set("k", 1, 0.3)
        is({state.get_ttl("k")}, 1)
        sleep(350)
        is({state.get_ttl("k"), state.get("k"), state.exists("k")}, -2, nil, false)
        state.set("k", 1)
        is({state.get_ttl("k")}, -1)
        """,
    "rule_20_arrays_objects_and_empty_tables": """
        state.set("mixed", {1, 2, x = 3}) is({state.get("mixed")}, {1, 2, x = 3})
        state.set("sparse", {[1] = "a", [3] = "c"}) is({state.get("sparse")}, {[1] = "a", [3] = "c"})
        state.set("empty", {}) is({state.list_push("empty", 1)}, 1) is({state.get("empty")}, {1})
        state.set{scope = "s", key = "o", value = {}}
        state.set{scope = "s", key = "a", value = JSON_EMPTY_ARRAY}
        local ops = {{type = "append", value = 1}}
        is({state.update{scope = "s", key = "o", ops = ops}.errors[1].code}, "append.type_mismatch")
        is({state.update{scope = "s", key = "a", ops = ops}.new_value}, {1})
        is({state.update{scope = "s", key = "n", ops = {}}}, {new_value = {}})
        local cycle = {} cycle[1] = cycle
        is({state.set("c", cycle)}, false, "state.set: key 'c': a table that contains itself can't be stored (at [1])")
        is({state.set("c", {f = print})}, false, "state.set: key 'c': a function can't be stored (at .f)")
        is({state.set("c", {a = {[true] = 1, [1] = 2}})}, false,
          "state.set: key 'c': a boolean beside the number 1 can't be a key of what is stored (at .a)")
        is({state.list_push("c", {[0] = 1, [false] = 2})}, -1,
          "state.list_push: key 'c': a boolean beside the number 0 can't be a key of what is stored")
        is({state.set("both", {[true] = 1, [false] = 2, [2] = 3})}, true)
        is({state.get("both")}, {[true] = 1, [false] = 2, [2] = 3})
        is({state.set("c", {[true] = print})}, false, "state.set: key 'c': a function can't be stored (at [true])")
        is({state.set("c", 0/0)}, false, "state.set: key 'c': NaN can't be stored")
        is({state.set("c", 1/0)}, false, "state.set: key 'c': an infinite number can't be stored")
        local deep = {} for _ = 1, 200 do deep = {deep} end
        assert(state.set("c", deep) == false)
        is({state.exists("c")}, false)
        """,
    "rule_21_compare_swap_knows_nil_and_compares_deeply": """
        is({state.compare_swap("k", nil, {v = {1, 2}})}, true)
        is({state.compare_swap("k", nil, "again")}, false)
        is({state.compare_swap("k", {v = {1, 3}}, "no")}, false)
        is({state.compare_swap("k", {v = {1.0, 2}}, 1)}, true)
        is({state.compare_swap("k", true, "no")}, false)
        is({state.compare_swap("k", 1.0, "yes")}, true)
        raises("bad argument #3 to 'state.compare_swap'", state.compare_swap, "k", "yes")
        """,
    "rule_22_patterns_are_stars_and_question_marks_and_nothing_else": """
        for _, key in ipairs{"user:1", "USER:1", "a_b", "axb", "100%", "1000", "[x]", "x"} do state.set(key, 1) end
        is({state.keys("user:*")}, {"user:1"})
        is({state.keys("a_b")}, {"a_b"})
        is({state.keys("a?b")}, {"a_b", "axb"})
        is({state.keys("100%")}, {"100%"})
        is({state.keys("[x]")}, {"[x]"})
        is({state.keys("ser")}, {})
        """,
    "rule_23_get_gives_one_value": """
        is({select("#", state.get("missing")), select("#", state.get("missing", 7))}, 1, 1)
        local t = {}
        assert(state.get("missing", t) == t)
        """,
    "rule_24_each_family_fails_in_its_own_way": """
        raises("bad argument #2 to 'store_set' (string expected, got table)", store_set, "k", {})
        assert(state.set(string.rep("x", 513), 1) == false)
        assert(state.append("n", "x") == 1 and state.set("n", 1) and state.append("n", "x") == -1)
        raises("SET_ERROR: state.set: key", state.set, {scope = "s", key = string.rep("x", 513), value = 1})
        raises("VALUE_TOO_LARGE: ", state.set, {scope = "s", key = "k", value = string.rep("x", 1048577)})
        local ok, err = pcall(state.set, {scope = "s"})
        is({ok, type(err), err.code}, false, "table", "deserialization_error")
        """,
    "rule_30_without_a_path_every_op_is_the_roots": """
        local function become(value, op)
          state.set{scope = "s", key = "k", value = value}
          return state.update{scope = "s", key = "k", ops = {op}}.new_value
        end
        is({become(1, {type = "set", value = "x"})}, "x")
        is({become({a = 1}, {type = "merge", value = {b = 2}})}, {a = 1, b = 2})
        is({become(1, {type = "increment", by = 2})}, 3)
        is({become(1, {type = "decrement", by = 2})}, -1)
        is({become({1}, {type = "append", value = 2})}, {1, 2})
        is({become(1, {type = "remove"})}, nil)
        is({state.keys{scope = "s"}}, {"k"})
        """,
    "rule_31_stats_have_the_fields_of_both_generations": """
        state.set("k", 1) state.set("e", 1, 0.01) state.try_lock("l") sleep(20)
        local s = state.stats()
        is({s.total_keys, s.expired_keys, s.active_locks, s.backend}, 1, 1, 1, "sqlite")
        assert(s.db_size_bytes > 0 and s.total_size == s.db_size_bytes)
        assert(string.find(s.db_path, "spyweb.db$") and math.abs(os.time() - s.last_modified) < 60)
        assert(s.reads >= 1 and s.writes >= 2 and s.op_ms_p50 > 0 and s.op_ms_p99 >= s.op_ms_p50)
        """,
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("script", RULES.values(), ids=RULES)
async def test_what_one_script_shows(shared_scripts: Scripts, script: str) -> None:
    await check(shared_scripts, script)


async def test_rule_07_lock_waits_and_then_has_it(scripts: Scripts) -> None:
    holder = await held(scripts, "l", "sleep(50)")
    ending = await scripts.run("local t = os.clock() local ok = state.lock('l', 20) return ok and os.clock() - t < 10")
    assert ending.result is True
    assert (await holder).outcome is Outcome.SUCCESS


WHILE_ANOTHER_RUN_HOLDS_L = {
    "rule_07_lock_waits_no_longer_than_its_timeout": """
        local began = os.clock()
        local ok, err = state.lock("l", 0.05)
        assert(ok == false and os.clock() - began >= 0.045)
        assert(string.find(err, "lock 'l' is held by 'holder#%d+'"), err)
        """,
    "rule_07_try_lock_and_the_form_with_a_holder_never_wait": """
        local began = os.clock()
        assert(state.try_lock("l", 30) == false)
        assert(state.try_lock("l", "me", 30) == false)
        assert(state.lock("l", "me", 30) == false)
        is({state.with_lock("l", "me", 30, function() error("called") end)}, nil)
        assert(os.clock() - began < 10)
        """,
    "rule_11_unlock_without_a_holder_is_the_callers_own": """
        local ok, err = state.unlock("l")
        assert(ok == false and string.find(err, "held by 'holder#%d+', not by 'a#%d+'"), err)
        assert(state.unlock("l", "wrong") == false)
        is({state.unlock("free")}, false, "state.unlock: lock 'free' is not held")
        local _, who = state.is_locked("l")
        is({state.unlock("l", who)}, true)
        """,
}


@pytest.mark.parametrize("script", WHILE_ANOTHER_RUN_HOLDS_L.values(), ids=WHILE_ANOTHER_RUN_HOLDS_L)
async def test_what_a_script_shows_while_another_run_holds_a_lock(scripts: Scripts, script: str) -> None:
    holder = await held(scripts, "l")
    await check(scripts, script)
    await stop(scripts, holder)


@pytest.mark.parametrize("script", ["return true", "error('x')", "while true do end", "sleep(60000)"])
async def test_rule_07_a_lock_is_free_when_its_run_has_ended_however_it_ended(scripts: Scripts, script: str) -> None:
    holder = await held(scripts, "l", f"sleep(100) {script}")
    waiter = asyncio.create_task(scripts.run("return state.lock('l', 20)", "waiter"))
    if script.startswith(("while", "sleep")):
        await asyncio.sleep(0.15)
        for run in await scripts.store.runs.open():
            if run.job == "holder":
                scripts.cancel(run.id)
    await holder
    assert (await waiter).result is True


async def test_rule_07_a_lock_outlasts_a_crash_of_the_daemon_by_its_timeout(tmp_path: Path) -> None:
    async with open_scripts(tmp_path) as before:
        run = await before.begin("holder")  # whose end is never recorded
        request = before.request(run, "assert(state.lock('l', 0.4))", "holder", 20_000)
        assert (await before.pool.run(request, before.host(run, "holder", "local"))).outcome is Outcome.SUCCESS
    async with open_scripts(tmp_path) as after:
        await check(
            after,
            """
            local began = os.clock()
            local locked, who = state.is_locked("l")
            assert(not locked or string.find(who, "^holder#"), who)
            assert(state.lock("l", 20))
            assert(os.clock() - began < 10)
            """,
        )


async def test_rule_08_a_holder_that_does_not_get_it_is_told_the_other_and_the_log_too(scripts: Scripts) -> None:
    holder = await held(scripts, "deployment")
    await check(
        scripts,
        """
        local ok, err = state.lock("deployment", "task-123", 300)
        assert(ok == false and string.find(err, "held by 'holder#"), err)
        """,
    )
    assert len(scripts.texts("warn")) == 1
    assert "lock 'deployment' is held by 'holder#" in scripts.texts("warn")[0]
    await stop(scripts, holder)


async def test_rule_08_strict_locks_raise_instead(tmp_path: Path) -> None:
    async with open_scripts(tmp_path, state=StateSettings(strict_locks=True)) as scripts:
        holder = await held(scripts, "l")
        await check(
            scripts,
            """
            raises("lock 'l' is held by 'holder#", state.lock, "l", "task-123", 300)
            raises("lock 'l' is held by 'holder#", state.with_lock, "l", "task-123", 300, print)
            is({state.lock("l", 0.01)}, false)
            """,
        )
        await stop(scripts, holder)


async def test_rule_10_an_error_inside_with_lock_gives_it_back_and_is_logged(scripts: Scripts) -> None:
    await check(
        scripts,
        """
        local result, err = state.with_lock("l", function() state.set("k", 1) error("boom") end)
        assert(result == nil and string.find(err, "boom$"), err)
        is({state.is_locked("l")}, false)
        is({state.get("k")}, 1)
        """,
    )
    assert len(scripts.texts("error")) == 1
    assert "lock 'l'" in scripts.texts("error")[0]


async def test_rule_10_a_kill_inside_with_lock_gives_it_back(scripts: Scripts) -> None:
    killed = await scripts.run("state.with_lock('l', function() sleep(1) while true do end end)", timeout_ms=200)
    assert killed.outcome is Outcome.FAILED
    await check(scripts, "is({state.is_locked('l')}, false, nil)")


async def test_rule_25_no_key_reaches_another_jobs_store(scripts: Scripts) -> None:
    await check(scripts, "store_set('k', 'mine')", "prices")
    script = (
        "is({global_store_get('prices:k'), global_store_get('job:prices:k'), store_get('prices:k')}, nil, nil, nil)"
    )
    await check(scripts, script, "other")
    await check(scripts, "is({store_get('k')}, 'mine')", "prices")


async def test_rule_26_lua_user_shows_sql_the_callers_and_the_global_keys_and_can_not_be_written(
    scripts: Scripts,
) -> None:
    await check(scripts, "store_set('k', 'theirs') global_store_set('all', 5)", "other")
    await check(
        scripts,
        """
        store_set("k", "mine") store_set("n", 3.0) state.set("k", "state's")
        is({db_query("SELECT key, value FROM lua_user ORDER BY key")},
           {{key = "a:k", value = "mine"}, {key = "a:n", value = "3"}, {key = "all", value = "5"}})
        is({db_query("SELECT value FROM lua_user WHERE key = ?", {"a:k"})}, {{value = "mine"}})
        is({db_query("SELECT value FROM lua_user WHERE key = ?", {"other:k"})}, {})
        raises("because it is a view", db_exec, "DELETE FROM lua_user")
        """,
    )


async def watched(scripts: Scripts, on: object, script: str) -> list[ChangeEvent]:
    """What a trigger hears of a script's writes."""
    scripts.store.events.watch(watches_of([make_spec(on=read_on(on))]))
    await check(scripts, script)
    return await kept(scripts.store)


EVERY_FAMILY = """
state.set("k", 1) store_set("k", "1") global_store_set("k", "1") state.set{scope = "orders", key = "k", value = 1}
"""


@pytest.mark.parametrize(
    ("on", "namespaces"),
    [
        ({}, ["scope:orders"]),
        ({"scope": "orders"}, ["scope:orders"]),
        ({"scope": "state"}, ["state"]),
        ({"scope": "global"}, ["global"]),
        ({"scope": "job:a"}, ["job:a"]),
        ({"scope": "other"}, []),
    ],
)
async def test_rule_27_a_trigger_hears_of_scopes_and_of_others_only_by_name(
    scripts: Scripts, on: object, namespaces: list[str]
) -> None:
    assert [event.namespace for event in await watched(scripts, on, EVERY_FAMILY)] == namespaces


@pytest.mark.parametrize(("events", "kinds"), [(None, ["created"]), (["expired"], ["expired"])])
async def test_rule_28_an_expiry_is_told_only_to_who_asked_for_it(
    scripts: Scripts, events: list[str] | None, kinds: list[str]
) -> None:
    on = {"scope": "orders"} if events is None else {"scope": "orders", "events": events}
    await watched(scripts, on, "state.set{scope = 'orders', key = 'k', value = 1, ttl = 0.01} sleep(20)")
    await scripts.store.values.sweep()
    assert [event.kind.value for event in await kept(scripts.store)] == kinds


async def test_rule_29_events_of_a_key_are_in_the_order_of_its_writes_and_know_their_depth(scripts: Scripts) -> None:
    script = "for i = 1, 50 do state.set{scope = 's', key = 'k' .. i % 3, value = i} end"
    events = await watched(scripts, {}, script)
    for number in range(3):
        key = b"k%d" % number
        assert [event.new for event in events if event.key == key] == [i for i in range(1, 51) if i % 3 == number]
    assert {(event.origin.job, event.origin.depth) for event in events} == {("a", 0)}


async def test_rule_29_an_identical_set_and_a_delete_of_nothing_are_told_too(scripts: Scripts) -> None:
    script = """
    local at = {scope = "s", key = "k"}
    state.delete(at)
    for _ = 1, 2 do state.set{scope = "s", key = "k", value = 1} end
    """
    kinds = [event.kind for event in await watched(scripts, {}, script)]
    assert kinds == [ChangeKind.DELETED, ChangeKind.CREATED, ChangeKind.UPDATED]


async def test_rule_32_each_agent_has_a_namespace_in_the_one_database(scripts: Scripts) -> None:
    await check(scripts, "state.set('k', 'local')")
    await check(scripts, "is({state.get('k')}, nil) state.set('k', 'b')", agent="berlin")
    await check(scripts, "is({state.get('k')}, 'local')", "other")
    await check(scripts, "is({state.get('k')}, 'b')", "other", agent="berlin")
    assert await scripts.store.values.namespaces("state") == ["state", "state@berlin"]


async def test_rule_33_log_is_called_and_has_levels(scripts: Scripts) -> None:
    await check(scripts, "log('a') log.info('b') log.warn('c') log.error('d') log.debug('e')")
    assert scripts.lines == [("info", "a"), ("info", "b"), ("warn", "c"), ("error", "d"), ("debug", "e")]


@pytest.mark.parametrize(
    ("name", "expected"), [("My  Job!", "my__job"), ("Hello World", "hello_world"), ("É-1", "é_1"), ("!!!", "")]
)
def test_rule_34_the_id_of_a_job(name: str, expected: str) -> None:
    assert job_id(name) == expected
