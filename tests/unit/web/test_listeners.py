"""One port for everything, and two once a project serves content of its own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession

from spyweb.clock import RealClock
from spyweb.settings.sections import ServerSettings
from spyweb.web.app import Site
from spyweb.web.connections import ConnectionLimiter, tcp_limits
from spyweb.web.serve import TcpListeners
from tests.fakes.dashboard import make_dashboard_service

PAGE = {"Accept": "text/html"}


@dataclass
class Host:
    """A server of a project that may come to have a folder `ui`, and a browser that keeps its connections."""

    ui: Path
    listeners: TcpListeners
    session: ClientSession = field(default_factory=ClientSession)

    async def get(self, url: str) -> str:
        async with self.session.get(f"{url}/", headers=PAGE) as answer:
            return await answer.text()

    @property
    def content(self) -> str:
        assert self.listeners.content
        return self.listeners.content.url

    @property
    def dashboard(self) -> str:
        assert self.listeners.dashboard
        return self.listeners.dashboard.url


@asynccontextmanager
async def serving(root: Path, port: int = 0, dashboard_port: int = 0) -> AsyncIterator[Host]:
    settings = ServerSettings(port=port, dashboard_port=dashboard_port)
    ui = root / "ui"
    host = Host(ui, TcpListeners(settings, ConnectionLimiter(tcp_limits(), RealClock())))
    async with host.listeners.opened(make_dashboard_service(), Site(ui=ui, has_content=ui.is_dir)), host.session:
        yield host


def save(ui: Path) -> None:
    ui.mkdir()
    (ui / "index.html").write_text("theirs")


async def test_content_that_comes_later_gets_the_port_and_keeps_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as host:
        assert "All jobs" in await host.get(host.content)
        await host.listeners.look()
        assert host.content == host.dashboard
        save(host.ui)
        assert "All jobs" in await host.get(host.content)
        await host.listeners.look()
        assert await host.get(host.content) == "theirs"  # on a new connection: the older one knew the dashboard
        assert "All jobs" in await host.get(host.dashboard)
        (host.ui / "index.html").unlink()
        host.ui.rmdir()
        await host.listeners.look()
        assert "the dashboard is on port" in await host.get(host.content)


async def test_a_port_of_its_own_is_taken_from_the_start_where_one_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    async with serving(tmp_path, dashboard_port=free) as host:
        assert host.dashboard == f"http://127.0.0.1:{free}"
        assert "All jobs" in await host.get(host.dashboard)
        assert "All jobs" not in await host.get(host.content)


@contextmanager
def two_free_ports() -> Iterator[tuple[int, socket.socket]]:
    """Give a port that is free, and the listener that has the one after it; no connection takes these by chance."""
    for port in range(20_000, 30_000, 2):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            after = socket.create_server(("127.0.0.1", port + 1))
            break
    with after:
        yield port, after


@pytest.mark.parametrize("is_taken", [False, True])
async def test_otherwise_it_is_the_next_port_or_any_free_one(tmp_path: Path, is_taken: bool) -> None:
    save(tmp_path / "ui")
    with two_free_ports() as (port, after):
        if not is_taken:
            after.close()
        async with serving(tmp_path, port=port) as host:
            assert (host.dashboard == f"http://127.0.0.1:{port + 1}") is not is_taken
            assert "All jobs" in await host.get(host.dashboard)
            assert await host.get(host.content) == "theirs"
