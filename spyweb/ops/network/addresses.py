"""Distinguish addresses of the public internet from those that `[http] deny_private` forbids."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*")
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether a literal address, about to be connected to, belongs to the public internet."""
    plain = ip_address(address.partition("%")[0])
    if isinstance(plain, IPv4Address):
        return _is_public_v4(plain)
    inner = _v4_inside(plain)
    if inner is not None:
        return _is_public_v4(inner)
    return plain.is_global and not (plain.is_multicast or plain.is_site_local or plain.is_reserved)


def is_literal(host: str) -> bool:
    """Return whether a host is an address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def private_target(host: str) -> str:
    """Return why a host may not be given to a proxy that looks names up itself; empty if it may."""
    name = host.strip("[]").rstrip(".").lower()
    if name.rpartition(".")[2] == "localhost":
        return f"{host} is this machine, and [http] deny_private is set"
    try:
        is_open = is_public(name)
    except ValueError:
        is_open = not NUMERIC.fullmatch(name)  # `127.1`, `0x7f.1`: some resolvers take these for addresses
    return "" if is_open else private_reason(host)


def private_reason(address: str) -> str:
    return f"{address} is a private address, and [http] deny_private is set"


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _v4_inside(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a packet would reach, however it is wrapped."""
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
