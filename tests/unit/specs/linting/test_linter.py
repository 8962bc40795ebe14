from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import Problem
from spyweb.ops.sources import Sources
from spyweb.specs.block import Block, read_block
from spyweb.specs.linting.linter import Linter, doubts_of_hooks, doubts_of_script, doubts_of_server, read_module

NOWHERE = Path("/nowhere")


def nothing(_: bytes) -> None:
    """No module is there."""


def of_script(source: str) -> list[str]:
    block = read_block(source.encode(), "jobs/a.lua")
    assert isinstance(block, Block)
    found = list(doubts_of_script(("jobs/a.lua", source.encode()), block, nothing))
    assert all(problem.is_warning for problem in found)
    return [str(problem).removeprefix("jobs/a.lua:") for problem in found]


def of_hooks(**files: str) -> list[str]:
    named = [(f"{name}.lua", source.encode()) for name, source in files.items()]
    return [str(problem) for problem in doubts_of_hooks(named, nothing)]


TASKS_AND_RUN = "the file declares tasks and defines run: spyweb calls run, and no task runs"
BLOCK = '-- /// job\n-- every = "30s"\n-- ///\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("log(1)\n" + BLOCK, "2: this settings block is not at the top of the file and has no effect"),
        ("--- /// job\nlog(1)", '1: this begins no block of settings; expected "-- /// job"'),
        ("\n-- // job\nlog(1)", '2: this begins no block of settings; expected "-- /// job"'),
        ("log(1)\n--  //// Job", '2: this begins no block of settings; expected "-- /// job"'),
        ("function run() end run()", "1: the file defines run and calls it; spyweb calls it too"),
        ("cdp.open()", "1: cdp.open is not part of this version"),
        ("require('import')", "1: sloth-runner's import is not part of this version: use require"),
        ("task('a'):command(print)\nfunction run(ctx) end", f"2: {TASKS_AND_RUN}"),
        ("run = function() end workflow.define('w')", f"1: {TASKS_AND_RUN}"),
        ("ModernDSLs = {}\nfunction run() end", f"2: {TASKS_AND_RUN}"),
        ("task({\nname = 'a',\nrun = print\n})\nrun = print", f"5: {TASKS_AND_RUN}"),
        ("log(1)\nworkflow.defin('w')", '2: nobody defines workflow.defin; did you mean "workflow.define"?'),
        ("htp_get('x')", '1: nobody defines htp_get; did you mean "http_get"?'),
        ("log(1) function on_sucess() end", '1: nobody calls on_sucess; did you mean "on_success"?'),
        ("log(1)\nRun = function() end", '2: nobody calls Run; did you mean "run"?'),
        (
            "log(1) function before_fetch() end",
            "1: before_fetch is a hook of monitors: of a script spyweb calls run, on_state, on_success, on_error, "
            "on_finally, on_down, on_up",
        ),
    ],
)
def test_what_would_be_ignored_in_a_script_is_told(source: str, expected: str) -> None:
    assert of_script(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        BLOCK + "log(1)",
        "log(1) -- // jobs of today",
        "function on_errors() end on_errors()",
        "function run() end function on_error() end function on_finally() end function on_state() end",
        "local function on_sucess() end log(on_sucess)",
        "function before_fetch() end before_fetch()",
        "function tidy() end log(tidy())",
        "task({\nname = 'a',\nrun = function()\nend\n})",
    ],
)
def test_what_is_in_order_is_not(source: str) -> None:
    assert of_script(source) == []


def test_a_misspelt_hook_is_told_with_the_nearest_one() -> None:
    assert of_hooks(hooks="function before_fech(r) return r end", defer="\non_finsihed = function() end") == [
        'hooks.lua:1: no hook is called before_fech; did you mean "before_fetch"?',
        'defer.lua:2: no hook is called on_finsihed; did you mean "on_finished"?',
    ]
    assert (
        of_hooks(hooks="function after_extracted(i) return i end", defer="function on_success() after_extracted() end")
        == []
    )


def test_a_monitor_s_files_share_their_names() -> None:
    assert of_hooks(hooks="function tidy() end", defer="function on_success() tidy() end") == []
    assert of_hooks(hooks="function filter_item(i) return tdy(i) end") == ["hooks.lua:1: nobody defines tdy"]


def test_a_block_in_a_monitor_s_file_has_no_effect() -> None:
    assert "in config.toml" in of_hooks(hooks=BLOCK)[0]


def test_a_server_may_use_the_tables_of_its_handlers() -> None:
    source = b"function get:users() return usr end"
    assert [str(each) for each in doubts_of_server([("s.lua", source)], nothing)] == ["s.lua:1: nobody defines usr"]


def test_a_module_is_found_as_require_finds_it(tmp_path: Path) -> None:
    (tmp_path / "jobs/a").mkdir(parents=True)
    (tmp_path / "jobs/a/own.lua").write_text("own = 1")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/init.lua").write_text("lib = 1")
    modules = Sources(tmp_path)

    assert read_module(modules, "jobs/a", b"own") == b"own = 1"
    assert read_module(modules, "jobs/a", b"lib") == b"lib = 1"
    assert read_module(modules, "jobs/a", b"absent") is None
    assert read_module(modules, "jobs/a", b"../secret") is None


def test_files_that_have_not_changed_are_not_looked_at_again() -> None:
    linter, looked = Linter(), []

    def look(digest: bytes) -> tuple[Problem, ...]:
        def doubts(_: object) -> list[Problem]:
            looked.append(digest)
            return [Problem("a.lua", 1, None, digest.decode())]

        return linter.look("a.lua", digest, doubts, nothing)

    for digest in (b"1", b"1", b"2"):
        linter.begin()
        assert [problem.reason for problem in look(digest)] == [digest.decode()]
    assert looked == [b"1", b"2"]
    linter.begin()
    linter.begin()
    look(b"2")
    assert looked == [b"1", b"2", b"2"]


def test_what_depends_on_a_module_is_looked_for_each_time() -> None:
    linter, modules = Linter(), {b"lib": b""}
    file = ("a.lua", b"require('lib') tidy()")

    def look() -> int:
        linter.begin()
        return len(linter.look("a.lua", b"1", lambda read: doubts_of_hooks([file], read), modules.get))

    assert look() == 1
    modules[b"lib"] = b"tidy = 1"
    assert look() == 0


def test_a_deferred_look_keeps_nobody_waiting() -> None:
    linter = Linter(deferred=True)

    def look(source: bytes) -> tuple[Problem, ...]:
        linter.begin()
        return linter.look("a.lua", source, lambda read: doubts_of_hooks([("a.lua", source)], read), nothing)

    assert look(b"tdy()") == ()
    assert [str(each) for each in linter.finish()["a.lua"]] == ["a.lua:1: nobody defines tdy"]
    assert [str(each) for each in look(b"tdy()")] == ["a.lua:1: nobody defines tdy"]
    assert linter.finish() == {}
