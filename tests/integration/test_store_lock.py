"""Two processes and one data directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spyweb.errors import LockHeld
from spyweb.store.lock import hold_lock


def test_the_second_is_told_who_the_first_is_and_gets_the_lock_when_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fakes.store_child", "hold", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "held\n"
        with pytest.raises(LockHeld, match=rf"in use by pid {child.pid} \("):
            hold_lock(tmp_path / "data")
        child.kill()

    with hold_lock(tmp_path / "data"):
        pass


def test_a_program_that_the_holder_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with hold_lock(tmp_path / "data"):
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=False)
    with program:
        assert program.stdout
        assert program.stdout.readline() == "up\n"  # it has been started as far as the system is concerned

        with hold_lock(tmp_path / "data"):
            assert program.poll() is None

        program.communicate("\n")
