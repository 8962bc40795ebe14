"""Run a web server in a separate process, which prints its address and serves until its standard input ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler


@contextmanager
def started(module: str) -> Iterator[str]:
    """Start the server that `python -m module` is, and yield its address."""
    process = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)


def serve(path: str, answer: Handler) -> None:
    """Serve this answer: the main function of such a module."""
    uvloop.run(_serve(path, answer))


async def _serve(path: str, answer: Handler) -> None:
    app = web.Application()
    app.router.add_route("*", path, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()
