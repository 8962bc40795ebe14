"""Fetch and read a server's certificate, with a handshake that succeeds whatever is wrong with it."""

from __future__ import annotations

import asyncio
import os
import ssl
from asyncio import StreamReader, StreamWriter
from datetime import UTC, datetime
from functools import cache

from spyweb.errors import FetchError
from spyweb.limits import HANDSHAKE
from spyweb.ops.network.address_check import AddressCheck, NetGate, OwnSockets
from spyweb.ops.network.resolver import Resolver

MOST_HANDSHAKES = 2  # at once, since others need threads too
PIECE = 16_384  # bytes of a handshake that are read at once
DAY_MS = 86_400_000


class Prober:
    """Fetches the certificate of a TLS server, with the names and limits of all other requests."""

    def __init__(self, resolver: Resolver, own: OwnSockets, *, deny_private: bool) -> None:
        self._resolver = resolver
        self._own = own
        self._room = asyncio.Semaphore(MOST_HANDSHAKES)
        self._deny_private = deny_private

    async def certificate(self, host: str, port: int, gate: NetGate | None = None) -> bytes:
        """Return the certificate in DER, trying the host's addresses in turn.  Raises FetchError, TimeoutError."""
        check = AddressCheck(own=self._own, deny_private=self._deny_private, gate=gate, host=host, port=port)
        try:
            addresses = await self._resolver.addresses(host)
        except OSError as error:
            raise FetchError("dns", f"could not resolve {host}: {error}") from error
        refusal = ""
        for address in addresses:
            try:
                check.check(address, port)
                return await self._shown(address, host, port)
            except ssl.SSLError as error:
                raise FetchError("tls", f"TLS with {host}:{port} failed: {error.reason or error}") from error
            except OSError as error:
                refusal = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
        raise check.refusal or FetchError("connect", f"could not connect to {host}:{port}: {refusal}")

    async def _shown(self, address: str, host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(address, port)
        try:
            tls = await self._handshake(reader, writer, host)
        except EOFError as error:
            raise FetchError("tls", f"TLS with {host}:{port} failed: {error}") from None
        finally:
            writer.transport.abort()  # nothing is left to send, and the server may never answer a shutdown
        shown = tls.getpeercert(binary_form=True)
        if shown is None:
            raise FetchError("tls", f"{host}:{port} shows no certificate")
        return shown

    async def _handshake(self, reader: StreamReader, writer: StreamWriter, host: str) -> ssl.SSLObject:
        """Perform the handshake, in a thread: the server chooses how long the numbers in its arithmetic are."""
        received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = host.rstrip(".").partition("%")[0]
        tls = trusting_context().wrap_bio(received, to_send, server_hostname=name)
        taken = 0
        while True:
            try:
                async with self._room:
                    await asyncio.to_thread(tls.do_handshake)
                return tls
            except ssl.SSLWantReadError:
                writer.write(to_send.read())
            data = await reader.read(PIECE)
            taken += len(data)
            if not data:
                raise EOFError("the server closed in the handshake")
            if taken > HANDSHAKE:
                raise EOFError(f"the handshake has no end: more than {HANDSHAKE} bytes")
            received.write(data)


@cache
def trusting_context() -> ssl.SSLContext:
    """Return a TLS context that trusts every server: only the certificate is wanted, and nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")  # servers that a careful client refuses are to be examined too
    return context


def read_certificate(der: bytes, now_ms: int) -> dict[str, object]:
    """Read a certificate.  Call it in a thread, since it imports a large library.  Raises ValueError."""
    from cryptography import x509
    from xxhash import xxh3_64_hexdigest

    certificate = x509.load_der_x509_certificate(der)
    ends = certificate.not_valid_after_utc
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "serial": colons(certificate.serial_number),
        "not_before": _iso(certificate.not_valid_before_utc),
        "not_after": _iso(ends),
        "days_left": (round(ends.timestamp() * 1000) - now_ms) // DAY_MS,  # below 0: since it expired
        "fingerprint": f"XXH3:{xxh3_64_hexdigest(der)}",
    }


def colons(number: int) -> str:
    """Return a serial number as certificates show it, byte by byte; a negative one, which is invalid, as a number."""
    if number < 0:
        return f"-{colons(-number)}"
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big").hex(":").upper()


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
