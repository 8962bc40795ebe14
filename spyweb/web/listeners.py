"""Listen on TCP: on one port for everything, or, once the project serves content of its own, on two.

What server/init.lua and ui/ send may have been written by strangers, and a browser lets every script of an origin do
what its user may.  So the dashboard then has a port, and with it an origin, to itself, until the daemon ends.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from msgspec.structs import replace

from spyweb.errors import Refused
from spyweb.ops.network.address_check import OwnSockets
from spyweb.settings import ServerSettings
from spyweb.web.access.keys import AccessService
from spyweb.web.api.services import Services
from spyweb.web.app import Site, content_app, tcp_app
from spyweb.web.connections import ConnectionLimiter
from spyweb.web.serve import Listening, MakeHandler, handlers, listen, refuse_strangers

HIGHEST_PORT = 65_535

log = structlog.get_logger()


class TcpListeners:
    """The listeners of a daemon's HTTP server."""

    def __init__(self, settings: ServerSettings, connections: ConnectionLimiter) -> None:
        self._settings = settings
        self.connections = connections  # to all of them
        self.content: Listening | None = None  # at `port`; None: nothing listens
        self.dashboard: Listening | None = None  # the same while the project has served no content

    @asynccontextmanager
    async def opened(
        self, services: Services, site: Site | None = None, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[Listening]:
        """Serve what TCP clients may reach.  Raises Refused when it may not or can't listen there."""
        host, port = self._settings.host, self._settings.port
        if services[AccessService].is_open:
            await refuse_strangers(host)
        self._site, self._own, self._tls = site or Site(), services[OwnSockets], tls
        self._app = tcp_app(services, replace(self._site, hosts=(*self._site.hosts, host.lower())), port)
        async with AsyncExitStack() as self._stack:
            self._stack.callback(self.connections.close)
            self._handlers = await self._stack.enter_async_context(handlers(self._app, self.connections))
            await self._separate_if_needed()
            self.content = await self._listen(lambda: self._handlers(), port)
            self.dashboard = self.dashboard or self.content
            yield self.content

    async def look(self) -> None:
        """Give the dashboard a port to itself if the project has come to serve content."""
        try:
            await self._separate_if_needed()
        except Refused as error:
            log.error("the project's content is not served", reason=str(error))

    async def _separate_if_needed(self) -> None:
        wanted = self._settings.dashboard_port
        if self.dashboard is not self.content or not (wanted or await asyncio.to_thread(self._site.has_content)):
            return
        self.dashboard = await (self._listen(self._handlers, wanted) if wanted else self._listen_beside())
        app = content_app(self._app, self._site, self.dashboard.port)
        self._handlers = await self._stack.enter_async_context(handlers(app, self.connections))
        self.connections.retire_all()
        log.info("the dashboard has a port to itself", dashboard=self.dashboard.url)

    async def _listen_beside(self) -> Listening:
        """Listen on the port after the content's; on any free one where another program has that."""
        port = self._settings.port
        try:
            return await self._listen(self._handlers, port + 1 if 0 < port < HIGHEST_PORT else 0)
        except Refused as error:
            log.warning("the dashboard takes any free port: [server] dashboard_port chooses one", reason=str(error))
            return await self._listen(self._handlers, 0)

    async def _listen(self, make_handler: MakeHandler, port: int) -> Listening:
        listener = listen(make_handler, self.connections, self._own, self._settings.host, port, self._tls)
        return await self._stack.enter_async_context(listener)
