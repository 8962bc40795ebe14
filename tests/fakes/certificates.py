"""Certificates for tests, whatever is wrong with them, and TLS with a modulus of the test's choice."""

from __future__ import annotations

import base64
import secrets
import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BEGINS = datetime(2026, 6, 24, 22, 54, 36, tzinfo=UTC)
ENDS = datetime(2026, 9, 22, 23, 54, 29, tzinfo=UTC)


def der(serial: int = 0x2F70D5) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [(NameOID.COUNTRY_NAME, "US"), (NameOID.ORGANIZATION_NAME, "A, B"), (NameOID.COMMON_NAME, "WE1")]
    issuer = x509.Name([x509.NameAttribute(*attribute) for attribute in attributes])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "example.com")])
    built = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, BEGINS, ENDS)
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def self_signed(name: str, begins: datetime, ends: datetime) -> bytes:
    """Return a key and a self-signed certificate, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = x509.CertificateBuilder(own, own, key.public_key(), 1, begins, ends).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def dhe_only(authority: trustme.CA, name: str, bits: int, folder: Path) -> ssl.SSLContext:
    """Make a server's context with DHE alone.  No client checks whether the modulus is a prime."""
    parameters = folder / "dh.pem"
    modulus = secrets.randbits(bits) | 1 << (bits - 1) | 1
    text = base64.encodebytes(_tagged(0x30, _integer(modulus) + _integer(2))).decode()
    parameters.write_text(f"-----BEGIN DH PARAMETERS-----\n{text}-----END DH PARAMETERS-----\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("kDHE")
    context.load_dh_params(str(parameters))
    authority.issue_cert(name, key_type=trustme.KeyType.RSA).configure_cert(context)
    return context


def _integer(number: int) -> bytes:
    return _tagged(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content).to_bytes(2, "big")
    return bytes([tag, 0x82]) + size + content
