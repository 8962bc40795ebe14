"""Who gives way, tried in threads of this process: a thread's priority ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

import pytest

from spyweb.lua.worker import priority
from spyweb.lua.worker.priority import BROKEN, could_start_thread, start_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a thread's own priority is Linux's")

OVERTAKEN = """
import os, threading
from spyweb.lua.worker import priority

priority.let_others_ask()
before = os.getpriority(os.PRIO_PROCESS, 0)
threading.Thread(target=priority.make_give_way, args=(threading.get_ident(),)).start()
while os.getpriority(os.PRIO_PROCESS, 0) == before:
    pass
print(os.getpriority(os.PRIO_PROCESS, 0) - before)
"""

BEHIND = """
import os, threading
from spyweb.confined.parent import stand_behind_parent
from spyweb.lua.worker import priority

def say():
    print(os.getpriority(os.PRIO_PROCESS, 0) - before)

def give_way():
    priority.give_way()
    say()

before = os.getpriority(os.PRIO_PROCESS, 0)
stand_behind_parent(priority.BEHIND)
for work in (say, give_way):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


def niceness_in_a_thread(*steps: Callable[[], None]) -> int:
    seen: list[int] = []

    def work() -> None:
        for step in steps:
            step()
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    return seen[0]


def test_giving_way_twice_is_giving_way_once() -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    expected = min(here + priority.BEHIND + priority.LEVELS, 19)

    assert niceness_in_a_thread(priority.give_way) == expected
    assert niceness_in_a_thread(priority.give_way, priority.give_way) == expected
    assert os.getpriority(os.PRIO_PROCESS, 0) == here


def test_a_worker_and_the_threads_it_starts_stand_behind_the_daemon() -> None:
    done = subprocess.run([sys.executable, "-c", BEHIND], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.split() == [str(priority.BEHIND), str(priority.BEHIND + priority.LEVELS)]


def test_a_thread_that_never_stops_is_made_to_give_way() -> None:
    done = subprocess.run([sys.executable, "-c", OVERTAKEN], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.split() == [str(priority.LEVELS)]


IN_A_THREAD = """
import threading
from spyweb.lua.worker.priority import start_thread

def work():
    raise {error}

start_thread("doomed", work)
threading.Event().wait()  # as a worker's other threads do
"""
AT_ONCE = """
import atexit, sys
from spyweb.lua.worker.priority import die

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


@pytest.mark.parametrize(("before", "last"), [("pass", "ValueError: broken\n"), ("sys.stderr.close()", "")])
def test_nothing_is_tidied_up_on_the_way_out_also_where_nothing_can_be_shown(before: str, last: str) -> None:
    code, said, shown = ended(AT_ONCE.format(before=before))

    assert (code, said) == (BROKEN, "")
    assert shown.endswith(last)
    assert bool(shown) == bool(last)


def test_a_thread_works_under_its_name_as_long_as_the_system_has_one_left(monkeypatch: pytest.MonkeyPatch) -> None:
    names = SimpleQueue[str]()

    def work() -> None:
        names.put(threading.current_thread().name)

    start_thread("bulk in", work)
    assert names.get(timeout=10) == "bulk in"
    assert could_start_thread("one more", work)
    assert names.get(timeout=10) == "one more"

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not could_start_thread("one too many", work)
