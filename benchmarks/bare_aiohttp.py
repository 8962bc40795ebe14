"""Serve one handler that does nothing, as the peer of bench_server: python -m benchmarks.bare_aiohttp"""

from __future__ import annotations

from aiohttp import web

from benchmarks.servers import serve


async def answer(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


if __name__ == "__main__":
    serve("/api/v/hello", answer)
