"""Use the store in a process until it is killed, and print what was acknowledged.

python -m tests.fakes.store_child write DATABASE NAME     a line for each acknowledged write
python -m tests.fakes.store_child watched DATABASE NAME   the same, of changes that are kept for somebody to handle
python -m tests.fakes.store_child hold DIRECTORY          a line once the lock is held
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

from spyweb.clock import RealClock
from spyweb.model import JobId
from spyweb.store.lock import hold_lock
from spyweb.store.marker import Marker
from spyweb.store.model.entries import GLOBAL, SCOPES, Put, Watch
from spyweb.store.sqlite.store import Store, open_store

WRITERS = 8
COUNTER = b"counter"


def tell(line: str) -> None:
    """Write a line in one system call, so that it is whole or not there at all."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


async def write(path: Path, name: str) -> None:
    store = await open_store(path, clock=RealClock(), marker=Marker(path.parent, path, RealClock()))
    async with asyncio.TaskGroup() as tasks:
        for writer in range(WRITERS):
            tasks.create_task(write_for_ever(store, f"{name}-{writer}"))


async def write_for_ever(store: Store, name: str) -> None:
    number = 0
    while True:
        number += 1
        key = f"{name}-{number}"
        await store.values.set(GLOBAL, key.encode(), key.encode() * 20)
        tell(key)
        tell(f"={await store.values.increment(GLOBAL, COUNTER, 0, 1)}")


async def write_watched(path: Path, name: str) -> None:
    """Write as a daemon does that is killed before it can hand anything out."""
    store = await open_store(path, clock=RealClock())
    store.events.watch([Watch(job=JobId("orders"), namespace=SCOPES, is_prefix=True)])
    for number in itertools.count(1):
        key = f"{name}-{number}"
        await store.values.transform("scope:orders", key.encode(), lambda _: Put(b"\xff" * 10))
        tell(key)


def hold(directory: Path) -> None:
    with hold_lock(directory):
        tell("held")
        signal.pause()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path, name]:
            asyncio.run(write(Path(path), name))
        case ["watched", path, name]:
            asyncio.run(write_watched(Path(path), name))
        case ["hold", directory]:
            hold(Path(directory))
