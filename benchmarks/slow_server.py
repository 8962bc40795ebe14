"""Serve 1 KB after 20 ms at any address below /page: what the addresses of bench_branches.py answer."""

from __future__ import annotations

import asyncio

from aiohttp import web

from benchmarks.servers import serve

DELAY_S = 0.02
BODY = b"x" * 1024


async def answer(_request: web.Request) -> web.Response:
    await asyncio.sleep(DELAY_S)
    return web.Response(body=BODY)


if __name__ == "__main__":
    serve("/page/{number}", answer)
