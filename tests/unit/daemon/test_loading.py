"""Ctrl-C while a program is being imported, seen in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

STRUCK = """
import os, runpy, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["spyweb", *{arguments!r}]
runpy.run_module({program!r}, run_name="__main__")
"""

pytestmark = pytest.mark.slow


def strike(program: str, module: str, arguments: list[str], before: str = "") -> subprocess.CompletedProcess[str]:
    code = before + STRUCK.format(program=program, module=module, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(("program", "module"), [("spyweb", "typer"), ("spyweb.daemon", "structlog")])
def test_ctrl_c_ends_a_program_that_is_still_loading_without_a_word(program: str, module: str) -> None:
    ended = strike(program, module, [])
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_who_was_started_to_live_on_after_ctrl_c_loads_on() -> None:
    ended = strike("spyweb", "typer", ["--version"], "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n")
    assert ended.returncode == 0


def test_once_it_is_loaded_ctrl_c_is_python_s_again() -> None:
    code = "import spyweb.__main__, signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout == "True\n"
