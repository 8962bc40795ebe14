"""Serve a fake service on a daemon's socket, from a thread: for commands, which block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spyweb.service.daemon import DaemonService
from spyweb.web.serve import serve_socket

PATIENCE = 10.0  # seconds; only a broken server needs any


async def let_in() -> None:
    """Let the server accept a connection that a client made and has closed already."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextmanager
def serve_daemon_socket(service: DaemonService, data_dir: Path) -> Iterator[None]:
    opened, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with serve_socket(service, data_dir):
            opened.set()
            await stop.wait()
            await let_in()

    def live() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=live, name="a daemon's socket")
    thread.start()
    try:
        assert opened.wait(PATIENCE)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
