"""Serve awkward behaviours on loopback, one per path; or send whatever bytes the test gives."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import socket
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import brotli
from aiohttp import web
from aiohttp.typedefs import Handler

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZEROS = bytes(1 << 20)


@dataclass(slots=True)
class WebServer:
    """Holds where the server listens, and what it was asked."""

    port: int
    story: list[str] = field(default_factory=list)  # "GET /path"
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # a request has come

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


SERVER = web.AppKey("SERVER", WebServer)


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello", headers={"X-Answer": "42"})


async def echo(request: web.Request) -> web.Response:
    """Answer with what arrived, as JSON; the body in base64."""
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "headers": [[name.lower(), value] for name, value in request.headers.items()],
            "body": base64.b64encode(await request.read()).decode(),
        }
    )


async def form(request: web.Request) -> web.Response:
    """Answer with the parts of a multipart form, as this server's own parser sees them."""
    fields: list[list[str | None]] = []
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            content = value.file.read()
            fields.append([name, base64.b64encode(content).decode(), value.filename, value.content_type])
        else:
            text = value if isinstance(value, bytes | bytearray) else value.encode("utf-8")
            fields.append([name, base64.b64encode(text).decode(), None, None])
    return web.json_response(fields)


async def status(request: web.Request) -> web.Response:
    return web.Response(status=int(request.match_info["status"]), text="as you wish")


async def redirect(request: web.Request) -> web.Response:
    """Redirect: /redirect/3 leads to /redirect/2 and so on to /echo."""
    left = int(request.match_info["left"])
    return web.Response(status=302, headers={"Location": f"/redirect/{left - 1}" if left > 1 else "/echo"})


async def redirect_to(request: web.Request) -> web.Response:
    status = int(request.query.get("status", "302"))
    return web.Response(status=status, headers={"Location": request.query["url"]})


async def cookie(request: web.Request) -> web.Response:
    response = web.Response(text=request.headers.get("Cookie", "none"))
    response.set_cookie("crumb", "1")
    return response


async def large(request: web.Request) -> web.StreamResponse:
    """Send that many megabytes, announced or not: /large?mb=3&chunked=1."""
    megabytes = int(request.query["mb"])
    response = web.StreamResponse()
    if "chunked" not in request.query:
        response.content_length = megabytes << 20
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(0 if request.method == "HEAD" else megabytes):
            await response.write(ZEROS)
    return response


async def bomb(request: web.Request) -> web.Response:
    """Send 200 MB of zeros, compressed to 200 KB: /bomb/gzip."""
    encoding = request.match_info["encoding"]
    compressor: Any = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    compress, finish = compressor.compress, compressor.flush
    if encoding == "zstd":
        compressor = zstd.ZstdCompressor()
        compress, finish = compressor.compress, compressor.flush
    elif encoding == "br":
        compressor = brotli.Compressor(quality=1)
        compress, finish = compressor.process, compressor.finish
    body = b"".join(compress(ZEROS) for _ in range(200)) + finish()
    return web.Response(body=body, headers={"Content-Encoding": encoding})


async def compressed(request: web.Request) -> web.Response:
    """Send a body compressed as the client said that it accepts: /compressed/br."""
    encoding = request.match_info["encoding"]
    if encoding not in request.headers["Accept-Encoding"].split(", "):
        return web.Response(status=406)
    compress = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstd.compress}[encoding]
    return web.Response(body=compress(b"hello " * 1000), headers={"Content-Encoding": encoding})


async def mislabelled(request: web.Request) -> web.Response:
    return web.Response(
        body=b"<p>a page that nobody has compressed", headers={"Content-Encoding": request.match_info["encoding"]}
    )


async def drip(request: web.Request) -> web.StreamResponse:
    """Send one byte, and then one more every 50 ms, for ever."""
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b".")
            await asyncio.sleep(0.05)
    return response


async def silence(request: web.Request) -> web.Response:
    await asyncio.sleep(3600)
    return web.Response()


ROUTES = (
    ("/hello", hello),
    ("/echo", echo),
    ("/form", form),
    ("/status/{status}", status),
    ("/redirect/{left}", redirect),
    ("/redirect-to", redirect_to),
    ("/cookie", cookie),
    ("/large", large),
    ("/bomb/{encoding}", bomb),
    ("/compressed/{encoding}", compressed),
    ("/mislabelled/{encoding}", mislabelled),
    ("/drip", drip),
    ("/silence", silence),
)


@web.middleware
async def _tell(request: web.Request, handler: Handler) -> web.StreamResponse:
    request.app[SERVER].story.append(f"{request.method} {request.path}")
    request.app[SERVER].asked.set()
    return await handler(request)


@asynccontextmanager
async def open_web_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
    app = web.Application(client_max_size=1 << 30, middlewares=[_tell])
    app[SERVER] = server = WebServer(port=0)
    for path, handler in ROUTES:
        app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Gives the port.  At the end nobody waits for those who are still connected, as Python itself does from 3.12 on:
    clients keep their connections for a while."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def open_raw_server(*answer: bytes, hang: bool = False) -> AsyncIterator[WebServer]:
    """Serve a socket that reads a request's head, sends these bytes, and closes (or says nothing more)."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            for piece in answer:
                writer.write(piece)
                await writer.drain()
            if hang:
                await reader.read()
        writer.close()

    async with listening(serve) as port:
        yield WebServer(port=port, story=heads)


@asynccontextmanager
async def open_proxy() -> AsyncIterator[WebServer]:
    """Serve an HTTP proxy for plain requests and CONNECT tunnels, all of which lead to 127.0.0.1."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            heads.append(head)
            method, target, _ = head.split(" ", 2)
            port = int(target.removeprefix("http://").split("/")[0].rpartition(":")[2])
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(head.encode("latin-1"))
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, far_writer))
                group.create_task(pump(far_reader, writer))
        writer.close()

    async with listening(serve) as port:
        yield WebServer(port=port, story=heads)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


def unused_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def headers_of(echoed: bytes) -> dict[str, str]:
    """Return the headers that /echo saw."""
    return dict(json.loads(echoed)["headers"])
