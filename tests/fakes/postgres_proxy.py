"""A network between a client and PostgreSQL that stands still, or breaks, as a test says."""

from __future__ import annotations

import asyncio
import shutil
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.fakes.postgres import PORT, short_folder, url_at

CHUNK = 1 << 16


class PostgresProxy:
    """`hear` is shown each request before it passes."""

    def __init__(self, server_url: str, folder: Path) -> None:
        self.url = url_at(folder)
        self.hear: Callable[[bytes], None] = lambda request: None
        self.refuses = False  # new connections are closed at once
        self._socket = Path(parse_qs(urlsplit(server_url).query)["host"][0]) / f".s.PGSQL.{PORT}"
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self.release()

    def hold_requests(self) -> None:
        """Let nothing more reach the server; it goes on when released, or is lost by a cut."""
        self._requests.clear()

    def hold_answers(self) -> None:
        """Let the server do all that is asked, and nobody hear of it."""
        self._answers.clear()

    def release(self) -> None:
        self._requests.set()
        self._answers.set()

    def cut(self) -> None:
        """Break every connection, with what is under way in it."""
        for task in list(self._open):
            task.cancel()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(asyncio.CancelledError):  # by `cut`
                await asyncio.gather(
                    self._pass(reader, to_server, self._requests, lambda request: self.hear(request)),
                    self._pass(from_server, writer, self._answers, lambda answer: None),
                )
        finally:
            self._open.discard(task)
            writer.transport.abort()
            to_server.transport.abort()

    async def _pass(
        self, reader: StreamReader, writer: StreamWriter, gate: asyncio.Event, hear: Callable[[bytes], None]
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK):
                hear(chunk)
                await gate.wait()
                writer.write(chunk)
        writer.close()


@asynccontextmanager
async def a_proxy(server_url: str) -> AsyncIterator[PostgresProxy]:
    folder = short_folder()
    proxy = PostgresProxy(server_url, folder)
    server = await asyncio.start_unix_server(proxy.serve, folder / f".s.PGSQL.{PORT}")
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await asyncio.sleep(0)
        shutil.rmtree(folder, ignore_errors=True)
