"""Fetch and read a server's certificate, with a handshake that succeeds whatever is wrong with it."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache

from spyweb.limits import HANDSHAKE

PIECE = 16_384  # bytes of a handshake that are read at once
OWN_MODULUS = "kx-dhe"  # as OpenSSL names the key exchange
DAY_MS = 86_400_000


async def shown_certificate(reader: StreamReader, writer: StreamWriter, host: str, room: asyncio.Semaphore) -> bytes:
    """Return the certificate that a server shows in a handshake, in DER.  Raises ssl.SSLError, OSError, EOFError."""
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    name = host.rstrip(".").partition("%")[0]
    tls = trusting_context().wrap_bio(received, to_send, server_hostname=name)
    taken = 0
    while True:
        try:
            async with room:
                await asyncio.to_thread(tls.do_handshake)  # its arithmetic has numbers of any length
            break
        except ssl.SSLWantReadError:
            writer.write(to_send.read())
        data = await reader.read(PIECE)
        taken += len(data)
        if not data:
            raise EOFError("the server closed in the handshake")
        if taken > HANDSHAKE:
            raise EOFError(f"the handshake has no end: more than {HANDSHAKE} bytes")
        received.write(data)
    shown = tls.getpeercert(binary_form=True)
    if shown is None:
        raise EOFError("it shows no certificate")
    return shown


@cache
def trusting_context() -> ssl.SSLContext:
    """Return a TLS context that trusts every server: only the certificate is wanted, and nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")  # servers that a careful client refuses are to be examined too
    return context


@cache
def machine_trust(*protocols: str) -> ssl.SSLContext:
    """Return a TLS context that trusts whom this machine trusts, for these protocols.

    It excludes key exchanges with numbers of the server's choice: very long ones would block the loop, on which the
    handshake is done.
    """
    context = ssl.create_default_context()
    context.set_ciphers(":".join(each["name"] for each in context.get_ciphers() if each["kea"] != OWN_MODULUS))
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def read_certificate(der: bytes, now_ms: int) -> dict[str, object]:
    """Read a certificate.  Call it in a thread, since it imports a large library.  Raises ValueError."""
    from cryptography import x509
    from xxhash import xxh3_64_hexdigest

    certificate = x509.load_der_x509_certificate(der)
    ends, names = certificate.not_valid_after_utc, list[str]()
    with suppress(ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "names": names,
        "serial": colons(certificate.serial_number),
        "not_before": _iso(certificate.not_valid_before_utc),
        "not_after": _iso(ends),
        "days_left": (round(ends.timestamp() * 1000) - now_ms) // DAY_MS,  # below 0: since it expired
        "fingerprint": f"XXH3:{xxh3_64_hexdigest(der)}",
    }


def days_left(pem: bytes, now_ms: int) -> int:
    """Return how many days a PEM file of certificates is still valid; below 0: it is not.  Raises ValueError."""
    from cryptography import x509

    ends = min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(pem))
    return (round(ends.timestamp() * 1000) - now_ms) // DAY_MS


def colons(number: int) -> str:
    """Return a serial number as certificates show it, byte by byte; a negative one, which is invalid, as a number."""
    if number < 0:
        return f"-{colons(-number)}"
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big").hex(":").upper()


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
