"""Make or restore a backup again and again, each time in a process that is killed one step later than the last.

python -m tests.fakes.backup_child make|restore PROJECT FILE RESULTS

Each process has a copy of PROJECT and FILE in RESULTS/NUMBER.  A step is what it does to files there, as far as Python
sees it.  The last process is not killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from spyweb.clock import RealClock
from spyweb.settings.load import load_settings
from spyweb.store.sqlite.backup import make_backup, restore

NEW = "new.zip"
STEPS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "sqlite3.connect")


def be_killed_at(number: int, place: Path) -> None:
    seen = 0

    def look(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in STEPS and (not isinstance(arguments[0], str) or str(place) in arguments[0]):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def ignore(count: int) -> None:
    pass


def work(what: str, place: Path, file: Path) -> None:
    settings, clock = load_settings(place, environ={}, flags={}), RealClock()
    if what == "make":
        make_backup(place / NEW, settings, None, clock, ignore, ignore)
    else:
        restore(file, settings, None, ignore, ignore, is_forced=True)


def main(what: str, project: Path, file: Path, results: Path) -> None:
    number, is_killed = 0, True
    while is_killed:
        number += 1
        place = results / str(number)
        shutil.copytree(project, place)
        shutil.copy(file, place)
        child = os.fork()
        if child == 0:
            be_killed_at(number, place)
            work(what, place, place / file.name)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status)
        assert is_killed or status == 0


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
