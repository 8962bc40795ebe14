"""Check each host and address that a request is about to reach, named by its script, a redirect, or DNS.

A NetGate asks the policy about hosts as they are written.  An AddressCheck checks every new socket before it connects,
and every kept connection before it is used, by the address that it leads to: a name can't get around it.
"""

from __future__ import annotations

import errno
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from weakref import WeakSet

from msgspec import Struct
from yarl import URL

from spyweb.errors import FetchError, NotPermitted
from spyweb.model import JobId
from spyweb.permissions.hosts import read_host
from spyweb.permissions.policy import ANYTHING, Audit, Policy, Refusal

SOCKS_PORT = 1080
NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*")
NAT64 = IPv6Network("64:ff9b::/96")

Peer: TypeAlias = Sequence[object] | str | None  # as a socket names it; a text of a Unix socket


class OwnSockets:
    """All listening ports of a daemon, and the sockets that its HTTP client has opened.

    Without keys the daemon trusts requests from this machine.  A job, or a server that redirects a job's request, must
    not use that trust.
    """

    def __init__(self) -> None:
        self.ports: Counter[int] = Counter()
        self.opened: WeakSet[socket.socket] = WeakSet()  # known for as long as they exist

    @contextmanager
    def listening(self, ports: Iterable[int]) -> Iterator[None]:
        """Know these ports as the daemon's own until the block is left."""
        own = Counter(ports)
        self.ports += own
        try:
            yield
        finally:
            self.ports -= own

    def is_listener(self, address: str, port: int) -> bool:
        """Return whether the daemon itself would answer: an address of this machine with one of its ports."""
        if port not in self.ports:
            return False
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                address, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(place)  # only an address of this machine can be bound
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL  # an unclear answer counts as a listener
        return True

    def has_opened(self, peer: Peer) -> bool:
        """Return whether the peer of an accepted connection is the HTTP client."""
        if not peer or isinstance(peer, str):
            return False
        opened = [each.getsockname() for each in self.opened if each.fileno() >= 0]
        host = read_host(str(peer[0])).address
        return any(name[1] == peer[1] and read_host(str(name[0])).address == host for name in opened)


class NetGate(Struct, frozen=True):
    """The policy of one job, asked for one of its functions."""

    policy: Policy
    job: JobId
    function: str
    audit: Audit | None = None

    def check_request(self, url: URL, proxy: URL | None, host_header: str | None = None) -> None:
        """Check the host and the proxy of a request, and the host in its Host header.  Raises NotPermitted."""
        if proxy is not None:
            self.check(proxy.raw_host or "", proxy.port or SOCKS_PORT)
        self.check(url.raw_host or "", url.port or 0, proxied=proxy is not None)
        if host_header is not None:
            claimed = host_header.strip()
            host, colon, port = claimed.rpartition(":")
            is_port = bool(colon) and port.isascii() and port.isdigit() and len(port) <= 5
            name = host if is_port else claimed
            is_other = read_host(name) != read_host(url.raw_host or "")  # it has no connection to check
            self.check(name, int(port) if is_port else url.port or 0, proxied=is_other or proxy is not None)

    def check(self, host: str, port: int, *, proxied: bool = False) -> None:
        """Check a host as it was written.  Raises NotPermitted."""
        refusal = self.policy.host(host, port, proxied=proxied)
        if refusal is not None:
            raise self.refused(refusal)
        if self.audit is not None:
            self.audit.note("host", host, port)

    def refused(self, refusal: Refusal) -> NotPermitted:
        return NotPermitted(refusal.text(self.function, self.job))


class AddressCheck(Struct, kw_only=True, eq=False):
    """Checks the addresses of one request, hop by hop."""

    own: OwnSockets
    deny_private: bool
    gate: NetGate | None  # None: the request is of no job
    host: str = ""  # where the hop connects: the host of the address, or the proxy
    port: int = 0
    is_proxied: bool = False
    is_fresh: bool = False  # the request asks for connections that nobody has used
    reached: str = ""  # the address of the connection that the hop uses
    refusal: NotPermitted | None = None  # why the hop may not connect, after all addresses were refused
    _is_connecting: bool = False
    _is_public: bool = False  # the hop's own host
    _was_public: bool = False  # that of an earlier hop

    def begin_hop(self, host: str, port: int, *, is_proxied: bool = False) -> None:
        self.host, self.port, self.is_proxied = host, port, is_proxied
        self.refusal, self._is_connecting = None, False
        self._was_public, self._is_public = self._was_public or self._is_public, False

    def check(self, address: str, port: int) -> None:
        """Check an address that is about to be connected to.  Raises OSError."""
        is_open, host = is_public(address), self.host
        if self.deny_private and not is_open:
            raise OSError(private_reason(address))
        refusal = self._policy.address(host, self.port, address)
        refusal = refusal or self._find_refusal(host, port, [address], is_inward=not (is_open or self.is_proxied))
        if refusal:
            self.refusal = None if self._is_connecting else self._explained(refusal)
            raise OSError(refusal.deed)
        self.refusal, self._is_connecting = None, True
        self._is_public = self._is_public if self.is_proxied else is_open

    def check_behind_proxy(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Check the host that a proxy is to connect to, and its addresses known here.  Raises FetchError."""
        reason = private_target(host)
        self._is_public = not reason
        if self.deny_private and reason:
            raise FetchError("connect", f"could not connect to {host}: {reason}")
        if refusal := self._find_refusal(host, port, addresses, is_inward=bool(reason)):
            raise self._explained(refusal)

    @property
    def _policy(self) -> Policy:
        return self.gate.policy if self.gate else ANYTHING

    def _find_refusal(self, host: str, port: int, addresses: Sequence[str], *, is_inward: bool) -> Refusal | None:
        if any(self.own.is_listener(address, port) for address in addresses):
            return self._policy.own_listener(host, port)
        if is_inward and self._was_public:
            return self._policy.private_redirect(host, port, next(iter(addresses), host))
        return None

    def _explained(self, refusal: Refusal) -> NotPermitted:
        return self.gate.refused(refusal) if self.gate else NotPermitted(f"may not {refusal.deed}")


UNDER_WAY: ContextVar[AddressCheck] = ContextVar("the check of the request that this task sends")


# Addresses of the public internet, and those that `[http] deny_private` forbids


def is_public(address: str) -> bool:
    """Return whether a literal address, about to be connected to, belongs to the public internet."""
    plain = ip_address(address.partition("%")[0])
    if isinstance(plain, IPv6Address):  # a packet reaches the IPv4 address in it, however it is wrapped
        inner = IPv4Address(int(plain) & 0xFFFFFFFF) if plain in NAT64 else plain.ipv4_mapped or plain.sixtofour
        inner = inner or (plain.teredo[1] if plain.teredo else None)
        if inner is None:
            return plain.is_global and not (plain.is_multicast or plain.is_site_local or plain.is_reserved)
        plain = inner
    return plain.is_global and not (plain.is_multicast or plain.is_reserved)


def is_literal(host: str) -> bool:
    """Return whether a host is an address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def private_target(host: str) -> str:
    """Return why a proxy that resolves names may not get this host; empty if it may."""
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
