"""Check each address that a request is about to reach, whoever has named it: its script, a redirect, or a DNS record.

A request checks every new socket before it connects, and every connection that an earlier request has left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from msgspec import Struct

from spyweb.errors import FetchError, NotPermitted
from spyweb.ops.network.addresses import is_public, private_reason, private_target
from spyweb.ops.network.gate import NetGate
from spyweb.ops.network.own_sockets import OwnSockets
from spyweb.permissions.policy import ANYTHING, Policy, Refusal


class AddressCheck(Struct, kw_only=True, eq=False):
    """Checks the addresses of one request, hop by hop."""

    own: OwnSockets
    deny_private: bool
    gate: NetGate | None  # None: the request is of no job
    host: str = ""  # to which the hop connects: that of the address, or the proxy
    port: int = 0
    is_proxied: bool = False
    refusal: NotPermitted | None = None  # why the hop may not connect, where no address was left to try
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
        """Check what a proxy is to connect to, and the addresses that are known of it here.  Raises FetchError."""
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
