"""What a script may declare, and how it is told what is wrong with it: nothing of it is run here."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM, Bytecode, init_of
from tests.fakes.vm import FakeCallbacks, run_to_end

INIT = init_of({"ops": ["echo"], "engine": {}})


def refused(lua: VM, source: str) -> str:
    """Return why a file that declares tasks fails before any runs."""
    ended, reason, _ = run_to_end(lua, source)
    assert ended is Ended.ERROR
    return reason.decode()


WRONG = [
    ("task('a'):comand(print)", "x.lua:1: task 'a' has no method 'comand'; did you mean \"command\"?"),
    ("task('a'):on_sucess(print)", "x.lua:1: task 'a' has no method 'on_sucess'; did you mean \"on_success\"?"),
    ("task('a'):zzzzzzzz(print)", "x.lua:1: task 'a' has no method 'zzzzzzzz'"),
    ("task('a').command(print)", "x.lua:1: call command with a colon: task:command(...)"),
    ("task{name = 'a', retrys = 1}", "x.lua:1: task 'a': unknown key 'retrys'; did you mean \"retries\"?"),
    ("task{name = 'a', 'b'}", "x.lua:1: task 'a': unknown key of type number"),
    ("task()", "x.lua:1: task: a name expected, got nil"),
    ("task('')", "x.lua:1: task: a name expected, got an empty text"),
    ("task{run = print}", "x.lua:1: task: a name expected, got nil"),
    ("task(string.rep('x', 201))", "x.lua:1: task: the name is longer than 200 bytes"),
    ("task('a')\ntask('a')", "x.lua:2: two tasks are named 'a': the first one is at x.lua:1"),
    ("task('a'):command(7)", "x.lua:1: task 'a': command: a function expected, got number"),
    (
        "task('a'):command(print)\ntask('b'):command(task('c'))",
        "x.lua:2: task 'b': command: a task is listed in a workflow, no other task runs it",
    ),
    ("task('a'):delegate_to(7)", "x.lua:1: task 'a': delegate_to: a string expected, got number"),
    ("workflow('w'):tasks{a = {name = 7}}", "x.lua:1: task: a name expected, got number"),
    ("task('a'):on_fail('x')", "x.lua:1: task 'a': on_failure: a function expected, got string"),
    ("task('a'):params(1)", "x.lua:1: task 'a': params: a table expected, got number"),
    ("task('a'):description({})", "x.lua:1: task 'a': description: a string expected, got table"),
    ("task('a'):retries(-1)", "x.lua:1: task 'a': retries: a whole number from 0 to 1000 expected, got -1"),
    ("task('a'):retries(1.5)", "x.lua:1: task 'a': retries: a whole number from 0 to 1000 expected, got 1.5"),
    (
        "task('a'):retries(1, 'liner')",
        "x.lua:1: task 'a': retries: \"exponential\", \"linear\" or \"fixed\" expected, got 'liner'; "
        'did you mean "linear"?',
    ),
    ("task('a'):timeout(0)", "x.lua:1: task 'a': timeout: must be more than 0"),
    (
        "task('a'):timeout('soon')",
        "x.lua:1: task 'a': timeout: expected a number of seconds, or text such as \"1h30m\" or \"250ms\", not 'soon'",
    ),
    (
        "task('a'):retry_delay(-1)",
        "x.lua:1: task 'a': retry_delay: expected a number of seconds, or text such as \"1h30m\" or \"250ms\", not -1",
    ),
    ("task('a'):depends_on(7)", "x.lua:1: task 'a': depends_on: a name expected, got number"),
    ("workflow.define()", "x.lua:1: workflow: a name expected, got nil"),
    ("workflow.define('w')\nworkflow('w')", "x.lua:2: two workflows are named 'w': the first one is at x.lua:1"),
    ("workflow('w'):task({})", "x.lua:1: workflow 'w' has no method 'task'; did you mean \"tasks\"?"),
    ("workflow.define('w', {task = {}})", "x.lua:1: workflow 'w': unknown key 'task'; did you mean \"tasks\"?"),
    (
        "workflow('w'):config{max_paralel_tasks = 2}",
        "x.lua:1: workflow 'w': config: unknown key 'max_paralel_tasks'; did you mean \"max_parallel_tasks\"?",
    ),
    (
        "workflow('w'):config{max_parallel_tasks = 0}",
        "x.lua:1: workflow 'w': max_parallel_tasks: a whole number from 1 to 1000 expected, got 0",
    ),
    (
        "workflow('w'):config{on_failure = 'go'}",
        "x.lua:1: workflow 'w': on_failure: \"stop\" or \"continue\" expected, got 'go'",
    ),
    ("workflow('w'):tasks('a')", "x.lua:1: workflow 'w': tasks: a table expected, got string"),
    ("workflow('w'):tasks{7}", "x.lua:1: workflow 'w': tasks: a name expected, got number"),
    ("ModernDSLs = 7", "x.lua: ModernDSLs: a table expected, got number"),
    ("TaskDefinitions = {7}", "x.lua: TaskDefinitions: a group's name expected, got a number"),
    ("ModernDSLs = {g = {task = {}}}", "x.lua: workflow 'g': unknown key 'task'; did you mean \"tasks\"?"),
    (
        "ModernDSLs = {g = {tasks = {a = {comand = print}}}}",
        "x.lua: task 'a': unknown key 'comand'; did you mean \"command\"?",
    ),
    # What only the whole file shows, with the chain.
    ("task('a')", "x.lua:1: task 'a' has no command"),
    (
        "task('a'):command(print):depends_on('b')\ntask('bb'):command(print)",
        "x.lua:1: task 'a' depends on 'b', and there is no such task (a -> b); did you mean \"a\"?",
    ),
    (
        "task('x'):command(print)\ntask('a'):command(print):depends_on('a')",
        "x.lua:2: these tasks depend on each other: a -> a",
    ),
    (
        "task('a'):command(print):depends_on('b')\n"
        "task('b'):command(print):depends_on{'z', 'c'}\n"
        "task('z'):command(print)\n"
        "task('c'):command(print):depends_on('a')",
        "x.lua:1: these tasks depend on each other: a -> b -> c -> a",
    ),
    (
        "local function f() end\nModernDSLs = {g = {tasks = {\na = {command = function() end, depends_on = 'q'}}}}",
        "x.lua:3: task 'a' depends on 'q', and there is no such task (a -> q); did you mean \"a\"?",
    ),
    (
        "task('a'):command(print)\nworkflow('w'):tasks{'a', 'c'}",
        "x.lua:2: workflow 'w' lists the task 'c', and there is none; did you mean \"a\"?",
    ),
    (
        "task('a'):command(print)\ntask('b'):command(print):depends_on('a')\nworkflow('w'):tasks{'b'}",
        "x.lua:2: task 'b' depends on 'a', which workflow 'w' does not list (b -> a)",
    ),
    (
        "for i = 1, 5000 do task('t' .. i):command(print):depends_on('t' .. i % 5000 + 1) end",
        "x.lua:1: these tasks depend on each other: t1 -> t2 -> t3 -> ... -> t5000 -> t1",
    ),
    ("for i = 1, 10001 do task('t' .. i):command(print) end", "x.lua:1: more than 10000 tasks in one file"),
    (  # tasks that two workflows list count twice
        "local names = {} for i = 1, 6000 do names[i] = 't' .. i task(names[i]):command(print) end "
        "workflow('a'):tasks(names) workflow('b'):tasks(names)",
        "more than 10000 tasks in one run",
    ),
    ("task('a') local n = 'x' n()", "x.lua:1: attempt to call a string value (local 'n')"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "reason"), WRONG, ids=[source[:50] for source, _ in WRONG])
def test_what_is_wrong_is_told_where_it_stands(lua: VM, source: str, reason: str) -> None:
    assert refused(lua, source) == reason


@pytest.mark.parametrize(
    "source", ["local t, w = task, workflow return 7", "task = function(x) return x end assert(task(7) == 7)"]
)
def test_a_file_that_only_asks_for_them_or_puts_its_own_in_their_place_declares_nothing(lua: VM, source: str) -> None:
    assert run_to_end(lua, source)[0] is Ended.SUCCESS


def test_the_objects_show_their_names_and_nothing_of_ours(lua: VM) -> None:
    source = """
        local t, w = task{name = 'a', run = print}, workflow('w')
        assert(t.name == 'a' and w.name == 'w')
        assert(not getmetatable(t) and not getmetatable(w))
        for key in pairs(t) do assert(key == 'name') end
        assert(t:build() == t and t:timeout('1h30m'):retries(2, 'fixed'):retry_delay('250ms') == t)
        function run() end
    """
    ended, reason, _ = run_to_end(lua, source)
    assert (ended, reason) == (Ended.SUCCESS, b"")


@pytest.mark.parametrize("text", ["1h30m", "250ms", "1.5s", "2 minutes", "1 day 2 hours", "3sec", "1w", "30", 30, 0.25])
def test_durations_are_those_of_settings(lua: VM, text: str | float) -> None:
    given = repr(text)
    ended, reason, _ = run_to_end(lua, f"task('a'):timeout({given}) function run() end")
    assert (ended, reason) == (Ended.SUCCESS, b"")


ODD = [
    "nil", "false", "0", "-1", "1.5", "1/0", "0/0", "''", "'x'", "'\\0'", "{}", "{{}}", "{1}", "{'a',{}}", "print",
    "task", "_G",
]  # fmt: skip
KEYS = [
    "name", "command", "run", "description", "params", "depends_on", "timeout", "retries", "retry_delay", "run_if",
    "abort_if", "on_success", "on_failure", "on_fail", "on_timeout", "pre_hook", "post_hook", "artifacts", "consumes",
    "delegate_to", "workdir",
]  # fmt: skip
WORKFLOW_KEYS = ["description", "version", "tasks", "config", "on_start", "on_complete"]


@pytest.mark.parametrize("key", KEYS)
def test_whatever_is_given_is_taken_or_refused_where_it_stands(bytecode: Bytecode, key: str) -> None:
    method = f"task('a'):{key}(%s)" if key != "name" else "task(%s)"
    for value in ODD:
        for source in (f"task{{name = 'a', run = print, {key} = {value}}}", method % value):
            check(bytecode, f"{source} function run() end")


@pytest.mark.parametrize("key", WORKFLOW_KEYS)
def test_whatever_a_workflow_is_given_is_taken_or_refused_where_it_stands(bytecode: Bytecode, key: str) -> None:
    for value in ODD:
        for source in (f"workflow.define('w', {{{key} = {value}}})", f"workflow('w'):{key}({value})"):
            check(bytecode, f"{source} function run() end")
    for config in ("timeout", "max_parallel_tasks", "on_failure"):
        for value in ODD:
            check(bytecode, f"workflow('w'):config{{{config} = {value}}} function run() end")


@pytest.mark.parametrize("name", ["ModernDSLs", "TaskDefinitions"])
def test_whatever_stands_in_the_older_tables_is_taken_or_refused(bytecode: Bytecode, name: str) -> None:
    for value in ODD:
        for given in (
            value,
            f"{{g = {value}}}",
            f"{{g = {{tasks = {value}}}}}",
            f"{{g = {{tasks = {{a = {value}}}}}}}",
        ):
            check(bytecode, f"{name} = {given}")


def check(bytecode: Bytecode, source: str) -> None:
    vm = VM(bytecode, INIT, 16 << 20, FakeCallbacks(), main_count=1000)
    ended, reason, _ = run_to_end(vm, source)
    assert ended is Ended.SUCCESS or reason.startswith(b"x.lua:"), (source, reason)
    vm.close()
