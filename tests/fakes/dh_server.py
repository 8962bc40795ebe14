"""Serve TLS with Diffie-Hellman key exchange alone, and a modulus of the test's choice."""

from __future__ import annotations

import base64
import secrets
import ssl
from pathlib import Path

import trustme


def dhe_only(authority: trustme.CA, name: str, bits: int, folder: Path) -> ssl.SSLContext:
    """Make a server's context.  No client checks whether the modulus is a prime."""
    parameters = folder / "dh.pem"
    parameters.write_text(_pem(secrets.randbits(bits) | 1 << (bits - 1) | 1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("kDHE")
    context.load_dh_params(str(parameters))
    authority.issue_cert(name, key_type=trustme.KeyType.RSA).configure_cert(context)
    return context


def _pem(modulus: int) -> str:
    der = _tagged(0x30, _integer(modulus) + _integer(2))
    return f"-----BEGIN DH PARAMETERS-----\n{base64.encodebytes(der).decode()}-----END DH PARAMETERS-----\n"


def _integer(number: int) -> bytes:
    return _tagged(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content).to_bytes(2, "big")
    return bytes([tag, 0x82]) + size + content
