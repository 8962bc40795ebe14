"""Know the TCP sockets of this process: the ports on which it listens, and the connections of its HTTP client.

The daemon trusts this machine where it has no key.  A job, or a server that redirects one, is not to borrow that trust.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias
from weakref import WeakSet

from spyweb.permissions.hosts import read_host

Peer: TypeAlias = Sequence[object] | str | None  # as a socket names it; a text of a Unix socket


class OwnSockets:
    """All listening ports of a daemon, and the sockets that its HTTP client has opened."""

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
        """Return whether the daemon itself would answer at an address: whichever of this machine, with its port."""
        return port in self.ports and _is_local(address)

    def has_opened(self, peer: Peer) -> bool:
        """Return whether the peer of an accepted connection is the HTTP client."""
        if not peer or isinstance(peer, str):
            return False
        end = _end_of(peer)
        return any(_end_of(each.getsockname()) == end for each in self.opened if each.fileno() >= 0)


def _end_of(name: Sequence[object]) -> tuple[object, object]:
    return read_host(str(name[0])).address, name[1]


def _is_local(address: str) -> bool:
    """Return whether an address is one of this machine: only those can be bound.  What can't be told counts as one."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True
