"""Commands run outside the daemon, and nothing of them is left: whatever they do, and whoever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.errors import CommandError
from spyweb.programs import running
from spyweb.programs.runner import CommandLimits, CommandResult, CommandRunner, find_program
from spyweb.programs.running import BURST_S, LINES_PER_S
from spyweb.programs.sweep import children_of, descendants_of
from tests.fakes.commands import Stubborn, command, shell
from tests.fakes.repository import ROOT

AT_ONCE_S = 1.0  # in which everything is gone after a kill
LIBC_SIGNALS = 3 << 31  # 32 and 33, which glibc has for itself and ignores in whatever it spawns


@pytest.fixture
async def runner() -> AsyncIterator[CommandRunner]:
    runner = CommandRunner(RealClock(), CommandLimits(at_once=4))
    yield runner
    await runner.close()


async def output(runner: CommandRunner, text: str, **more: bytes) -> bytes:
    result = await runner.run(shell(text, **more))
    assert result.exit_code == 0, result.stderr
    return result.stdout


async def test_a_signal_is_an_exit_code_as_shells_count_it(runner: CommandRunner) -> None:
    assert (await runner.run(shell("kill -9 $$"))).exit_code == 128 + 9


async def test_a_command_gets_nothing_of_the_daemon(runner: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_API_KEY", "secret")
    environment = dict(line.split(b"=", 1) for line in (await output(runner, "env")).splitlines())
    assert environment.keys() <= {b"PATH", b"HOME", b"LANG", b"TMPDIR", b"PWD", b"SHLVL", b"_", b"OLDPWD"}
    assert (await output(runner, "ls /proc/self/fd")).split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder it reads
    assert (await output(runner, "umask; cat; ulimit -c")).split() == [b"0022", b"0"]
    blocked = (await output(runner, "grep -E 'Sig(Blk|Ign)' /proc/self/status")).split()
    assert [int(mask, 16) & ~LIBC_SIGNALS for mask in blocked[1::2]] == [0, 0]


async def test_a_command_ignores_no_signal_that_whoever_started_the_daemon_ignored(runner: CommandRunner) -> None:
    usual = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        ignored = (await output(runner, "grep SigIgn /proc/self/status")).split()[1]
    finally:
        signal.signal(signal.SIGQUIT, usual)
    assert int(ignored, 16) & ~LIBC_SIGNALS == 0


async def test_the_folder_for_temporary_files_is_its_own_and_goes_with_it(runner: CommandRunner) -> None:
    folder = Path((await output(runner, 'mkdir "$TMPDIR/x"; touch "$TMPDIR/x/y"; echo "$TMPDIR"')).decode().strip())
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()
    assert (await output(runner, 'stat -c %a "$TMPDIR"')).strip() == b"700"


async def test_where_there_is_no_place_for_temporary_files_it_is_told(
    runner: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no such"))
    with pytest.raises(CommandError, match=r"^its folder for temporary files, .*: No such file or directory$"):
        await runner.run(shell("true"))


async def test_stdin_is_written_as_it_is_read_and_nobody_need_read_it(runner: CommandRunner) -> None:
    text = os.urandom(700_000)
    assert await output(runner, "sleep 0.1; cat", stdin=text) == text
    assert await output(runner, "exec <&-; echo enough", stdin=text) == b"enough\n"
    assert await output(runner, "cat") == b""


async def test_long_arguments_arrive_and_too_long_ones_are_refused(runner: CommandRunner) -> None:
    words = [b"x" * 100_000] * 15
    result = await runner.run(command([b"/bin/sh", b"-c", b'echo "$*"', b"sh", *words], kept=2_000_000))
    assert result.stdout.split() == words
    with pytest.raises(CommandError, match="its arguments are too long"):
        await runner.run(command([b"/bin/sh", b"-c", b"true", b"x" * 1_000_000]))
    with pytest.raises(CommandError, match="its arguments and environment has"):
        await runner.run(command([b"/bin/sh", b"-c", b"true", *[b"x" * 100_000] * 90]))


async def test_a_flood_is_read_counted_and_cut(runner: CommandRunner) -> None:
    lines: list[bytes] = []
    result = await runner.run(shell("yes | head -c 30000000", kept=1_000, tell=lambda _, line: lines.append(line)))
    assert result.stdout == b"y\n" * 500
    assert result.stdout_dropped == 30_000_000 - 1_000
    assert len(lines) + result.lines_untold == 15_000_000
    assert len(lines) < LINES_PER_S * (BURST_S + 20)


async def test_the_loop_is_not_held_up_by_floods(runner: CommandRunner) -> None:
    async def wake(count: int) -> int:
        for _ in range(count):
            await asyncio.sleep(0)
        return count

    floods = [asyncio.ensure_future(runner.run(shell("yes", timeout_s=0.5))) for _ in range(4)]
    assert await wake(200) == 200
    for ended in await asyncio.gather(*floods, return_exceptions=True):
        assert str(ended) == "over its timeout"


async def test_what_can_not_be_executed_is_told(runner: CommandRunner, tmp_path: Path) -> None:
    def program(name: str, text: str) -> bytes:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755)
        return os.fsencode(path)

    async def refusal(name: bytes, workdir: bytes = b"/") -> str:
        asked = command([name], workdir=workdir)
        with pytest.raises(CommandError) as caught:
            await runner.run(asked)
        return str(caught.value)

    lost = program("lost", "#!/no/such/interpreter\n")
    assert await refusal(lost) == f"{lost.decode()}: the interpreter in its first line was not found"
    plain = program("plain", "echo hello\n")
    assert (await refusal(plain)).endswith("it is neither a program nor a script with an interpreter in its first line")
    assert await refusal(b"/bin/sh", b"/no/such") == "its workdir /no/such: No such file or directory"


async def test_a_program_that_was_replaced_since_it_was_looked_at_is_not_executed(
    runner: CommandRunner, tmp_path: Path
) -> None:
    path = tmp_path / "do"
    path.write_text("#!/bin/sh\necho permitted\n")
    path.chmod(0o755)
    name = os.fsencode(path)
    _, version = find_program(name, b"/")
    assert (await runner.run(command([name], version=version))).stdout == b"permitted\n"
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho something else\n")
    other.chmod(0o755)
    other.rename(path)
    with pytest.raises(CommandError) as caught:
        await runner.run(command([name], version=version))
    assert str(caught.value) == f"{path} was replaced after it had been permitted"


async def test_what_a_command_leaves_behind_is_ended_with_it(runner: CommandRunner) -> None:
    """What heeds SIGTERM at once, what ignores it five seconds later."""

    async def takes_s(text: str) -> float:
        stubborn, began = Stubborn(), asyncio.get_running_loop().time()
        assert await output(runner, text.format(stubborn.seconds)) == b"done\n"
        assert not stubborn.left
        return asyncio.get_running_loop().time() - began

    polite = takes_s("(setsid sleep {} >/dev/null &); echo done")
    deaf = takes_s("(trap '' TERM; setsid sleep {} &); echo done")
    over_its_timeout = all_of_a_stubborn_one_is_gone(runner)
    took_polite, took_deaf, _ = await asyncio.gather(polite, deaf, over_its_timeout)
    assert took_polite < 5 <= took_deaf


async def all_of_a_stubborn_one_is_gone(runner: CommandRunner) -> None:
    stubborn = Stubborn()
    with pytest.raises(CommandError, match=r"^over its timeout$"):
        await runner.run(shell(stubborn.text, timeout_s=0.5))
    assert not stubborn.left


async def test_a_command_may_clean_up_when_it_is_told_to_end(runner: CommandRunner, tmp_path: Path) -> None:
    ready, mark = tmp_path / "ready", tmp_path / "mark"
    text = f"trap 'echo ending; touch {mark}; exit' TERM; touch {ready}; while :; do sleep 0.1; done"
    running = asyncio.ensure_future(runner.run(shell(text)))
    while not ready.exists():  # noqa: ASYNC110 - files tell nobody
        await asyncio.sleep(0.01)
    (command,) = runner._running
    command.time_out()
    with pytest.raises(CommandError, match=r"^over its timeout$"):
        await running
    assert mark.exists()


async def test_those_over_the_number_at_once_wait_in_line(runner: CommandRunner, tmp_path: Path) -> None:
    text = f"touch {tmp_path}/$$; ls {tmp_path} | wc -l; sleep 0.1; rm {tmp_path}/$$"
    counts = [int(seen) for seen in await asyncio.gather(*(output(runner, text) for _ in range(16)))]
    assert max(counts) <= 4


async def test_one_that_waits_in_line_need_never_begin(runner: CommandRunner, tmp_path: Path) -> None:
    sleepers = [asyncio.ensure_future(runner.run(shell("sleep 60"))) for _ in range(4)]
    waiting = asyncio.ensure_future(runner.run(shell(f"touch {tmp_path}/mark")))
    await asyncio.sleep(0.1)
    waiting.cancel()
    for sleeper in sleepers:
        sleeper.cancel()
    await asyncio.wait([waiting, *sleepers])
    assert await output(runner, "echo free") == b"free\n"
    assert not (tmp_path / "mark").exists()


def start_daemon(text: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that runs a command as the daemon does; return it and the pid of what forks its nannies."""
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.commands", text], cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert daemon.stdout is not None
    return daemon, int(daemon.stdout.readline())


