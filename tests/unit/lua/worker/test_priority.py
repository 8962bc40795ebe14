"""Who gives way, tried in threads of this process: a thread's priority ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Thread

import pytest

from spyweb.lua.worker import priority

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
