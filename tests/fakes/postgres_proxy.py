"""A network between a client and PostgreSQL that is slow, stands still, or breaks, as a test says."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.fakes.postgres import PORT, short_folder, url_at

CHUNK = 1 << 16


class PostgresProxy:
    """What passes takes `delay_s` each way; `hear` is shown each request before it passes."""

    def __init__(self, server_url: str, folder: Path) -> None:
        self.url = url_at(folder)
        self.delay_s = 0.0
        self.hear: Callable[[bytes], None] = lambda request: None
        self.refuses = False  # new connections are closed at once
        self.connections = 0  # so far
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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
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
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
        hear: Callable[[bytes], None],
    ) -> None:
        """Pass on what comes until one side ends, each chunk when its time has come."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, chunk = await under_way.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await gate.wait()
                if not chunk:
                    writer.close()
                    return
                writer.write(chunk)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(deliver())
            is_open = True
            while is_open:
                chunk = b""
                with suppress(ConnectionError):
                    chunk = await reader.read(CHUNK)
                hear(chunk)
                under_way.put_nowait((loop.time() + self.delay_s, chunk))
                is_open = bool(chunk)


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