@pytest.mark.parametrize("who", ["daemon", "spawner", "both", "nanny", "spawner and nanny"])
async def test_nothing_is_left_a_second_after_a_kill(who: str) -> None:
    stubborn = Stubborn()
    daemon, spawner = start_daemon(stubborn.text)
    try:
        await stubborn.wait_until_left(stubborn.processes, within_s=10)
        nannies = [pid for pid in children_of(spawner) if set(descendants_of([pid])) & set(stubborn.left)]
        assert len(nannies) == 1
        those = {"daemon": [daemon.pid], "spawner": [spawner], "both": [daemon.pid, spawner], "nanny": nannies}
        for pid in those.get(who) or [spawner, *nannies]:
            os.kill(pid, signal.SIGKILL)
        await stubborn.wait_until_left(0, within_s=AT_ONCE_S)
        await _wait_until_gone(nannies[0])
    finally:
        daemon.kill()
        daemon.communicate()
        for pid in stubborn.left:
            os.kill(pid, signal.SIGKILL)


async def _wait_until_gone(pid: int) -> None:
    async with asyncio.timeout(AT_ONCE_S):
        while Path(f"/proc/{pid}/exe").exists():  # noqa: ASYNC110 - nor does a nanny of somebody else
            await asyncio.sleep(0.01)


