"""Which addresses belong to the public internet: the rest is what `[http] deny_private` keeps scripts away from."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether a literal address, as it is about to be connected to, is one of the public internet."""
    plain = ip_address(address.partition("%")[0])
    if isinstance(plain, IPv4Address):
        return _is_public_v4(plain)
    inner = _v4_inside(plain)
    if inner is not None:
        return _is_public_v4(inner)
    return plain.is_global and not (plain.is_multicast or plain.is_site_local or plain.is_reserved)


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _v4_inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a packet would end at, however it is wrapped."""
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
