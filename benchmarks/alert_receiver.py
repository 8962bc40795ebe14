"""Receive the messages of notification channels, at any address, and list them for bench_alerts.py."""

from __future__ import annotations

import json
import time

from aiohttp import web

from benchmarks.servers import serve

ARRIVED: list[dict[str, object]] = []


async def answer(request: web.Request) -> web.Response:
    if request.method == "GET":
        return web.json_response(ARRIVED)
    arrived_ms = time.time_ns() / 1e6
    body = await request.read()
    ARRIVED.append({"at_ms": arrived_ms, "message": json.loads(body) if body.startswith(b"{") else None})
    return web.json_response({})


if __name__ == "__main__":
    serve("/{channel}", answer)
