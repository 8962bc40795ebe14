"""Where a failure is said to be: also where a tail call has taken the only frame of the script."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM
from tests.fakes.vm import FakeCallbacks, run_to_end

BAD = "bad argument #1 to 'require' (string expected, got number)"
INDIRECT = "function run() return f() end\nfunction f() return require(5) end"


def run(lua: VM, source: str) -> tuple[Ended, str, str]:
    """How the script ends, its reason, and its traceback."""
    ended, reason, traceback = run_to_end(lua, source)
    return ended, reason.decode(), traceback.decode()


@pytest.mark.parametrize("first_line", ["-- nothing\n", "-- __close: the call is protected\n"])
@pytest.mark.parametrize(
    ("source", "line", "frame"),
    [
        (INDIRECT, 2, "in function 'run', which begins there"),
        ("function run() return require(5) end", 2, "in function 'run', which begins there"),
        ("\nlocal x = 1\nreturn require(5)\n\n", 4, "in main chunk, which ends there"),
        ("function run() end\nif true then\n return require(5) end", 4, "in main chunk, which ends there"),
    ],
)  # fmt: skip
def test_a_failure_in_a_tail_call_names_what_was_called_last(
    lua: VM, first_line: str, source: str, line: int, frame: str
) -> None:
    ended, reason, traceback = run(lua, first_line + source)

    assert (ended, reason) == (Ended.ERROR, f"x.lua:{line}: {BAD}")
    assert traceback == f"stack traceback:\n\tx.lua:{line}: {frame}"


def test_where_another_frame_is_known_a_failure_in_a_tail_call_names_that(lua: VM) -> None:
    source = "local function f() return require(5) end\nfunction run()\n  f()\n  return 1\nend"

    assert run(lua, source)[1] == f"x.lua:3: {BAD}"


def test_an_error_that_is_a_table_has_no_position_but_a_traceback(lua: VM) -> None:
    _, reason, traceback = run(lua, "function run() return json_encode(nil) and error({ code = 1 }) end")

    assert reason == "(error object is a table value: {code = 1})"
    assert "x.lua:1" in traceback


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ("function on_success() return require(5) end", "on_success"),
        ("function on_finally() return require(5) end", "on_finally"),
        ("defer(function() return require(5) end)", "defer"),
    ],
)
def test_a_hook_that_fails_in_a_tail_call_says_where_it_begins(
    lua: VM, callbacks: FakeCallbacks, source: str, label: str
) -> None:
    run(lua, f"\n{source}")

    ((_, text),) = callbacks.lines
    assert text.decode().startswith(f"{label}: x.lua:2: {BAD}\nstack traceback:\n\tx.lua:2: in ")


def test_an_error_without_a_position_stays_so_where_the_script_says_so(lua: VM) -> None:
    assert run(lua, "error('as it is', 0)")[1] == "as it is"
    assert run(lua, "local ok, text = pcall(error, 'as it is') return nil, text")[1] == "as it is"


def test_an_error_about_nil_says_why_a_template_was_not_rendered(lua: VM) -> None:
    source = "function run() local text = template.render{text = '{{.no.such}}', vars = {}}\n return 'x' .. text end"
    reason = run(lua, source)[1]
    assert reason.startswith(
        "x.lua:2: attempt to concatenate a nil value (local 'text') (template.render: template:1: "
    )


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        ("require(text)", "bad argument #1 to 'require' (string expected, got nil) (template.render: {})"),
        ("assert(text, why)", "{}"),
        ("error('no')", "no"),
    ],
)
def test_an_error_that_is_not_of_that_nil_is_as_it_is(lua: VM, use: str, reason: str) -> None:
    told = run(lua, f"local text, why = template.render{{ text = '{{{{if}}}}' }} {use}")[1]
    assert told.removeprefix("x.lua:1: ") == reason.format("template:1: a value expected")
