"""Tasks and workflows in a real worker, with their rows in a real database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from spyweb.model import Ending, Failure, Outcome, TaskRow
from spyweb.views.runs import show_output
from tests.fakes.scripts import Scripts
from tests.fakes.task_rows import story, told

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def scripts(shared_scripts: Scripts) -> Scripts:
    return shared_scripts


async def go(scripts: Scripts, source: str, job: str = "a") -> tuple[Ending, Sequence[TaskRow]]:
    """Run a file once; return how that ended, and its tasks."""
    run = await scripts.begin(job)
    ending = await scripts.live_through(run, source, job)
    return ending, (await scripts.store.tasks.of_runs([run])).get(run, ())


async def succeed(scripts: Scripts, source: str) -> list[str]:
    ending, rows = await go(scripts, source)
    assert ending.outcome is Outcome.SUCCESS, ending.reason
    return story(rows)


async def fail(scripts: Scripts, source: str) -> tuple[str, list[str]]:
    ending, rows = await go(scripts, source)
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.ERROR)
    return ending.reason, story(rows)


def said(scripts: Scripts, level: str = "info") -> list[str]:
    """What was logged, each without its traceback."""
    return [text.partition("\n")[0] for text in scripts.texts(level)]


# What runs


async def test_both_forms_of_a_task_run_in_the_order_of_their_dependencies(scripts: Scripts) -> None:
    source = """
        task{name = "last", depends_on = {"second"}, run = function() log("last") end}
        local first = task("first"):description("begins"):command(function() log("first") return true end):build()
        task("second"):depends_on(first):command(function() log("second") return true, "fine" end)
    """
    assert await succeed(scripts, source) == ["last success", "first success", "second success"]
    assert said(scripts) == ["first", "second", "last"]


async def test_each_run_runs_the_tasks_of_a_file_that_is_executed_once(scripts: Scripts) -> None:
    source = "loads = (loads or 0) + 1 runs = 0 task{name = 'a', run = function() runs = runs + 1 log(loads, runs) end}"
    for _ in range(3):
        await succeed(scripts, source)
    assert said(scripts) == ["1\t1", "1\t2", "1\t3"]


async def test_a_file_that_failed_half_way_declares_its_tasks_again(scripts: Scripts) -> None:
    source = "task{name = 'a', run = function() end} tries = (tries or 0) + 1 if tries == 1 then error('no') end"
    assert await fail(scripts, source) == ("jobs/a.lua:1: no", [])
    assert await succeed(scripts, source) == ["a success"]


async def test_a_file_that_defines_run_runs_no_task(scripts: Scripts) -> None:
    ending, rows = await go(scripts, "task{name = 'a', run = error} function run() return 7 end")
    assert (ending.result, rows) == (7, ())


async def test_workflows_run_in_the_order_of_their_definition_and_only_what_they_list(scripts: Scripts) -> None:
    source = """
        local function say(this) log(this.workflow, this.name) end
        for _, name in ipairs{"a", "b", "c", "d"} do task(name):command(say) end
        workflow.define("one"):description("x"):version("1.0.0"):tasks{"b", "a"}
        workflow.define("two", {version = 2, tasks = {"a", {name = "e", run = say}}})
        workflow("three"):tasks({d = {command = function() log("never") end}})
    """
    reason, _ = await fail(scripts, source)
    assert "two tasks are named 'd'" in reason
    assert await succeed(scripts, source.replace("d = {", "f = {")) == [
        "b success", "a success", "a success", "e success", "f success",
    ]  # fmt: skip
    assert said(scripts) == ["one\tb", "one\ta", "two\ta", "two\te", "never"]
    assert said(scripts, "warn") == ["in no workflow, so not run: c, d"]


async def test_a_task_by_a_key_keeps_the_name_that_it_has(scripts: Scripts) -> None:
    source = """
        workflow.define("w", {tasks = {
            check_all = {name = "check-all", run = function() end},
            report = {depends_on = "check-all", run = function() end},
        }})
    """
    assert await succeed(scripts, source) == ["check-all success", "report success"]


async def test_a_workflow_may_be_built_and_a_task_be_delegated_to_nobody(scripts: Scripts) -> None:
    source = "workflow('w'):tasks{task('a'):delegate_to(nil):command(function() end):build()}:build()"
    assert await succeed(scripts, source) == ["a success"]


@pytest.mark.parametrize("name", ["ModernDSLs", "TaskDefinitions"])
async def test_the_older_tables_are_workflows_too(scripts: Scripts, name: str) -> None:
    source = (
        name
        + """ = {
        second = {tasks = {{name = "y", command = function() log("y") end}}},
        first = {description = "d", tasks = {
            b = {command = function(this) log(this:name()) end, depends_on = "z"}, z = {command = function() end},
        }},
    }"""
    )
    ending, rows = await go(scripts, source)
    assert ending.outcome is Outcome.SUCCESS
    assert [(row.workflow, row.name) for row in rows] == [("first", "b"), ("first", "z"), ("second", "y")]
    assert said(scripts) == ["b", "y"]


async def test_a_name_is_stronger_than_the_key_it_stands_under(scripts: Scripts) -> None:
    source = """
        local made = workflow("w"):tasks{x = {name = "build", run = function() end}}:build()
        assert(made.name == "w")
    """
    assert await succeed(scripts, source) == ["build success"]


# What a command is given, and gives


async def test_a_command_is_given_itself_its_parameters_and_the_outputs_it_depends_on(scripts: Scripts) -> None:
    source = """
        task("a"):command(function() return true, "made", {n = 1, list = {1, 2}, none = {}} end)
        task("b"):command(function() return true end)
        task("c"):depends_on{"a", "b"}:params{x = 5}:workdir("/srv"):command(function(this, params, input)
          log(this.name .. this:name(), this.workdir, this.attempt, this.workflow)
          log(params.x, input.a.n, #input.a.list, input.b)
        end)
        task("d"):depends_on("a"):command(function(this, params, input)
          input.a.n = 7
          log(this.workdir, next(params), pcall(this.name))
        end)
        task("e"):depends_on("a"):command(function(this, params, input) log(input.a.n) end)
    """
    assert len(await succeed(scripts, source)) == 5
    assert said(scripts) == [
        "cc\t/srv\t1\t",
        "5\t1\t2\tnil",
        "jobs/a\tnil\tfalse\tjobs/a.lua:10: attempt to call a string value",
        "1",
    ]


GIVEN: list[tuple[str, str, str, object]] = [
    ("", "success", "", None),
    ("return true", "success", "", None),
    ("return true, 'fine'", "success", "fine", None),
    ("return true, 'fine', {a = 1}", "success", "fine", {"a": 1}),
    ("return true, nil, {a = 1}", "success", "", {"a": 1}),
    ("return true, {a = 1}", "success", "", {"a": 1}),
    ("return {a = 1}", "success", "", {"a": 1}),
    ("return true, 'n', 7", "success", "n", 7),
    ("return true, 'same', {changed = false}", "unchanged", "same", {"changed": False}),
    ("return setmetatable({n = 1}, {__index = error, __pairs = error, __len = error})", "success", "", {"n": 1}),
    ("return table.freeze({changed = false})", "unchanged", "", {"changed": False}),
    ("return true, 'new', {changed = true}", "success", "new", {"changed": True}),
    ("return false", "failed", "returned false", None),
    ("return false, 'no luck'", "failed", "no luck", None),
    ("return nil, 'gone'", "failed", "gone", None),
    ("error('boom')", "failed", "jobs/a.lua:1: boom", None),
    ("error({message = 'told'})", "failed", "told", None),
    (
        "return true, 'x' .. template.render{text = '{{if}}'}",
        "failed",
        "jobs/a.lua:1: attempt to concatenate a nil value (template.render: template:1: a value expected)",
        None,
    ),
    ("error()", "failed", "(error object is a nil value)", None),
    ("return true, '', {f = print}", "failed", "its output holds a function", None),
    ("return true, '', {[print] = 1}", "failed", "its output holds a function", None),
    ("return true, '', {[{}] = 1}", "failed", "its output has a table as a key", None),
    ("return true, '', coroutine.create(print)", "failed", "its output holds a thread", None),
    ("local t = {} t.t = t return t", "failed", "its output holds a table that is inside itself", None),
    ("local t = {} for i = 1, 99 do t = {t} end return t", "failed", "its output is nested too deep", None),
    ("return {s = ('x'):rep(65536)}", "failed", "its output has 65546 bytes, 65536 at most", None),
    ("local t = {} return {a = t, b = t}", "success", "", {"a": {}, "b": {}}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "message", "output"), GIVEN, ids=[body for body, *_ in GIVEN])
async def test_what_a_command_returns_is_how_its_task_ends(
    scripts: Scripts, body: str, status: str, message: str, output: object
) -> None:
    ending, (row,) = await go(scripts, f"task{{name = 'a', run = function() {body} end}}")
    assert (row.status, row.message, show_output(row.output)) == (status, message, output)
    assert ending.reason == (f"a: {message} (1 of 1 task)" if status == "failed" else "")


async def test_what_a_task_does_to_its_parameters_is_gone_with_it(scripts: Scripts) -> None:
    source = """
        task("a"):params{list = {1}}:command(function(_, params) table.insert(params.list, 2) log(#params.list) end)
    """
    for _ in range(2):
        await succeed(scripts, source)
    assert said(scripts) == ["2", "2"]


async def test_a_message_is_cut(scripts: Scripts) -> None:
    _, (row,) = await go(scripts, "task{name = 'a', run = function() return true, ('x'):rep(9000) end}")
    assert (len(row.message), row.message[-4:]) == (4096, "x...")


async def test_an_error_is_logged_with_its_traceback(scripts: Scripts) -> None:
    await go(scripts, "local function deep() error('boom') end\ntask{name = 'a', run = function() deep() end}")
    (line,) = scripts.texts("error")
    assert line.splitlines() == [
        "task 'a' failed: jobs/a.lua:1: boom",
        "stack traceback:",
        "\tjobs/a.lua:1: in upvalue 'deep'",
        "\tjobs/a.lua:2: in function <jobs/a.lua:2>",
    ]


async def test_a_command_of_the_system_needs_a_permission(scripts: Scripts) -> None:
    for command in ("'true'", "{'/bin/true'}"):
        _, (row,) = await go(scripts, f"task('a'):command({command})")
        assert row.status == "failed"
        assert "exec.run: 'a' may not run" in row.message


# Failures


@pytest.mark.parametrize("f", ["f", "function() return parallel(f) end"])
async def test_a_task_that_uses_a_module_that_is_not_there_says_what_to_use(scripts: Scripts, f: str) -> None:
    source = f"local function f() return pkg.install('nginx') end task('a'):command({f})"
    _, (row,) = await go(scripts, source)
    told = (
        "attempt to index a nil value (global 'pkg'); sloth-runner's pkg is not part of this version: use the machine's"
    )
    assert row.message is not None
    assert row.message.startswith(f"jobs/a.lua:1: {told}")


async def test_what_depends_on_a_failure_is_skipped_and_after_it_everything(scripts: Scripts) -> None:
    source = """
        task("a"):command(function() return false end)
        task("b"):depends_on("a"):command(function() end)
        task("c"):command(function() end)
    """
    ending, rows = await go(scripts, source)
    assert ending.reason == "a: returned false (1 of 3 tasks)"
    assert [(row.name, row.status, row.message) for row in rows] == [
        ("a", "failed", "returned false"),
        ("b", "skipped", "stopped after a"),
        ("c", "skipped", "stopped after a"),
    ]


async def test_on_failure_continue_goes_on_with_what_does_not_depend_on_it(scripts: Scripts) -> None:
    source = """
        task("a"):command(function() return false end)
        task("b"):depends_on("a"):command(function() end)
        task("c"):depends_on("b"):command(function() end)
        task("d"):command(function() error("x") end)
        task("e"):command(function() end)
        workflow("w"):tasks{"a", "b", "c", "d", "e"}:config{on_failure = "continue"}
    """
    ending, rows = await go(scripts, source)
    assert ending.reason == "a: returned false, also d (2 of 5 tasks)"
    assert [(row.name, row.status, row.message) for row in rows] == [
        ("a", "failed", "returned false"),
        ("b", "skipped", "a failed"),
        ("c", "skipped", "b was skipped"),
        ("d", "failed", "jobs/a.lua:5: x"),
        ("e", "success", ""),
    ]


async def test_the_workflows_behind_one_that_failed_still_run(scripts: Scripts) -> None:
    source = """
        workflow.define("one", {tasks = {a = {run = function() return false end}}})
        workflow.define("two", {tasks = {b = {run = function() end}}})
    """
    assert await fail(scripts, source) == ("a: returned false (1 of 2 tasks)", ["a failed", "b success"])


async def test_many_failures_are_told_in_a_line(scripts: Scripts) -> None:
    source = """
        local names = {}
        for i = 1, 30 do names[i] = "t" .. i task(names[i]):command(function() return false end) end
        workflow("w"):tasks(names):config{on_failure = "continue"}
    """
    reason, _ = await fail(scripts, source)
    assert reason.startswith("t1: returned false, also t2, t3,")
    assert reason.endswith(", t20, ... (30 of 30 tasks)")
    reason, _ = await fail(scripts, "task('a'):command(function() return false, 'x' .. ('夜'):rep(200) end)")
    assert reason == f"a: x{98 * '夜'}... (1 of 1 task)"  # cut between two characters


async def test_memory_that_is_short_is_the_runs_failure(scripts: Scripts) -> None:
    greedy = "function() local s = 'x' while true do s = s .. s end end"
    ending, rows = await go(scripts, f"task{{name = 'a', run = function() end}} task{{name = 'b', run = {greedy}}}")
    assert (ending.failure, story(rows)) == (Failure.MEMORY, ["a success"])


async def test_a_run_that_is_killed_leaves_the_ends_that_were_committed(scripts: Scripts) -> None:
    run = await scripts.begin("a")
    endless = "function() pcall(function() while true do end end) end"
    source = f"task{{name = 'a', run = function() end}} task{{name = 'b', run = {endless}}}"
    ending = await scripts.live_through(run, source, "a", timeout_ms=200)
    assert (ending.failure, await told(scripts.store, run)) == (Failure.TIMEOUT, ["a success"])


# Attempts


MODES = {"'fixed'": [10, 10, 10], "'linear'": [10, 20, 30], "'exponential'": [10, 20, 40], "nil": [10, 20, 40]}


@pytest.mark.parametrize(("mode", "waits"), MODES.items(), ids=MODES)
async def test_failed_attempts_follow_their_mode(scripts: Scripts, mode: str, waits: Sequence[int]) -> None:
    source = f"""
        task("a"):retries(3, {mode}):retry_delay("10ms"):command(function(this) return this.attempt == 4, "no" end)
    """
    ending, (row,) = await go(scripts, source)
    assert (ending.outcome, row.status, row.attempts) == (Outcome.SUCCESS, "success", 4)
    assert [float(line.split()[-2]) * 1000 for line in said(scripts, "warn")] == waits
    assert row.ended_ms - cast(int, row.started_ms) >= sum(waits)


async def test_a_task_that_never_succeeds_ends_with_its_last_attempt(scripts: Scripts) -> None:
    body = "function(this) return false, 'no ' .. this.attempt end"
    _, (row,) = await go(scripts, f"task('a'):retries(2, 'fixed'):retry_delay(0):command({body})")
    assert (row.status, row.attempts, row.message) == ("failed", 3, "no 3")
    assert said(scripts, "warn")[0] == "task 'a': attempt 1 of 3 failed: no 1; the next in 0 s"


# Conditions and hooks


async def test_a_condition_skips_its_task_and_not_those_that_depend_on_it(scripts: Scripts) -> None:
    source = """
        task("a"):run_if(function(this, params) return params.go end):params{go = false}:command(error)
        task("b"):depends_on("a"):run_if(function() return true end):command(function(_, _, input) log(next(input)) end)
    """
    ending, (first, second) = await go(scripts, source)
    assert ending.outcome is Outcome.SUCCESS
    assert (first.status, first.attempts, first.message) == ("skipped", 0, "its run_if said no")
    assert first.started_ms is not None
    assert (second.status, said(scripts)) == ("success", ["nil"])


async def test_abort_if_fails_the_run_and_nothing_more_begins(scripts: Scripts) -> None:
    source = """
        workflow("one"):config{on_failure = "continue"}:tasks{
          {name = "a", run = function() end}, {name = "b", abort_if = function() return true end, run = error},
          {name = "c", run = error}}:on_complete(function(ok, results) log(ok, results.c.status) end)
        workflow("two"):tasks{{name = "d", run = error}}:on_start(error):on_complete(error)
    """
    ending, rows = await go(scripts, source)
    assert ending.reason == "b: aborted by its abort_if (1 of 4 tasks)"
    assert [f"{row.name} {row.status} {row.message}" for row in rows] == [
        "a success ", "b failed aborted by its abort_if", "c skipped aborted by b", "d skipped aborted by b",
    ]  # fmt: skip
    assert (said(scripts), said(scripts, "error")) == (["false\tskipped"], [])


async def test_a_condition_sees_what_an_unchanged_task_gave(scripts: Scripts) -> None:
    source = """
        task{name = "a", run = function() return true, "the same", {changed = false} end}
        task("b"):depends_on("a"):run_if(function(_, _, input) return input.a.changed end):command(error)
    """
    assert await succeed(scripts, source) == ["a unchanged", "b skipped"]


@pytest.mark.parametrize("condition", ["run_if", "abort_if"])
async def test_a_condition_that_fails_fails_its_task(scripts: Scripts, condition: str) -> None:
    _, (row,) = await go(scripts, f"task('a'):{condition}(function() error('x') end):command(error)")
    assert (row.status, row.attempts, row.message) == ("failed", 0, f"{condition}: jobs/a.lua:1: x")


async def test_hooks_run_around_each_attempt_and_once_at_the_end(scripts: Scripts) -> None:
    source = """
        local function note(name) return function(this, params, given)
          local what = given and (given.error or given.n or next(given))
          log(name, this.attempt, params.p, what, given and given.task_name)
        end end
        task("a"):params{p = 1}:retries(1):retry_delay(0):pre_hook(note("pre")):post_hook(note("post"))
          :on_success(note("success")):on_failure(note("failure")):on_timeout(note("timeout"))
          :command(function(this) return this.attempt == 2, "no", {n = 5} end)
        local function fails() error("x") end
        task{name = "b", params = {p = 2}, pre_hook = note("pre"), post_hook = note("post"),
          on_success = note("success"), on_fail = note("fail"), run = fails}
    """
    await fail(scripts, source)
    assert said(scripts) == [
        "pre\t1\t1\tnil\tnil",
        "post\t1\t1\tno\ta",
        "pre\t2\t1\tnil\tnil",
        "post\t2\t1\t5\tnil",
        "success\t2\t1\t5\tnil",
        "pre\t1\t2\tnil\tnil",
        "post\t1\t2\tjobs/a.lua:9: x\tb",
        "fail\t1\t2\tjobs/a.lua:9: x\tb",
    ]


@pytest.mark.parametrize("hook", ["pre_hook", "post_hook", "on_success"])
async def test_a_hook_that_fails_is_logged_and_stops_nothing(scripts: Scripts, hook: str) -> None:
    source = f"task('a'):{hook}(function() error('x') end):command(function() end)"
    assert await succeed(scripts, source) == ["a success"]
    assert said(scripts, "error") == [f"task 'a': {hook}: jobs/a.lua:1: x"]


async def test_on_failure_that_fails_leaves_the_failure_as_it_is(scripts: Scripts) -> None:
    source = "task('a'):on_failure(function() error('x') end):command(function() return false, 'no' end)"
    _, (row,) = await go(scripts, source)
    assert (row.status, row.message) == ("failed", "no")
    assert said(scripts, "error") == ["task 'a' failed: no", "task 'a': on_failure: jobs/a.lua:1: x"]


async def test_a_pre_hook_that_says_false_fails_the_attempt(scripts: Scripts) -> None:
    hook, note = "function(this) return this.attempt == 2 end", "function(_, _, given) log(given and given.error) end"
    source = f"task('a'):retries(1):retry_delay(0):pre_hook({hook}):post_hook({note}):command(function() end)"
    _, (row,) = await go(scripts, source)
    assert (row.status, row.attempts) == ("success", 2)
    assert said(scripts) == ["pre_hook returned false", "nil"]
    assert said(scripts, "warn") == ["task 'a': attempt 1 of 2 failed: pre_hook returned false; the next in 0 s"]


async def test_a_workflow_says_when_it_starts_and_what_came_of_it(scripts: Scripts) -> None:
    source = """
        workflow("w"):tasks{{name = "a", run = function() return true, "m", {n = 1} end}}
          :on_start(function() log("start") end)
          :on_complete(function(ok, results)
            local a = results.a
            log(ok, a.task, a.workflow, a.status, a.attempts, a.message, a.output.n, type(a.took_ms))
          end)
        workflow("x"):on_start(function() error("s") end):on_complete(function() error("c") end)
    """
    assert await succeed(scripts, source) == ["a success"]
    assert said(scripts) == ["start", "true\ta\tw\tsuccess\t1\tm\t1\tnumber"]
    assert said(scripts, "error") == [
        "workflow 'x': on_start: jobs/a.lua:8: s", "workflow 'x': on_complete: jobs/a.lua:8: c",
    ]  # fmt: skip


# Bad input


async def test_tasks_can_not_be_declared_while_they_run(scripts: Scripts) -> None:
    _, (row,) = await go(scripts, "task{name = 'a', run = function() task('b') end}")
    assert row.message == "jobs/a.lua:1: task belongs to the file itself: tasks can't be declared while they run"


async def test_a_file_whose_tables_hold_no_task_says_so(scripts: Scripts) -> None:
    assert await succeed(scripts, "ModernDSLs = {}") == []
    assert said(scripts, "warn") == ["no task is declared: the run does nothing"]


async def test_a_file_that_only_names_the_older_tables_is_executed_for_each_run(scripts: Scripts) -> None:
    for _ in range(2):
        ending, _ = await go(scripts, "visits = (visits or 0) + 1 return visits -- no ModernDSLs")
    assert ending.result == 2


async def test_ten_thousand_tasks_in_a_chain_are_put_in_order(scripts: Scripts) -> None:
    source = """
        local function nothing() end
        for i = 1, 10000 do
          local made = task("t" .. i):command(nothing)
          if i > 1 then made:depends_on("t" .. i - 1) end
        end
        local all = {}
        for i = 10000, 1, -1 do all[#all + 1] = "t" .. i end
        workflow("w"):tasks(all)
    """
    first_fails = source.replace("command(nothing)", "command(i == 1 and function() return false end or nothing)")
    reason, rows = await fail(scripts, first_fails)
    assert (reason, len(rows)) == ("t1: returned false (1 of 10000 tasks)", 10000)


async def test_an_empty_array_and_null_may_be_in_an_output(scripts: Scripts) -> None:
    source = """
        local given = {list = JSON_EMPTY_ARRAY, none = state.null, frozen = table.freeze({1})}
        task("a"):command(function() return given end)
        task("b"):depends_on("a"):command(function(_, _, input)
          log(input.a.list == JSON_EMPTY_ARRAY, input.a.none == state.null, input.a.frozen[1])
        end)
    """
    await succeed(scripts, source)
    assert said(scripts) == ["true\ttrue\t1"]


# Limits

ENDLESS = {
    "a loop": "while true do end",
    "a loop in a pcall that goes on": "while true do pcall(function() while true do end end) end",
    "an op": "sleep(60000)",
    "an op in a coroutine": "coroutine.wrap(function() sleep(60000) end)()",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
async def test_a_timeout_ends_an_attempt_whatever_it_does_and_the_run_goes_on(scripts: Scripts, body: str) -> None:
    source = f"""
        kept = (kept or 0) + 1
        task("a"):timeout("100ms"):command(function() {body} end)
        task("b"):command(function() log(kept) end)
        workflow("w"):tasks{{"a", "b"}}:config{{on_failure = "continue"}}
    """
    ending, (first, second) = await go(scripts, source)
    assert (first.status, first.message, first.attempts) == ("failed", "over its timeout", 1)
    assert 90 <= first.ended_ms - cast(int, first.started_ms) < 2_000
    assert (second.status, said(scripts), ending.globals_reset) == ("success", ["1"], False)
    assert ending.reason == "a: over its timeout (1 of 2 tasks)"


async def test_an_attempt_that_was_too_long_is_tried_again_and_its_hooks_are_called(scripts: Scripts) -> None:
    source = """
        local function note(name) return function(_, _, given) log(name, given.error) end end
        local function wait() sleep(60000) end
        task("a"):timeout(0.1):retries(1, "fixed"):retry_delay(0):post_hook(note("post"))
          :on_failure(note("failure")):on_timeout(note("timeout")):command(wait)
        task("b"):timeout(0.1):on_failure(note("failure")):command(wait)
        workflow("w"):tasks{"a", "b"}:config{on_failure = "continue"}
    """
    _, (first, _) = await go(scripts, source)
    assert (first.attempts, first.message) == (2, "over its timeout")
    assert said(scripts) == [
        "post\tover its timeout", "post\tover its timeout", "timeout\tover its timeout", "failure\tover its timeout",
    ]  # fmt: skip


async def test_what_an_attempt_had_locked_is_free_after_its_timeout(scripts: Scripts) -> None:
    source = """
        db_exec("CREATE TABLE IF NOT EXISTS t (n)") db_exec("DELETE FROM t")
        task("a"):timeout(0.1):command(function()
          state.lock("deploy", 5) db_exec("BEGIN") db_exec("INSERT INTO t VALUES (1)")
          sleep(60000)
        end)
        task("b"):command(function() return state.try_lock("deploy"), "held", #db_query("SELECT n FROM t") end)
        workflow("w"):tasks{"a", "b"}:config{on_failure = "continue"}
    """
    _, (_, second) = await go(scripts, source)
    assert (second.status, show_output(second.output)) == ("success", 0)


@pytest.mark.parametrize("hook", ["pre_hook", "post_hook", "on_success", "run_if", "abort_if"])
async def test_a_hook_that_never_ends_is_ended_too(scripts: Scripts, hook: str) -> None:
    source = f"task('a'):timeout(0.1):{hook}(function() while true do end end):command(function() end)"
    _, (row,) = await go(scripts, source)
    assert row.ended_ms - cast(int, row.started_ms) < 2_000
    assert any("over its timeout" in line for line in said(scripts, "error"))


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_workflow_is_over_its_timeout_with_all_that_is_under_way(scripts: Scripts, at_once: int) -> None:
    source = f"""
        task("a"):command(function() end)
        task("b"):depends_on("a"):command(function() sleep(60000) end)
        task("c"):depends_on("b"):command(function() end)
        workflow("w"):tasks{{"a", "b", "c"}}:config{{timeout = "200ms", max_parallel_tasks = {at_once}}}
          :on_complete(function(ok, results) log(ok, results.b.status, results.c.message) end)
        workflow("x"):tasks{{{{name = "d", run = function() end}}}}
    """
    ending, rows = await go(scripts, source)
    assert ending.reason == "b: workflow 'w' is over its timeout (1 of 4 tasks)"
    assert [f"{row.name} {row.status} {row.message}" for row in rows] == [
        "a success ", "b failed workflow 'w' is over its timeout", "c skipped workflow 'w' is over its timeout",
        "d success ",
    ]  # fmt: skip
    assert said(scripts) == ["false\tfailed\tworkflow 'w' is over its timeout"]


async def test_a_wait_before_another_attempt_counts_in_the_workflows_timeout(scripts: Scripts) -> None:
    source = """
        task("a"):retries(5):retry_delay("1m"):command(function(this) this.attempt = {} return false, "no" end)
        workflow("w"):tasks{"a"}:config{timeout = "200ms"}
    """
    _, (row,) = await go(scripts, source)
    assert (row.status, row.attempts, row.message) == ("failed", 1, "workflow 'w' is over its timeout")


# Side by side


async def test_tasks_run_side_by_side_as_far_as_they_may(scripts: Scripts) -> None:
    source = """
        local under_way, most = 0, 0
        local names = {}
        for i = 1, 6 do
          names[i] = "t" .. i
          task(names[i]):command(function()
            under_way = under_way + 1
            most = math.max(most, under_way)
            sleep(50)
            under_way = under_way - 1
          end)
        end
        task("end"):depends_on(names):command(function() log(most, under_way) end)
        workflow("w"):tasks(names):tasks{"end"}:config{max_parallel_tasks = 3}
    """
    ending, rows = await go(scripts, source)
    assert story(rows) == [*(f"t{i} success" for i in range(1, 7)), "end success"]
    assert said(scripts) == ["3\t0"]
    assert ending.outcome is Outcome.SUCCESS


async def test_a_task_begins_when_what_it_depends_on_has_ended_and_not_later(scripts: Scripts) -> None:
    source = """
        local function wait(ms) return function(this) log(this.name) sleep(ms) return {from = this.name} end end
        task("slow"):command(wait(400))
        task("a"):command(wait(20))
        task("b"):depends_on("a"):command(function(_, _, input) log("b", input.a.from) end)
        task("c"):depends_on("b"):command(function() log("c") end)
        workflow("w"):tasks{"slow", "a", "b", "c"}:config{max_parallel_tasks = 2}
          :on_complete(function() log("complete") end)
    """
    assert len(await succeed(scripts, source)) == 4
    assert said(scripts) == ["slow", "a", "b\ta", "c", "complete"]


async def test_after_a_failure_what_is_under_way_ends_by_itself(scripts: Scripts) -> None:
    source = """
        task("a"):command(function() sleep(30) return false, "no" end)
        task("b"):command(function() sleep(150) log("b ends") end)
        task("c"):command(function() log("never") end)
        workflow("w"):tasks{"a", "b", "c"}:config{max_parallel_tasks = 2}
    """
    ending, rows = await go(scripts, source)
    assert [f"{row.name} {row.status} {row.message}" for row in rows] == [
        "a failed no", "b success ", "c skipped stopped after a",
    ]  # fmt: skip
    assert (ending.reason, said(scripts)) == ("a: no (1 of 3 tasks)", ["b ends"])


async def test_a_run_that_is_cancelled_ends_all_of_its_tasks(scripts: Scripts) -> None:
    source = """
        local names = {}
        for i = 1, 5 do names[i] = "t" .. i task(names[i]):timeout("1m"):command(function() sleep(60000) end) end
        workflow("w"):tasks(names):config{max_parallel_tasks = 5}
    """
    run = await scripts.begin("a")
    ending = await scripts.live_through(run, source, "a", timeout_ms=300)
    assert (ending.failure, await told(scripts.store, run)) == (Failure.TIMEOUT, [])


async def test_tasks_side_by_side_may_use_parallel_themselves(scripts: Scripts) -> None:
    source = """
        local function work(this)
          local sums = parallel_map({1, 2, 3}, function(n) sleep(5) return n * 2 end)
          return {sum = sums[1] + sums[2] + sums[3]}
        end
        task("a"):timeout(5):command(work)
        task("b"):command(work)
        workflow("w"):tasks{"a", "b"}:config{max_parallel_tasks = 2}
    """
    _, rows = await go(scripts, source)
    assert [show_output(row.output) for row in rows] == [{"sum": 12}, {"sum": 12}]


async def test_as_many_as_may_be_asked_for_with_a_limit_each(scripts: Scripts) -> None:
    source = """
        local names = {}
        for i = 1, 1100 do names[i] = "t" .. i task(names[i]):timeout(20):command(function() sleep(1) end) end
        workflow("w"):tasks(names):config{max_parallel_tasks = 1000, timeout = "1m"}
    """
    assert set(await succeed(scripts, source)) == {f"t{i} success" for i in range(1, 1101)}


# Agents


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_delegated_task_has_the_state_of_its_agent(scripts: Scripts, at_once: int) -> None:
    source = f"""
        state.set("k", "mine")
        local function get() return state.get("k") end
        local function look(this) sleep(5) log(this.name, get()) state.set("k", this.name) end
        task("a"):delegate_to("web1"):timeout(5):command(look)
        task("b"):command(look)
        task("c"):delegate_to("localhost"):depends_on("b"):command(look)
        task("d"):delegate_to("web1"):depends_on{{"a", "c"}}:command(function(this)
          look(this)
          log(coroutine.wrap(get)(), state.with_lock("l", get))
        end)
        workflow("w"):tasks{{"a", "b", "c", "d"}}:config{{max_parallel_tasks = {at_once}}}
          :on_complete(function() log("complete", get()) end)
        workflow("x"):tasks{{{{name = "e", run = function() log("e", state.get("k")) end}}}}
    """
    ending, _ = await go(scripts, source)
    assert ending.outcome is Outcome.SUCCESS
    told, *lines = said(scripts)
    assert told == "task 'a' is delegated to web1: it runs here, with the state of that agent"
    assert sorted(lines[:2]) == ["a\tnil", "b\tmine"]
    assert lines[2:] == ["c\tb", "d\ta", "d\td", "complete\tc", "e\tc"]


# Files


async def test_files_are_kept_and_given_to_other_tasks(scripts: Scripts) -> None:
    source = """
        task("build"):artifacts{"out/*.txt"}:command(function() fs_overwrite("out/a.txt", "built") end)
        task("spoil"):depends_on("build"):command(function() fs_overwrite("out/a.txt", "spoilt") end)
        task("ship"):depends_on("spoil"):consumes("out/a.txt"):command(function() log(fs_read("out/a.txt")) end)
    """
    assert len(await succeed(scripts, source)) == 3
    assert said(scripts) == ["built"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("artifacts('none-*.txt')", "artifacts: no file in jobs/a matches 'none-*.txt'"),
        ("consumes('none.txt')", "consumes: no artifact of this run matches 'none.txt'"),
        ("consumes('../../x')", "consumes: no artifact of this run matches '../../x'"),
    ],
)
async def test_files_that_are_not_there_fail_the_task(scripts: Scripts, declared: str, message: str) -> None:
    _, (row,) = await go(scripts, f"task('a'):{declared}:command(function() fs_overwrite('x.txt', '') end)")
    assert (row.status, row.message) == ("failed", message)
