"""Match hosts and addresses with the `net` of a policy.  Pure.

Names and addresses are compared with what was written, networks with the address that is connected to.  A number in any
spelling that a resolver takes for an address (`2130706433`, `0x7f.1`) is an address, never a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from socket import inet_aton
from typing import NamedTuple

from yarl import URL

EVERYTHING = "*"
HIGHEST_PORT = 65_535
ANY_PORT = 0
LONGEST_HOST = 253
LONGEST_READ = 300  # characters: no name or address is longer

_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*")
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")


class NetAddress(NamedTuple):
    version: int
    value: int


NO_ADDRESS = NetAddress(0, 0)  # of a number that is no address: nothing but `*` permits it


class NetHost(NamedTuple):
    """A host as it was written, made comparable."""

    name: str
    address: NetAddress | None  # None: it is a name


class NetRange(NamedTuple):
    version: int
    value: int
    mask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRule:
    """The hosts and networks that one `net` lists."""

    names: frozenset[tuple[str, int]] = frozenset()
    suffixes: frozenset[tuple[str, int]] = frozenset()  # each begins with a dot: `.example.com`
    literals: frozenset[tuple[NetAddress, int]] = frozenset()
    ranges: tuple[NetRange, ...] = ()
    has_everything: bool = False  # `*` stands beside hosts that are named: some are reached only by their name
    _endings: Mapping[int, tuple[str, ...]] = field(init=False, repr=False, compare=False)  # the suffixes by port

    def __post_init__(self) -> None:
        endings: dict[int, tuple[str, ...]] = {}
        for suffix, port in self.suffixes:
            endings[port] = (*endings.get(port, ()), suffix)
        object.__setattr__(self, "_endings", endings)

    def items(self) -> list[str]:
        """Return the rule as settings write it."""
        named = [*self.names, *((f"*{suffix}", port) for suffix, port in self.suffixes)]
        written = [*named, *((address_text(address), port) for address, port in self.literals)]
        items = [shown_host(host, port) for host, port in written]
        ranges = [
            f"{address_text(NetAddress(version, value))}/{mask.bit_count()}" for version, value, mask in self.ranges
        ]
        return ([EVERYTHING] if self.has_everything else []) + sorted(items) + ranges

    def lists(self, host: NetHost, port: int, address: NetAddress) -> bool:
        """Return whether an item other than `*` permits a host that has led to this address."""
        if host.address is not None:
            return self.permits_literal(host.address, port)
        return self.permits_name(host.name, port) or self.has(address)

    def lists_with_port(self, host: NetHost, port: int) -> bool:
        """Return whether an item names this host and this port."""
        return (host.name, port) in self.names or (host.address, port) in self.literals

    def permits_name(self, name: str, port: int) -> bool:
        names = self.names
        if (name, ANY_PORT) in names or (name, port) in names:
            return True
        endings = self._endings
        if not endings or name[:1] == ".":
            return False
        return name.endswith(endings.get(ANY_PORT, ()) + endings.get(port, ()))

    def permits_literal(self, address: NetAddress, port: int) -> bool:
        """Return whether an address that was written is permitted."""
        literals = self.literals
        return (address, ANY_PORT) in literals or (address, port) in literals or self.has(address)

    def has(self, address: NetAddress) -> bool:
        """Return whether an address is in one of the networks."""
        version, value = address
        for of_version, network, mask in self.ranges:  # noqa: SIM110 - `any` takes twice as long
            if value & mask == network and of_version == version:
                return True
        return False

    def permits(self, host: NetHost, port: int) -> bool | None:
        """Return whether a host is permitted; None: that depends on the address that is connected to."""
        if self.has_everything:
            return True
        if host.address is not None:
            return self.permits_literal(host.address, port)
        return self.permits_name(host.name, port) or (None if self.ranges else False)


def read_host(host: str) -> NetHost:
    """Make a host comparable: lower case, no brackets, no dot at the end, numbers as addresses."""
    return _read_host(host) if len(host) <= LONGEST_READ else NetHost(host[:LONGEST_READ], NO_ADDRESS)


@lru_cache(maxsize=4096)
def _read_host(host: str) -> NetHost:
    name = host.lower().removeprefix("[").removesuffix("]")
    name = name.removesuffix(".") if len(name) > 1 else name
    if ":" not in name and not _NUMERIC.fullmatch(name):
        return NetHost(name, None)
    try:
        if ":" not in name:  # as the C library reads one: up to four parts, decimal, octal or hex, the last the rest
            return NetHost(name, NetAddress(4, int.from_bytes(inet_aton(name), "big")))
        address = IPv6Address(name.partition("%")[0])
    except (ValueError, OSError):
        return NetHost(name, NO_ADDRESS)
    mapped = address.ipv4_mapped
    return NetHost(name, NetAddress(6, int(address)) if mapped is None else NetAddress(4, int(mapped)))


def read_net(items: Iterable[str]) -> NetRule | None:
    """Read the items of a `net`.  None: `*` alone permits everything.  Raises ValueError for one that is no host."""
    listed = list(items)
    found = [_read_item(item) for item in listed if item != EVERYTHING]
    if EVERYTHING in listed and not found:
        return None
    hosts = [each for each in found if not isinstance(each, NetRange)]
    names = [(host, port) for host, port in hosts if isinstance(host, str)]
    return NetRule(
        has_everything=EVERYTHING in listed,
        names=frozenset(each for each in names if not each[0].startswith("*.")),
        suffixes=frozenset((name[1:], port) for name, port in names if name.startswith("*.")),
        literals=frozenset((host, port) for host, port in hosts if isinstance(host, NetAddress)),
        ranges=tuple(dict.fromkeys(each for each in found if isinstance(each, NetRange))),
    )


def _read_item(item: str) -> NetRange | tuple[str | NetAddress, int]:
    if "/" in item:
        return _read_network(item)
    host, port = split_port(item)
    found = read_host(host)
    if found.address is NO_ADDRESS:
        raise _wrong(item)
    if found.address is not None:
        return found.address, port
    name = _ascii(found.name, item)
    if len(name) > LONGEST_HOST or not _NAME.fullmatch(name):
        raise _wrong(item)
    return name, port


def split_port(item: str) -> tuple[str, int]:
    """Separate the port, if there is one: `host:443`, `[::1]:443`.  Raises ValueError."""
    host, colon, digits = item.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")) or item.endswith("]"):
        return item, ANY_PORT
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else 0
    if not 0 < port <= HIGHEST_PORT:
        raise ValueError(f"{item[:80]!r}: a port from 1 to {HIGHEST_PORT} expected after the colon")
    return host, port


def _ascii(name: str, item: str) -> str:
    """Return a name as the HTTP client will ask for it: yarl encodes by IDNA 2008, Python's codec by IDNA 2003."""
    if name.isascii():
        return name
    wildcard, plain = ("*.", name[2:]) if name.startswith("*.") else ("", name)
    if len(plain) > LONGEST_HOST:
        raise _wrong(item)
    try:
        return wildcard + (URL.build(scheme="http", host=plain).raw_host or "")
    except ValueError:  # UnicodeError among it
        raise _wrong(item) from None


def _read_network(item: str) -> NetRange:
    try:
        network: IPv4Network | IPv6Network = ip_network(item)
    except ValueError as error:
        raise ValueError(f"{item[:80]!r} is no network: {error}") from None
    value, mask = int(network.network_address), int(network.netmask)
    if isinstance(network, IPv6Network) and network.prefixlen >= 96 and network.network_address.ipv4_mapped:
        return NetRange(4, value & 0xFFFFFFFF, mask & 0xFFFFFFFF)
    return NetRange(network.version, value, mask)


def _wrong(item: str) -> ValueError:
    expected = '"api.example.com", "*.example.com", "host:443", "10.0.0.0/8" or "*"'
    return ValueError(f"{item[:80]!r} is no host: {expected} expected")


def shown_host(host: str, port: int) -> str:
    where = f"[{host}]" if ":" in host else host
    return host if port == ANY_PORT else f"{where}:{port}"


def address_text(address: NetAddress) -> str:
    return str(IPv4Address(address.value) if address.version == 4 else IPv6Address(address.value))
