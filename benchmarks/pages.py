"""A small web site in a process of its own: a page of thirty items under any path.

python -m benchmarks.pages prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop
from aiohttp import web

ITEMS = 30
ITEM = """
<article class="item" id="item-{0}">
  <h2><a class="title" href="/articles/{0}">Article number {0} about something that matters</a></h2>
  <p class="summary">A paragraph of text that says a little more about article {0}, as such pages do.</p>
  <span class="price">{0}.99</span> <time datetime="2026-11-{0:02d}">a day in November</time>
</article>
"""
PAGE = f"""<!doctype html><html><head><meta charset="utf-8"><title>Articles</title></head><body>
<nav><a href="/">home</a> <a href="/about">about</a></nav>
<main>{"".join(ITEM.format(number) for number in range(1, ITEMS + 1))}</main></body></html>
""".encode()


async def answer(_request: web.Request) -> web.Response:
    return web.Response(body=PAGE, content_type="text/html", charset="utf-8")


async def serve() -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


@contextmanager
def site() -> Iterator[str]:
    """Its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.pages"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    uvloop.run(serve())
