"""Serve over TLS: a certificate that may be renewed while the daemon runs, and handshakes within the limits.

A connection counts from the moment in which it is accepted: otherwise whoever connects and says nothing would have a
descriptor that no limit knows of.
"""

from __future__ import annotations

import asyncio
import asyncio.trsock
import os
import socket
import ssl
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import structlog

from spyweb.clock import RealClock
from spyweb.errors import Refused
from spyweb.files import open_regular
from spyweb.limits import PROJECT_FILE
from spyweb.web.connections import HEADER_S, ConnectionLimiter, LimitedHandler, address_of

log = structlog.get_logger()

CLOCK = RealClock()
HANDSHAKE_S = HEADER_S  # as long as a request's headers may take
SCARCE_S = 1.0  # before the next try where no connection can be accepted: no descriptor is left
MARKS = {"tls_cert": b"-----BEGIN CERTIFICATE-----", "tls_key": b"PRIVATE KEY-----"}

State = tuple[tuple[int, int, int], ...]


class ServerCertificate:
    """The certificate that the server shows, and its key; newer files take over once they can be used."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Read the files.  Raises Refused, with one clear line, where they can't be used."""
        self._cert, self._key = cert, key
        self._state = self._look()
        self._current = load_context(cert, key)
        self._problem = ""
        self.context = load_context(cert, key)  # the listener's own: each handshake goes on with the current one
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def renew(self) -> bool:
        """Take up newer files; return whether there were any.  While they can't be used, the older ones stay."""
        state = self._look()
        if state == self._state:
            return False
        try:
            self._current = load_context(self._cert, self._key)
        except Refused as error:  # it may be half written: the next look tries again
            if str(error) != self._problem:
                log.error("the newer certificate is not used", reason=str(error))
            self._problem = str(error)
            return False
        self._state, self._problem = state, ""
        log.info("a newer certificate is used", file=str(self._cert))
        return True

    def _look(self) -> State:
        return tuple(map(_state_of, (self._cert, self._key)))


def load_context(cert: Path, key: Path) -> ssl.SSLContext:
    """Make a context of a certificate and its key.  Raises Refused."""
    for name, path in (("tls_cert", cert), ("tls_key", key)):
        _expect(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
    except _Encrypted:
        raise Refused(f"[server] tls_key: {key}: is encrypted, and nobody is there to ask for its password") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Refused(f"[server] tls_key: {key}: is not the key of the certificate in {cert}") from error
        raise Refused(f"[server] tls_cert, tls_key: {cert}, {key}: {error.reason or error}") from error
    except OSError as error:
        raise Refused(f"[server] tls_cert, tls_key: {cert}, {key}: {error.strerror}") from error
    return context


class _Encrypted(ValueError):
    """Says that a key can't be read without a password; OpenSSL itself would ask on the terminal."""


def _refuse_password() -> NoReturn:
    raise _Encrypted


def _expect(name: str, path: Path) -> None:
    try:
        with open_regular(path) as file:
            content = file.read(PROJECT_FILE)
    except OSError as error:
        raise Refused(f"[server] {name}: {path}: {error.strerror or error}") from error
    if MARKS[name] not in content:
        what = "certificate" if name == "tls_cert" else "private key"
        raise Refused(f"[server] {name}: {path}: holds no {what} in PEM")


def _state_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


class Handshake:
    """A connection whose client has not shaken hands yet."""

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted = accepted
        self._task: asyncio.Task[None] | None = None

    def begin(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def find_delay(self) -> str:
        return ""  # the handshake has a time limit of its own

    def abort(self) -> None:
        if self._task:
            self._task.cancel()
        self._accepted.close()


class TlsListener:
    """Accepts connections, shakes hands with as many as the limiter admits, and hands them on."""

    def __init__(
        self, context: ssl.SSLContext, make_handler: Callable[[], LimitedHandler], limiter: ConnectionLimiter
    ) -> None:
        self._context = context
        self._make_handler = make_handler
        self._limiter = limiter
        self._shaking: set[Handshake] = set()

    async def accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        """Accept connections without end."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listener)
            except ConnectionError:  # it hung up before it was accepted
                continue
            except OSError:
                await CLOCK.sleep(SCARCE_S)
                continue
            shaking = Handshake(accepted)
            if self._limiter.admit(shaking, address_of(peer)):
                shaking.begin(tasks.create_task(self._shake(shaking, accepted), name="TLS handshake"))
            else:
                accepted.close()

    def close(self) -> None:
        for shaking in list(self._shaking):
            shaking.abort()

    async def _shake(self, shaking: Handshake, accepted: socket.socket) -> None:
        def make_handler() -> LimitedHandler:
            handler = self._make_handler()
            handler.follows = shaking
            return handler

        self._shaking.add(shaking)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make_handler, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError:  # whatever a client may do, ssl.SSLError and TimeoutError among it
            accepted.close()
        except Exception:  # the boundary of one handshake: no other connection ends with it
            accepted.close()
            log.exception("a TLS handshake met a bug")
        finally:
            self._shaking.discard(shaking)
            self._limiter.release(shaking)


@asynccontextmanager
async def accepting(tls: TlsListener, listeners: Sequence[socket.socket]) -> AsyncIterator[None]:
    """Accept connections until the block is left."""
    async with TaskGroup() as tasks:
        loops = [tasks.create_task(tls.accept(each, tasks), name="accept TLS") for each in listeners]
        try:
            yield
        finally:
            for each in loops:
                each.cancel()
            tls.close()
            for listener in listeners:
                listener.close()


def listen_also(bound: socket.socket | asyncio.trsock.TransportSocket, backlog: int) -> socket.socket:
    """Return a socket of our own for what a server has bound, but does not accept from."""
    listener = socket.socket(fileno=os.dup(bound.fileno()))
    listener.listen(backlog)
    listener.setblocking(False)
    return listener
