"""A web server in a process of its own with one handler that does nothing: python -m benchmarks.bare_aiohttp

Prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import web


async def answer(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def serve() -> None:
    app = web.Application()
    app.router.add_get("/api/v/hello", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(serve())
