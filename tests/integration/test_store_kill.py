"""The daemon is killed in the middle of its commits: whatever it acknowledged is there."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.store.marker import Marker
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.store_child import COUNTER, WRITERS

KILLS = 3  # and many in tests/stress/test_killed_daemon.py


def write_until_killed(path: Path, name: str, acknowledged: int) -> list[str]:
    """Give the lines of a child that is killed after it has told that many (and perhaps a few more)."""
    command = [sys.executable, "-m", "tests.fakes.store_child", "write", str(path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        told = [child.stdout.readline().strip() for _ in range(acknowledged)]
        child.kill()
        return [line for line in (*told, *child.stdout.read().splitlines()) if line]


@pytest.mark.slow
async def test_nothing_acknowledged_is_missing_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "spyweb.db"
    dice = random.Random(7)
    written: set[str] = set()
    counted = 0
    for life in range(KILLS):
        told = write_until_killed(path, f"life{life}", dice.randrange(1, 300))
        written |= {line for line in told if not line.startswith("=")}
        counted = max([counted, *(int(line[1:]) for line in told if line.startswith("="))])

        # Once as the command line reads it while no daemon runs, then as the next daemon does.
        for read_only in (True, False):
            marker = Marker(path.parent, path, RealClock())  # which raises no false alarm
            store = await open_store(path, clock=RealClock(), read_only=read_only, marker=marker)
            missing, counter = await look(store, written)
            await store.close()
            assert missing == []
            assert counted <= counter <= counted + WRITERS
        counted = counter


async def look(store: Store, written: set[str]) -> tuple[list[str], int]:
    missing = [key for key in written if await store.values.get(GLOBAL, key.encode()) != key.encode() * 20]
    counted = await store.values.get(GLOBAL, COUNTER) or b"0"
    assert isinstance(counted, bytes)
    return missing, int(counted)
