"""Serve a fake service as a daemon does, on its socket or by TCP, from a thread: for commands, which block."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

from spyweb.clock import RealClock
from spyweb.settings.sections import ServerSettings
from spyweb.web.api.services import Services
from spyweb.web.app import Site
from spyweb.web.connections import ConnectionLimiter, tcp_limits
from spyweb.web.serve import Listening, TcpListeners, serve_socket
from tests.fakes.daemon_service import FakeDaemonService, quiet_audit, with_key

PATIENCE = 10.0  # seconds; only a broken server needs any


def serve_tcp(
    service: Services,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    site: Site | None = None,
    listeners: TcpListeners | None = None,
) -> AbstractAsyncContextManager[Listening]:
    """Serve by TCP, as a daemon does."""
    settings = ServerSettings(host=host, port=port)
    listeners = listeners or TcpListeners(settings, ConnectionLimiter(tcp_limits(), RealClock()))
    return listeners.opened(service, site, tls)


async def let_in() -> None:
    """Let the server accept a connection that a client made and has closed already."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextmanager
def serve_daemon_socket(service: FakeDaemonService, data_dir: Path) -> Iterator[None]:
    service.trail = quiet_audit()
    with _served(lambda: serve_socket(service, data_dir)):
        yield


@contextmanager
def serve_daemon_tcp(
    service: FakeDaemonService, key: str | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve on a free port of loopback; give the URL."""
    service.trail = quiet_audit()
    with _served(lambda: serve_tcp(with_key(service, key), tls=tls)) as listening:
        assert isinstance(listening, Listening)
        yield listening.url


@contextmanager
def _served(make: Callable[[], AbstractAsyncContextManager[object]]) -> Iterator[object]:
    opened, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    given: list[object] = []

    async def serve() -> None:
        async with make() as served:
            given.append(served)
            opened.set()
            await stop.wait()
            await let_in()

    def live() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=live, name="a daemon's server")
    thread.start()
    try:
        assert opened.wait(PATIENCE)
        yield given[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
