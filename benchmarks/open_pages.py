"""Keep pages of the dashboard open, half of which do not read, from a process of its own:

    python -m benchmarks.open_pages URL PAGES SECONDS

Prints `open` once all are, and at the end the bytes a second that one which reads was sent, in the mean.
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import urllib.request
from asyncio import Transport
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import uvloop

LIVE = re.compile(r'data-live="([^"]*)"')
FEW_BYTES = 4_096  # that the kernel may keep for one that does not read


class OpenPage(asyncio.Protocol):
    """Uses one stream; what it is sent is only counted."""

    def __init__(self, request: bytes, reads: bool) -> None:
        self._request = request
        self._reads = reads
        self.received = 0
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(Transport, transport)
        self.transport.write(self._request)
        if not self._reads:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_over = True


def stream_of(url: str) -> str:
    """Fetch the page, and return the address of its stream."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = LIVE.search(answer.read().decode())
    if found is None:
        raise RuntimeError(f"{url} is no live page")
    return found[1].replace("&amp;", "&")


async def keep_open(url: str, pages: int, seconds: float) -> None:
    where = urlsplit(url)
    request = f"GET {stream_of(url)} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    opened: list[OpenPage] = []
    for number in range(pages):
        connection = socket.create_connection((where.hostname or "", where.port or 80))
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW_BYTES)
        connection.setblocking(False)
        _, page = await loop.create_connection(partial(OpenPage, request, number % 2 == 0), sock=connection)
        opened.append(page)
    print("open", flush=True)
    await asyncio.sleep(seconds)
    reading = opened[::2]
    if any(page.is_over for page in reading):
        raise RuntimeError("a page that reads was hung up on")
    print(sum(page.received for page in reading) / len(reading) / seconds)
    for page in opened:
        page.transport.abort()


@contextmanager
def opened(url: str, pages: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Open so many pages of this address for so long; yield the process once they are."""
    command = [sys.executable, "-m", "benchmarks.open_pages", url, str(pages), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        if process.stdout.readline().strip() != "open":
            raise RuntimeError("the pages could not be opened")
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    uvloop.run(keep_open(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