async def test_after_the_death_of_what_forks_nannies_it_is_started_again(runner: CommandRunner) -> None:
    begun = asyncio.Event()
    task = asyncio.ensure_future(runner.run(shell("echo; sleep 60", tell=lambda *_: begun.set())))
    await begun.wait()
    assert runner.spawner.pid is not None
    os.kill(runner.spawner.pid, signal.SIGKILL)
    with pytest.raises(CommandError, match=r"^ended: the process that starts commands died$"):
        await task
    assert await output(runner, "echo again") == b"again\n"


async def test_what_starts_commands_is_replaced_where_it_was_stopped(runner: CommandRunner) -> None:
    await output(runner, "true")
    stopped = runner.spawner.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    assert await asyncio.wait_for(output(runner, "echo again"), 10) == b"again\n"
    assert runner.spawner.pid != stopped
    await _wait_until_gone(stopped)


async def test_a_command_whose_nanny_was_stopped_ends_with_its_time(
    runner: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE_S", 0.1)
    monkeypatch.setattr(running, "LATE_S", 0.1)
    stubborn = Stubborn()
    task = asyncio.ensure_future(runner.run(shell(f"kill -STOP $PPID; {stubborn.text}", timeout_s=1)))
    await stubborn.wait_until_left(stubborn.processes, within_s=10)
    with pytest.raises(CommandError, match=r"^over its timeout$"):
        await task
    await stubborn.wait_until_left(0, within_s=5)
    assert await output(runner, "echo next") == b"next\n"


async def test_the_time_of_a_command_counts_while_others_are_before_it() -> None:
    runner = CommandRunner(RealClock(), CommandLimits(at_once=1))
    sleeper = asyncio.ensure_future(runner.run(shell("sleep 60")))
    await asyncio.sleep(0)
    with pytest.raises(CommandError, match=r"^over its timeout$"):
        await runner.run(shell("echo late", timeout_s=0.2))
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert await output(runner, "echo free") == b"free\n"
    await runner.close()


async def test_the_end_of_the_daemon_ends_commands_in_order(tmp_path: Path) -> None:
    runner = CommandRunner(RealClock(), CommandLimits())
    mark = tmp_path / "mark"
    text = f"trap 'touch {mark}; exit' TERM; echo begun; while :; do sleep 0.1; done"
    begun = asyncio.Event()
    task = asyncio.ensure_future(runner.run(shell(text, tell=lambda *_: begun.set())))
    await begun.wait()
    await runner.close()
    assert mark.exists()
    with pytest.raises(CommandError, match=r"^ended with the daemon$"):
        await task
    with pytest.raises(CommandError, match=r"^the daemon is stopping$"):
        await runner.run(shell("true"))


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (CommandLimits(memory=256 << 20), "head -c 600000000 /dev/zero | tail -c 500000000 | wc -c"),
        (CommandLimits(cpu_s=1), "while :; do :; done"),
    ],
)
async def test_memory_and_cpu_are_bounded(limits: CommandLimits, text: str) -> None:
    runner = CommandRunner(RealClock(), limits)
    try:
        result = await runner.run(shell(text))
        assert isinstance(result, CommandResult)
        assert result.exit_code != 0 or b"memory" in result.stderr
        assert (await runner.run(shell("echo fine"))).stdout == b"fine\n"
    finally:
        await runner.close()


async def test_no_descriptor_is_left_of_commands(runner: CommandRunner) -> None:
    await output(runner, "true")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await output(runner, "cat", stdin=b"x")
        with pytest.raises(CommandError):
            await runner.run(shell("true", workdir=b"/no/such"))
        with pytest.raises(CommandError):
            await runner.run(shell("sleep 9", timeout_s=0.01))
    assert sorted(os.listdir("/proc/self/fd")) == before
