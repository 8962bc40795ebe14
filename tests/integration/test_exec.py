"""`exec.run` and `cmd` from Lua: a real worker, real commands, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.lua.wire import Why
from spyweb.model import Failure, Outcome
from spyweb.permissions.policy import Grants, Policy
from tests.fakes.commands import Stubborn
from tests.fakes.scripts import Scripts, open_scripts
from tests.fakes.task_rows import story

AFTER_END_S = 6.0


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path, workers=1) as scripts:
        scripts.policy = Policy(granted=Grants(exec=None))
        yield scripts


async def test_a_script_gets_what_a_command_wrote(scripts: Scripts) -> None:
    result = await scripts.succeed(
        """
        local result = assert(exec.run("echo out; echo err >&2; exit 3"))
        assert(result.stdout == "out\\n" and result.stderr == "err\\n" and result.exit_code == 3)
        assert(result.success == false and math.type(result.took_ms) == "integer")
        assert(cmd{command = {"cat"}, stdin = "in"}.stdout == "in")
        assert(exec.run("pwd").stdout:match("/jobs/a\\n$"))
        local none, why = exec.run({"no-such-program"})
        assert(none == nil and why == "no-such-program: not found")
        none, why = exec.run("sleep 60", {timeout = "100ms"})
        assert(none == nil and why == "over its timeout")
        local ok, problem = pcall(exec.run, "exit 4", {strict = true})
        return problem
        """
    )
    assert result == b"jobs/a.lua:11: exec.run: exit code 4: "
    assert scripts.texts("info")[:2] == ["exec.run: out", "exec.run, stderr: err"]


async def test_without_a_permission_nothing_is_run(scripts: Scripts, tmp_path: Path) -> None:
    scripts.policy = Policy()
    ending = await scripts.run(f"exec.run('touch {tmp_path}/mark')")
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.ERROR)
    assert ending.reason.startswith("jobs/a.lua:1: exec.run: 'a' may not run shell text: add \"*\" to ")
    assert not (tmp_path / "mark").exists()


async def test_nothing_is_left_of_a_command_six_seconds_after_its_run_was_cancelled(scripts: Scripts) -> None:
    """Five of them are for what gets SIGTERM."""
    stubborn = Stubborn()
    source = f"parallel(function() exec.run([==[{stubborn.text}]==]) end, function() sleep(60000) end)"
    run = await scripts.begin("a")
    ending = asyncio.ensure_future(scripts.live_through(run, source, "a"))
    await stubborn.wait_until_left(stubborn.processes, within_s=5)
    scripts.cancel(run, Why.CANCELLED)
    assert (await ending).outcome is Outcome.FAILED
    await stubborn.wait_until_left(0, within_s=AFTER_END_S)


async def test_a_task_may_be_a_command(scripts: Scripts) -> None:
    source = """
        task{name = "text", command = "echo hello > made"}
        task{name = "array", command = {"cat", "made"}, depends_on = "text"}
        task{name = "fails", command = "echo why >&2; exit 3", depends_on = "array"}
    """
    run = await scripts.begin("a")
    await scripts.live_through(run, source, "a")
    rows = (await scripts.store.tasks.of_runs([run]))[run]
    assert story(rows) == ["text success", "array success", "fails failed"]
    assert rows[-1].message == "exit code 3: why\n"
    assert "exec.run: hello" in scripts.texts("info")
