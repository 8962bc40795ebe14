"""Serve an app on a TCP address, and commands on the socket of the data directory.

TCP is one port for everything, or, once the project serves content of its own, two.  Content of
server/init.lua and ui/ may come from strangers, and a browser gives every script of an origin the rights of its user:
so the dashboard then has its own port, and with it its own origin, until the daemon ends.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.errors import Refused
from spyweb.limits import ADDRESS_PATH, PARAMETERS, too_large
from spyweb.model import MIB
from spyweb.ops.network.address_check import OwnSockets
from spyweb.settings.sections import SOCKET, ServerSettings
from spyweb.settings.socket_path import clear_place, name_for_kernel
from spyweb.web.access.headers import bracketed
from spyweb.web.access.keys import AccessService
from spyweb.web.answer import CODES, error_of, json_answer
from spyweb.web.api.services import Services
from spyweb.web.app import Site, content_app, socket_app, tcp_app
from spyweb.web.connections import ConnectionLimiter, LimitedHandler, private_limits, tcp_limits
from spyweb.web.tls import serve_tls

PATIENCE = 1.0  # seconds for answers under way when the server closes
BACKLOG = 128
USUAL_LINE = 8190  # bytes of a request's first line, as everywhere in aiohttp

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
MakeHandler = Callable[[], LimitedHandler]

HIGHEST_PORT = 65_535

log = structlog.get_logger()
library_log = logging.getLogger("aiohttp.server.spyweb")


class Listening(Struct, frozen=True, kw_only=True):
    host: str
    port: int  # as bound: asking for port 0 gives a free one
    url: str


@asynccontextmanager
async def serve_app(
    app: web.Application,
    *,
    host: str,
    port: int,
    connections: ConnectionLimiter | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Listening]:
    """Serve an app on a TCP address.  Raises Refused when it can't listen there."""
    limiter = connections or ConnectionLimiter(tcp_limits(), RealClock())
    with closing(limiter):
        async with handlers(app, limiter) as make, listen(make, limiter, OwnSockets(), host, port, tls) as listening:
            yield listening


@asynccontextmanager
async def listen(
    make_handler: MakeHandler,
    limiter: ConnectionLimiter,
    own: OwnSockets,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Listening]:
    """Listen on a TCP address, register it with `own`, and handle connections.  Raises Refused when it can't."""
    loop = asyncio.get_running_loop()
    with _clear_words(host, port):
        server = await loop.create_server(make_handler, host, port, backlog=BACKLOG, start_serving=tls is None)
    try:
        ports = [each.getsockname()[1] for each in server.sockets]
        listening = Listening(host=host, port=ports[0], url=url_of(host, ports[0], is_tls=tls is not None))
        with own.listening(ports):
            if tls is None:
                yield listening
                return
            async with AsyncExitStack() as stack:
                for each in server.sockets:
                    listener = stack.enter_context(each.dup())
                    with _clear_words(host, port):
                        listener.listen(BACKLOG)
                    listener.setblocking(False)
                    tasks = await stack.enter_async_context(TaskGroup())
                    stack.callback(tasks.create_task(serve_tls(tls, make_handler, limiter, listener)).cancel)
                yield listening
    finally:
        server.close()


