"""What is run, what the script gets of it, and what is refused before anything is run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.errors import CommandError, OpError
from spyweb.model import MIB
from spyweb.ops import commands
from spyweb.ops.world import Call
from spyweb.permissions.policy import ANYTHING, Audit, ExecRule, Grants, Policy
from tests.fakes.commands import RESULT, FakeCommands
from tests.fakes.ops import ask, make_call, make_world, table

EVERYTHING = Policy(granted=Grants(exec=None))


@dataclass
class World:
    call: Call
    runner: FakeCommands
    root: Path
    lines: list[tuple[str, bytes]] = field(default_factory=list)


@pytest.fixture
def world(tmp_path: Path) -> World:
    runner, lines = FakeCommands(), list[tuple[str, bytes]]()
    made = make_world(root=tmp_path, commands=runner)
    call = make_call(made, policy=EVERYTHING, log=lambda level, text: lines.append((level, text)))
    return World(call, runner, tmp_path, lines)


async def refused(call: Call, *arguments: object) -> str:
    with pytest.raises(OpError) as error:
        await ask(call, "exec.run", *arguments)
    return str(error.value)


async def test_a_text_goes_through_the_shell_in_the_folder_of_the_job(world: World) -> None:
    (result,) = (await ask(world.call, "exec.run", b"ls | wc"))[:1]
    (command,) = world.runner.commands
    assert os.path.basename(command.start.program) == b"bash"  # the tests need one
    assert command.start.arguments == [command.start.program, b"-c", b"ls | wc"]
    assert command.start.workdir == str(world.root / "jobs/prices").encode()
    assert (world.root / "jobs/prices").is_dir()
    assert (command.timeout_s, command.stdin, command.kept) == (300, b"", 10 * MIB)
    assert command.start.environment.keys() == {b"PATH", b"HOME", b"LANG"}
    assert result == {
        "stdout": b"out", "stderr": b"err", "exit_code": 0, "success": True, "took_ms": 7, "changed": True,
        "message": "exit code 0",
    }  # fmt: skip


async def test_the_shell_is_bash_where_there_is_one_unless_a_script_says_which(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(world.call, "exec.run", b"x", table(shell=b"sh", unless=b"y"))
    assert [command.start.program for command in world.runner.commands] == [b"/bin/sh"]
    assert '"bash" or "sh" expected' in await refused(world.call, b"x", table(shell=b"zsh"))
    monkeypatch.setattr(commands, "BASH", b"no-such-shell")
    await ask(world.call, "exec.run", b"x")
    assert world.runner.commands[-1].start.program == b"/bin/sh"


async def test_an_array_is_run_as_it_is(world: World) -> None:
    await ask(world.call, "exec.run", [b"sh", b"-c", b"$x; y", 3.0])
    (command,) = world.runner.commands
    assert command.start.program in (b"/usr/bin/sh", b"/bin/sh")
    assert command.start.arguments == [b"sh", b"-c", b"$x; y", b"3"]


async def test_options_say_how(world: World) -> None:
    options = table(workdir=b"/tmp", env=table(A=b"b", N=1), timeout=b"1m30s", stdin=b"in")
    await ask(world.call, "exec.run", b"x", options)
    await ask(world.call, "exec.run", b"x", table(workdir=b"sub/../other", timeout=2.5))
    first, second = world.runner.commands
    assert (first.start.workdir, first.timeout_s, first.stdin) == (b"/tmp", 90, b"in")
    assert (first.start.environment[b"A"], first.start.environment[b"N"]) == (b"b", b"1")
    assert (second.start.workdir, second.timeout_s) == (str(world.root / "jobs/prices/other").encode(), 2.5)


async def test_a_field_of_sloth_runner_that_says_where_is_left_aside(world: World) -> None:
    await ask(world.call, "cmd", table(command=b"make", delegate_to=b"web1"))
    await ask(world.call, "exec.run", b"make", table(delegate_to=b"web1"))
    assert [command.start.arguments[-1] for command in world.runner.commands] == [b"make", b"make"]


async def test_an_audit_has_the_variables_of_a_command(world: World) -> None:
    audit = Audit()
    call = structs.replace(world.call, audit=audit)
    await ask(call, "exec.run", [b"/bin/sh", b"x"], table(env=table(LANG=b"C")))
    assert 'exec = [{ command = ["/bin/sh"], env = ["LANG"] }]' in audit.block("x")


async def test_cmd_takes_the_command_among_its_options(world: World) -> None:
    await ask(world.call, "cmd", table(command=b"make", timeout=5))
    assert world.runner.commands[0].start.arguments[-1] == b"make"
    with pytest.raises(OpError, match=r"bad argument #1 to 'cmd' \(a command expected, .*got nil"):
        await ask(world.call, "cmd", table(timeout=5))


async def test_another_exit_code_is_a_result_and_raises_where_that_is_wanted(world: World) -> None:
    failed = replace(RESULT, exit_code=3, stderr=b"why\n")
    world.runner.results = [failed, failed]
    (result,) = (await ask(world.call, "exec.run", b"x"))[:1]
    assert isinstance(result, dict)
    assert (result["exit_code"], result["success"]) == (3, False)
    assert await refused(world.call, b"x", table(strict=True)) == "exec.run: exit code 3: why"


async def test_what_could_not_be_run_is_nil_and_a_text(world: World) -> None:
    world.runner.results = [CommandError("over its timeout")]
    assert await ask(world.call, "exec.run", b"x") == [None, "over its timeout"]
    assert await ask(world.call, "exec.run", [b"no-such-program"]) == [None, "no-such-program: not found"]
    assert await ask(world.call, "exec.run", [b"/etc/passwd"]) == [None, "/etc/passwd: not permitted to execute it"]


async def test_what_was_cut_is_said(world: World) -> None:
    world.runner.results = [replace(RESULT, stdout_dropped=5, lines_untold=2)]
    (result,) = (await ask(world.call, "exec.run", b"x"))[:1]
    assert isinstance(result, dict)
    assert result["message"] == "5 bytes of stdout were not kept"
    assert world.lines == [
        ("warn", b"exec.run: 5 bytes of stdout were not kept"),
        ("warn", b"exec.run: 2 lines came too fast for the log"),
    ]


async def test_lines_go_to_the_log_and_a_quarter_of_the_memory_is_for_output(world: World) -> None:
    await ask(
        make_call(world.call.world, policy=EVERYTHING, memory_limit=4 * MIB, log=world.call.log), "exec.run", b"x"
    )
    (command,) = world.runner.commands
    assert command.kept == MIB
    command.tell("stdout", b"one")
    command.tell("stderr", b"two")
    assert world.lines == [("info", b"exec.run: one"), ("info", b"exec.run, stderr: two")]


async def test_nothing_is_run_where_its_work_is_done(world: World) -> None:
    (world.root / "jobs/prices").mkdir(parents=True)
    (world.root / "jobs/prices/made").touch()
    (skipped,) = (await ask(world.call, "exec.run", b"x", table(creates=b"made")))[:1]
    assert isinstance(skipped, dict)
    assert (skipped["changed"], skipped["success"], skipped["message"]) == (False, True, "made is there")
    assert not world.runner.commands

    (done,) = (await ask(world.call, "exec.run", b"x", table(unless=b"test -e y")))[:1]
    assert isinstance(done, dict)
    assert (done["changed"], done["message"]) == (False, "`test -e y` succeeded")
    world.runner.results = [replace(RESULT, exit_code=1)]
    (ran,) = (await ask(world.call, "exec.run", b"x", table(unless=[b"sh", b"-c", b"false"], creates=b"not")))[:1]
    assert isinstance(ran, dict)
    assert ran["changed"] is True
    assert [command.start.arguments[-1] for command in world.runner.commands] == [b"test -e y", b"false", b"x"]


async def test_a_check_runs_nothing_not_even_what_tells_whether_it_is_done(world: World) -> None:
    for command, more, shown in (([b"sh", b"-c", b"x"], {}, "sh -c x"), (b"x", {"unless": b"touch y"}, "x")):
        (result,) = (await ask(world.call, "exec.run", command, table(check=True, **more)))[:1]
        assert isinstance(result, dict)
        assert (result["changed"], result["message"]) == (True, f"would run `{shown}`")
    assert not world.runner.commands
    assert not (world.root / "jobs").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([None], "a command expected, a string or an array of strings, got nil"),
        ([True], "a command expected, a string or an array of strings, got boolean"),
        ([{}], "an array of strings expected, the first of them the program"),
        ([{1: b"a", 3: b"b"}], "an array of strings expected, the first of them the program"),
        ([[b"a", True]], "string expected, got boolean"),
        ([b"a\0b"], "a command can't hold a zero byte"),
        ([b"a", {b"env": {b"A=": b"x"}}], "field 'env': 'A=' can't be a variable"),
        ([b"a", {b"timeout": b"soon"}], "field 'timeout': "),
        ([b"a", {b"timeout": 0}], "field 'timeout': a duration above 0 expected"),
        ([b"a", {b"strict": 1}], "field 'strict': boolean expected, got number"),
        ([b"a", {b"unless": {}}], "field 'unless': an array of strings expected"),
        ([b"a", {b"tiemout": 1}], "there is no option 'tiemout'"),
        ([b"a", 5], "table expected, got number"),
    ],
)
async def test_wrong_arguments_are_refused(world: World, arguments: list[object], reason: str) -> None:
    assert reason in await refused(world.call, *arguments)
    assert not world.runner.commands


async def test_what_the_policy_does_not_permit_is_not_run(world: World) -> None:
    def may(*commands: tuple[str, ...]) -> Call:
        return make_call(world.call.world, policy=Policy(granted=Grants(exec=tuple(map(ExecRule, commands)))))

    nothing = make_call(world.call.world, policy=ANYTHING)
    assert (await refused(nothing, b"true")).startswith("exec.run: 'prices' may not run shell text: add \"*\"")
    # one that may run nothing is not told which programs there are
    assert "may not run no-such-program" in await refused(nothing, [b"no-such-program"])

    path = next(each for each in ("/usr/bin/env", "/bin/env") if Path(each).exists())
    call = may((path, "-i"))
    await ask(call, "exec.run", [b"env", b"-i", b"x"])
    assert f"may not run {path}" in await refused(call, [b"env", b"x"])
    assert "may not run shell text" in await refused(call, b"env -i")
    assert "may not run shell text" in await refused(call, [b"env", b"-i"], table(unless=b"true"))
    assert "may not set LD_PRELOAD" in await refused(call, [b"env", b"-i"], table(env=table(LD_PRELOAD=b"x")))
    assert "may not run shell text" in await refused(call, b"env -i", table(check=True))
    assert len(world.runner.commands) == 1
