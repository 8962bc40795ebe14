"""Standard streams that were closed, and signals while a program is being imported, each in a process of its own.

tests/integration/test_cli_process.py sends signals to a daemon that serves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from spyweb.daemon import startup

STRUCK = """
import os, runpy, signal, sys

class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal({number})

sys.meta_path.insert(0, Strike())
sys.argv = ["spyweb", *{arguments!r}]
runpy.run_module({program!r}, run_name="__main__")
"""

NOWHERE = "/dev/null/project"  # no folder can be made there: a start of it ends at once

pytestmark = pytest.mark.slow


PROGRAMS = pytest.mark.parametrize(("program", "module"), [("spyweb", "typer"), ("spyweb.daemon", "structlog")])


def strike(
    program: str, module: str, number: int = signal.SIGINT, *, arguments: Sequence[str] = (), before: str = ""
) -> subprocess.CompletedProcess[str]:
    code = f"{before}\n{STRUCK.format(program=program, module=module, number=int(number), arguments=arguments)}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)


@PROGRAMS
def test_ctrl_c_ends_a_program_that_is_still_loading_without_a_word(program: str, module: str) -> None:
    ended = strike(program, module)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_who_was_started_to_live_on_after_ctrl_c_loads_on() -> None:
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ended = strike("spyweb", "typer", arguments=["--version"], before=ignored)
    assert ended.returncode == 0


@PROGRAMS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_process_of_a_container_is_ended_too(program: str, module: str, number: int) -> None:
    """Where the system would drop a signal that is left to its default, as it does not here."""
    ended = strike(program, module, number, before="import os; os.getpid = lambda: 1")
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")


@pytest.mark.parametrize(
    ("program", "module", "words"),
    [("spyweb", "typer", ["-C", NOWHERE, "start"]), ("spyweb.daemon", "structlog", ["--root", NOWHERE])],
)
def test_a_request_to_look_at_the_files_again_does_not_end_a_daemon_that_is_still_loading(
    program: str, module: str, words: Sequence[str]
) -> None:
    ended = strike(program, module, signal.SIGHUP, arguments=words)
    assert ended.returncode == 2, "as without it: there is no such folder"


def test_another_command_ends_with_its_terminal() -> None:
    assert strike("spyweb", "typer", signal.SIGHUP, arguments=["--version"]).returncode == -signal.SIGHUP


def test_one_that_came_between_the_command_and_the_daemon_is_heard_by_the_daemon() -> None:
    """Which the command has blocked before it became the daemon."""
    blocked = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP}); signal.raise_signal(1)"
    ended = strike("spyweb.daemon", "nothing", arguments=["--root", NOWHERE], before=blocked)
    assert ended.returncode == 2


def test_once_it_is_loaded_ctrl_c_is_python_s_again() -> None:
    code = "import spyweb.__main__, signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout == "True\n"


def test_a_closed_one_is_dev_null_also_for_the_programs_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = os.open("/dev/zero", os.O_RDONLY)
    os.close(closed)
    monkeypatch.setattr(startup, "STANDARD", (closed,))
    startup.open_standard_streams()
    try:
        assert os.path.samestat(os.fstat(closed), os.stat(os.devnull))
        assert os.get_inheritable(closed)
    finally:
        os.close(closed)


def test_one_that_is_open_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(startup, "STANDARD", (writing,))
    startup.open_standard_streams()
    os.write(writing, b"still a pipe")
    assert os.read(reading, 99) == b"still a pipe"
    os.close(reading)
    os.close(writing)


def test_what_python_made_none_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    startup.open_standard_streams()
    assert [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)] == [0, 1, 2]
