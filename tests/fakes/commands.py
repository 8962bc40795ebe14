"""Commands for tests, and a look at what is left of them.

`python -m tests.fakes.commands TEXT` runs one as a daemon would, until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spyweb.clock import RealClock
from spyweb.errors import CommandError
from spyweb.programs.runner import SHELL, CommandLimits, CommandResult, CommandRunner, base_environment, find_program
from spyweb.programs.running import Command
from spyweb.programs.wire import FileVersion, StartCommand

_numbers = itertools.count(1)


def unheard(_stream: str, _line: bytes) -> None:
    """Drop a line."""


def shell(text: str, **options: Any) -> Command:
    return command([SHELL, b"-c", text.encode()], **options)


def command(
    arguments: list[bytes],
    *,
    timeout_s: float = 20,
    stdin: bytes = b"",
    kept: int = 1 << 20,
    workdir: bytes = b"/",
    tell: Callable[[str, bytes], None] = unheard,
    version: FileVersion | None = None,
) -> Command:
    program, found = find_program(arguments[0], workdir)
    start = StartCommand(
        program=program,
        version=version or found,
        arguments=arguments,
        environment=base_environment(),
        workdir=workdir,
    )
    return Command(
        start=start,
        timeout_s=timeout_s,
        stdin=stdin,
        kept=kept,
        tell=tell,
    )


RESULT = CommandResult(
    exit_code=0, stdout=b"out", stderr=b"err", stdout_dropped=0, stderr_dropped=0, lines_untold=0, took_ms=7
)


class FakeCommands(CommandRunner):
    """Notes commands instead of running them."""

    def __init__(self) -> None:
        super().__init__(RealClock(), CommandLimits())
        self.commands: list[Command] = []
        self.results: list[CommandResult | CommandError] = []  # of the next ones; then RESULT

    async def run(self, command: Command) -> CommandResult:
        self.commands.append(command)
        result = self.results.pop(0) if self.results else RESULT
        if isinstance(result, CommandError):
            raise result
        return result


class Stubborn:
    """A command that forks twice, detaches itself and ignores SIGTERM: processes that sleep, told by their time."""

    def __init__(self) -> None:
        self.seconds = str(100_000_000 + os.getpid() * 1_000 + next(_numbers))
        inner = f"trap '' TERM; setsid sleep {self.seconds} & setsid sleep {self.seconds} & sleep {self.seconds}"
        self.text = f"trap '' TERM; (setsid sh -c \"{inner}\" >/dev/null 2>&1 &); sleep {self.seconds}"
        self.processes = 4

    @property
    def left(self) -> list[int]:
        """Return the pids of those that are alive."""
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if self._is(path)]

    def _is(self, path: Path) -> bool:
        try:
            return path.read_bytes().split(b"\0")[:2] == [b"sleep", self.seconds.encode()]
        except OSError:
            return False

    async def wait_until_left(self, count: int, within_s: float) -> None:
        """Wait until so many are alive.  Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while len(self.left) != count:  # noqa: ASYNC110 - processes of others tell nobody
                await asyncio.sleep(0.01)


async def _run(text: str) -> None:
    runner = CommandRunner(RealClock(), CommandLimits())
    running = asyncio.ensure_future(runner.run(shell(text, timeout_s=1_000)))
    await asyncio.sleep(0.05)
    os.write(1, b"%d\n" % (runner.spawner.pid or 0))
    await running


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
