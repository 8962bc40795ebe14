"""Serve over TLS: a certificate that may be renewed while the daemon runs, and handshakes within the limits.

A connection counts from the moment it is accepted: otherwise a client that connects and sends nothing would have a
descriptor that no limit knows of.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import TaskGroup
from collections.abc import Callable
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


class ServerCertificate:
    """The certificate that the server shows, and its key; newer files take over once they can be used."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Read the files.  Raises Refused, with one line, where they can't be used."""
        self._cert, self._key = cert, key
        self._state = self._look()
        self._current = load_context(cert, key)
        self._problem = ""
        self.context = load_context(cert, key)  # the listener's own: each handshake goes on with the current one
        self.context.sni_callback = lambda connection, *_: setattr(connection, "context", self._current)

    def renew(self) -> bool:
        """Use newer files; return whether there were any.  While they can't be used, the older ones stay."""
        state = self._look()
        if state == self._state:
            return False
        try:
            self._current = load_context(self._cert, self._key)
        except Refused as error:  # it may be half written: the next check tries again
            if str(error) != self._problem:
                log.error("the newer certificate is not used", reason=str(error))
            self._problem = str(error)
            return False
        self._state, self._problem = state, ""
        log.info("a newer certificate is used", file=str(self._cert))
        return True

    def _look(self) -> list[tuple[int, int, int]]:
        try:
            return [(at.st_ino, at.st_mtime_ns, at.st_size) for at in (self._cert.stat(), self._key.stat())]
        except OSError:
            return []


def load_context(cert: Path, key: Path) -> ssl.SSLContext:
    """Make a context of a certificate and its key.  Raises Refused."""
    _expect("tls_cert", cert, b"-----BEGIN CERTIFICATE-----", "certificate")
    _expect("tls_key", key, b"PRIVATE KEY-----", "private key")

    def refuse_password() -> NoReturn:  # OpenSSL would ask on the terminal
        raise Refused(f"[server] tls_key: {key}: is encrypted: a key without a password is needed")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, password=refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Refused(f"[server] tls_key: {key}: is not the key of the certificate in {cert}") from error
        raise Refused(f"[server] tls_cert, tls_key: {cert}, {key}: {error.reason or error}") from error
    except OSError as error:
        raise Refused(f"[server] tls_cert, tls_key: {cert}, {key}: {error.strerror}") from error
    return context


def _expect(name: str, path: Path, mark: bytes, what: str) -> None:
    try:
        with open_regular(path) as file:
            content = file.read(PROJECT_FILE)
    except OSError as error:
        raise Refused(f"[server] {name}: {path}: {error.strerror or error}") from error
    if mark not in content:
        raise Refused(f"[server] {name}: {path}: holds no {what} in PEM")


async def serve_tls(
    context: ssl.SSLContext,
    make_handler: Callable[[], LimitedHandler],
    limiter: ConnectionLimiter,
    listener: socket.socket,
) -> None:
    """Accept connections until cancelled, and shake hands with as many as the limiter admits."""
    async with TaskGroup() as handshakes:
        while True:
            try:
                accepted, peer = await asyncio.get_running_loop().sock_accept(listener)
            except ConnectionError:  # it hung up before it was accepted
                continue
            except OSError:
                await CLOCK.sleep(SCARCE_S)
                continue
            handler = make_handler()
            if limiter.admit(handler, address_of(peer)):
                handshakes.create_task(_shake(context, handler, accepted, limiter), name="TLS handshake")
            else:
                accepted.close()


async def _shake(
    context: ssl.SSLContext, handler: LimitedHandler, accepted: socket.socket, limiter: ConnectionLimiter
) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: handler, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_S
        )
    except OSError:  # an error of the client, also ssl.SSLError and TimeoutError
        pass
    except Exception:  # the boundary of one handshake: no other connection ends with it
        log.exception("a TLS handshake met a bug")
    finally:
        if handler.transport is None:
            accepted.close()
            limiter.release(handler)
