"""Fetch and read a server's certificate, with a handshake that succeeds whatever is wrong with it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    subject: str  # RFC 4514: "CN=example.com,O=Example"
    issuer: str
    serial: str  # "2F:70:D5"
    not_before: str  # ISO 8601, UTC
    not_after: str
    days_left: int  # below 0: expired for so long
    fingerprint: str  # "XXH3:" and 16 hexadecimal digits


def trusting_context() -> ssl.SSLContext:
    """Return a TLS context that trusts anybody: only the certificate is wanted, and nothing is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")  # what a careful client refuses is worth a look, too
    return context


def read_certificate(der: bytes, now_ms: int) -> Certificate:
    """Imports the library for certificates: call it in a thread.  Raises ValueError."""
    from cryptography import x509
    from xxhash import xxh3_64_hexdigest

    certificate = x509.load_der_x509_certificate(der)
    ends = certificate.not_valid_after_utc
    return Certificate(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        serial=colons(certificate.serial_number),
        not_before=_iso(certificate.not_valid_before_utc),
        not_after=_iso(ends),
        days_left=(round(ends.timestamp() * 1000) - now_ms) // DAY_MS,
        fingerprint=f"XXH3:{xxh3_64_hexdigest(der)}",
    )


def colons(number: int) -> str:
    """Return a serial number as certificates show it, byte by byte; one below 0, which none should be, as it stands."""
    if number < 0:
        return f"-{colons(-number)}"
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big").hex(":").upper()


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