class PrivateSocket:
    """The socket of a data directory, on which the daemon listens."""

    def __init__(self, make_handler: Callable[[], asyncio.Protocol], data_dir: Path) -> None:
        self._make_handler = make_handler
        self.path = data_dir / SOCKET

    async def open(self) -> None:
        clear_place(self.path)
        listener = socket.socket(socket.AF_UNIX)
        with name_for_kernel(self.path) as name:
            listener.bind(name)
        self._server = await asyncio.get_running_loop().create_unix_server(
            self._make_handler, sock=listener, backlog=BACKLOG, start_serving=False
        )
        self.path.chmod(0o600)  # before anybody can connect: nobody can before it serves
        self._identity = self._found()
        await self._server.start_serving()

    async def restore(self) -> bool:
        """Listen again where the file was removed; return whether it was."""
        if self._found() == self._identity:
            return False
        self._server.close()
        await self.open()
        return True

    def close(self) -> None:
        with suppress(OSError):  # nobody listens there any more: the next daemon removes it
            self.path.unlink()
        self._server.close()

    def _found(self) -> tuple[int, int] | None:
        """Return the identity of the file that a command would connect to."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


@asynccontextmanager
async def serve_socket(
    services: Services, data_dir: Path, connections: ConnectionLimiter | None = None
) -> AsyncIterator[PrivateSocket]:
    """Serve every command on the socket of a data directory whose lock is held."""
    limiter = connections or ConnectionLimiter(private_limits(), RealClock())
    with closing(limiter):
        # A key stands in the address, percent-encoded: those of a command have up to 128 KB.
        async with handlers(socket_app(services), limiter, longest_line=MIB) as make_handler:
            opened = PrivateSocket(make_handler, data_dir)
            await opened.open()
            try:
                yield opened
            finally:
                opened.close()


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False for log lines that any client can cause at will: a disconnect, or bytes that are not HTTP."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


@asynccontextmanager
async def handlers(
    app: web.Application, limiter: ConnectionLimiter, *, longest_line: int = USUAL_LINE
) -> AsyncIterator[MakeHandler]:
    """Run an app; yield a function that makes the handler of a connection."""
    library_log.addFilter(is_worth_a_line)
    app.on_response_prepare.append(leave_out_server)
    runner = web.AppRunner(app, shutdown_timeout=PATIENCE)
    await runner.setup()
    server = runner.server
    assert server is not None  # setup has been called
    if longest_line > USUAL_LINE:
        server.request_handler = cast(Any, _refusing_long_addresses(cast(Handle, server.request_handler)))
    options = {"access_log": None, "logger": library_log, "max_line_size": longest_line}
    loop = asyncio.get_running_loop()
    try:
        yield lambda: LimitedHandler(server, limiter, loop=loop, **options)
    finally:
        await runner.cleanup()


def _refusing_long_addresses(handle: Handle) -> Handle:
    """Refuse long addresses before the router sees them: its time grows with the square of the number of slashes."""

    async def check(request: web.Request) -> web.StreamResponse:
        length, parameters = len(request.rel_url.raw_path), request.rel_url.raw_query_string.count("&")
        if length > ADDRESS_PATH:
            status, reason = 414, too_large("the address", length, ADDRESS_PATH, "characters")
        elif parameters > PARAMETERS:
            status, reason = 400, too_large("the address", parameters, PARAMETERS, "parameters")
        else:
            return await handle(request)
        return json_answer(error_of(reason, CODES[status]), status)

    return check


async def leave_out_server(request: web.Request, response: web.StreamResponse) -> None:
    """Remove the header that says which library made an answer."""
    if response.headers.get("Server") == SERVER_SOFTWARE:
        del response.headers["Server"]


async def refuse_strangers(host: str) -> None:
    """Raise Refused where other machines could connect.

    The name is resolved as a listener does: `*` is loopback for a client, but every address for a listener.
    """
    with _clear_words(host, 0):
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not host or not all(ip_address(address).is_loopback for address in addresses):
        raise Refused(
            f"{host or 'every address'} can be reached from other machines: set SPYWEB_API_KEY to listen there, "
            "or make a key with `spyweb keys add`"
        )


@contextmanager
def _clear_words(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise Refused(_why_not(error, host, f"{bracketed(host)}:{port}")) from error


def _why_not(error: OSError | UnicodeError, host: str, where: str) -> str:
    match error:
        case socket.gaierror():
            return f"{host} can't be resolved ({error.strerror}): choose another with --host"
        case UnicodeError():
            return f"{host} can't be resolved (it is no host name): choose another with --host"
        case OSError(errno=errno.EADDRINUSE):
            return f"{where} is in use by another program: choose another with --port"
        case OSError(errno=errno.EACCES):
            return f"{where} needs rights that this user lacks: choose one above 1023 with --port"
        case OSError(errno=errno.EADDRNOTAVAIL | None):  # None: Python 3.13 could not bind on any address
            return f"{host} is not an address of this machine: choose another with --host"
        case _:
            return f"can't listen on {where}: {error.strerror}"


def url_of(host: str, port: int, *, is_tls: bool = False) -> str:
    """Return the URL by which this machine reaches the listener."""
    reachable = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if is_tls else 'http'}://{bracketed(reachable)}:{port}"


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
        """Serve TCP clients.  Raises Refused when the address may not be used, or can't be."""
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
        """Give the dashboard its own port once the project serves content."""
        try:
            await self._separate_if_needed()
        except Refused as error:
            log.error("the project's content is not served", reason=str(error))

    async def _separate_if_needed(self) -> None:
        wanted = self._settings.dashboard_port
        if self.dashboard is not self.content or not (wanted or await asyncio.to_thread(self._site.has_content)):
            return
        port = self._settings.port
        beside = port + 1 if 0 < port < HIGHEST_PORT else 0
        try:
            self.dashboard = await self._listen(self._handlers, wanted or beside)
        except Refused as error:
            if wanted:
                raise
            log.warning("the dashboard takes any free port: [server] dashboard_port chooses one", reason=str(error))
            self.dashboard = await self._listen(self._handlers, 0)
        app = content_app(self._app, self._site, self.dashboard.port)
        self._handlers = await self._stack.enter_async_context(handlers(app, self.connections))
        self.connections.retire_all()
        log.info("the dashboard has a port to itself", dashboard=self.dashboard.url)

    async def _listen(self, make_handler: MakeHandler, port: int) -> Listening:
        listener = listen(make_handler, self.connections, self._own, self._settings.host, port, self._tls)
        return await self._stack.enter_async_context(listener)
