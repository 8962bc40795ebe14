"""Keep pages of the dashboard open, half of which do not read, from a separate process:

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

MARK = re.compile(r'data-mark="([^"]*)"')
FEW_BYTES = 4_096  # that the kernel may keep for one that does not read


class OpenPage(asyncio.Protocol):
    """Uses one stream, and fetches the parts that an event names, as live.js does; the answers are only counted."""

    def __init__(self, url: str, mark: str, reads: bool) -> None:
        self._where = urlsplit(url)
        self._mark = mark
        self._reads = reads
        self.received = 0
        self.is_over = False
        self.news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(Transport, transport)
        self.transport.write(self._request("live"))
        if not self._reads:
            self.transport.pause_reading()

    def _request(self, what: str) -> bytes:
        head = f"GET {self._where.path}?{what}={self._mark} HTTP/1.1\r\nHost: {self._where.netloc}\r\n"
        return f"{head}Accept: text/html\r\n\r\n".encode()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if b"\ndata:" in data:
            self.news.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_over = True

    async def follow(self) -> None:
        reader, writer = await asyncio.open_connection(self._where.hostname, self._where.port)
        while True:
            await self.news.wait()
            self.news.clear()
            writer.write(self._request("since"))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"Content-Length: (\d+)", head)[1])  # type: ignore[index]
            body = await reader.readexactly(length)
            self.received += len(head) + length
            reached = re.search(rb"Spyweb-Mark: (\S+)", head)
            self._mark = reached[1].decode() if reached else MARK.search(body.decode())[1]  # type: ignore[index]


def mark_of(url: str) -> str:
    """Fetch the page, and return its mark."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = MARK.search(answer.read().decode())
    if found is None:
        raise RuntimeError(f"{url} is no live page")
    return found[1]


async def keep_open(url: str, pages: int, seconds: float) -> None:
    where = urlsplit(url)
    mark = mark_of(url)
    loop = asyncio.get_running_loop()
    opened: list[OpenPage] = []
    for number in range(pages):
        connection = socket.create_connection((where.hostname or "", where.port or 80))
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW_BYTES)
        connection.setblocking(False)
        _, page = await loop.create_connection(partial(OpenPage, url, mark, number % 2 == 0), sock=connection)
        opened.append(page)
    reading = opened[::2]
    tasks = [asyncio.create_task(page.follow()) for page in reading]
    print("open", flush=True)
    await asyncio.sleep(seconds)
    if any(page.is_over for page in reading):
        raise RuntimeError("a page that reads was hung up on")
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
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
