"""Request a URL as fast as it answers, over so many connections, from a separate process:

    python -m benchmarks.load URL CONNECTIONS SECONDS

Prints the answers a second, the p99 of what one took in milliseconds, and how many were not 200.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from asyncio import Transport
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import uvloop

from benchmarks.table import percentile

END_OF_HEAD, LENGTH = b"\r\n\r\n", b"content-length:"


@dataclass(slots=True)
class Tally:
    until: float
    waits: list[float] = field(default_factory=list)
    others: int = 0


class Asker(asyncio.Protocol):
    """Uses one connection: the next request leaves when the answer to the one before is whole."""

    def __init__(self, request: bytes, tally: Tally) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._tally = tally
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)  # uvloop's is none of asyncio's
        self._ask()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, end, body = self._heard.partition(END_OF_HEAD)
        if not end or len(body) < _length(head):
            return
        now = time.perf_counter()
        self._tally.waits.append(now - self._asked)
        self._tally.others += b" 200 " not in head[:16]
        self._heard = b""
        if now < self._tally.until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self.over.set_result(None)


def _length(head: bytes) -> int:
    at = head.lower().index(LENGTH) + len(LENGTH)
    return int(head[at:].split(b"\r\n", 1)[0])


async def ask(url: str, connections: int, seconds: float) -> None:
    where = urlsplit(url)
    request = f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    began = time.perf_counter()
    tally = Tally(until=began + seconds)
    loop, host, port = asyncio.get_running_loop(), where.hostname or "", where.port or 80
    askers = [(await loop.create_connection(lambda: Asker(request, tally), host, port))[1] for _ in range(connections)]
    await asyncio.gather(*(asker.over for asker in askers))
    took = time.perf_counter() - began
    print(len(tally.waits) / took, percentile(tally.waits, 0.99) * 1e3, tally.others)


@dataclass(frozen=True, slots=True)
class Load:
    per_second: float
    p99_ms: float
    others: int  # answers that were not 200


def measure(url: str, connections: int, seconds: float) -> Load:
    command = [sys.executable, "-m", "benchmarks.load", url, str(connections), str(seconds)]
    rate, p99_ms, others = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return Load(float(rate), float(p99_ms), int(others))


if __name__ == "__main__":
    uvloop.run(ask(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
