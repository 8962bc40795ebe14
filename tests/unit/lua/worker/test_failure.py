"""The end of a worker in which something is broken, tried in processes that end by it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from spyweb.lua.worker.failure import BROKEN, could_start_thread, start_thread

IN_A_THREAD = """
import threading
from spyweb.lua.worker.failure import start_thread

def work():
    raise {error}

start_thread("doomed", work)
threading.Event().wait()  # as a worker's other threads do
"""
AT_ONCE = """
import atexit, sys
from spyweb.lua.worker.failure import die

atexit.register(print, "tidied up")
try:
    raise ValueError("broken")
except ValueError:
    {before}
    die()
"""


def ended(program: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("error", ["ValueError('broken')", "MemoryError", "SystemExit(0)", "KeyboardInterrupt"])
def test_a_thread_that_fails_ends_its_worker_and_shows_the_traceback(error: str) -> None:
    code, _, shown = ended(IN_A_THREAD.format(error=error))

    assert code == BROKEN
    assert shown.startswith("worker ")
    assert "in work" in shown
    assert error.partition("(")[0] in shown


def test_nothing_is_tidied_up_on_the_way_out() -> None:
    code, said, shown = ended(AT_ONCE.format(before="pass"))

    assert (code, said) == (BROKEN, "")
    assert "ValueError: broken" in shown


def test_a_worker_ends_as_well_where_nothing_can_be_shown() -> None:
    code, _, shown = ended(AT_ONCE.format(before="sys.stderr.close()"))

    assert (code, shown) == (BROKEN, "")


def test_a_thread_works_under_its_name() -> None:
    names: list[str] = []
    done = threading.Event()

    def work() -> None:
        names.append(threading.current_thread().name)
        done.set()

    start_thread("bulk in", work)

    assert done.wait(10)
    assert names == ["bulk in"]


def test_it_is_told_whether_the_system_has_a_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    assert could_start_thread("one more", done.set)
    assert done.wait(10)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not could_start_thread("one too many", done.set)
