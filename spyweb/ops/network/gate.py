"""Ask the policy of a job about each host, and each address, on the way of one request."""

from __future__ import annotations

from dataclasses import dataclass

from yarl import URL

from spyweb.errors import FetchError, NotPermitted
from spyweb.model import JobId
from spyweb.permissions.audit import Audit
from spyweb.permissions.hosts import NetRule, read_host
from spyweb.permissions.policy import Policy, Refusal

SOCKS_PORT = 1080

Rules = tuple[NetRule, ...]


class AddressRefused(FetchError):
    """A host has led to addresses that the rules of a connector do not permit.  NotPermitted takes its place."""

    def __init__(self, host: str, port: int, address: str) -> None:
        super().__init__("permission", f"may not reach {host}:{port}, which is {address}")
        self.host, self.port, self.address = host, port, address


@dataclass(frozen=True, slots=True)
class NetGate:
    """The policy of one job, asked for one of its functions."""

    policy: Policy
    job: JobId
    function: str
    audit: Audit | None = None

    @property
    def rules(self) -> Rules:
        """Return the rules that connections depend on: where no address decides, all may share them."""
        return self.policy.net if any(rule.ranges for rule in self.policy.net) else ()

    def check_request(self, url: URL, proxy: URL | None, host_header: str | None = None) -> None:
        """Check what a request names: host, proxy, and the host that its header claims.  Raises NotPermitted."""
        if proxy is not None:
            self.check(proxy.raw_host or "", proxy.port or SOCKS_PORT)
        self.check(url.raw_host or "", url.port or 0, proxied=proxy is not None)
        if host_header is not None:
            claimed = host_header.strip()
            host, colon, port = claimed.rpartition(":")
            is_port = bool(colon) and port.isascii() and port.isdigit() and len(port) <= 5
            name = host if is_port else claimed
            is_other = read_host(name) != read_host(url.raw_host or "")  # nobody connects there: no address will tell
            self.check(name, int(port) if is_port else url.port or 0, proxied=is_other or proxy is not None)

    def check(self, host: str, port: int, *, proxied: bool = False) -> None:
        """Check a host as it was written.  Raises NotPermitted."""
        refusal = self.policy.host(host, port, proxied=proxied)
        if refusal is not None:
            raise self.refused(refusal)
        if self.audit is not None:
            self.audit.note("host", host, port)

    def check_address(self, host: str, port: int, address: str) -> None:
        """Check the address that a host has led to.  Raises NotPermitted."""
        refusal = self.policy.address(host, port, address)
        if refusal is not None:
            raise self.refused(refusal)

    def explained(self, error: AddressRefused) -> NotPermitted:
        """Return the error of this job for an address that its connector has refused."""
        refusal = self.policy.address(error.host, error.port, error.address)
        return NotPermitted(str(error)) if refusal is None else self.refused(refusal)

    def refused(self, refusal: Refusal) -> NotPermitted:
        return NotPermitted(refusal.text(self.function, self.job))


def gate_of(policy: Policy, job: JobId, function: str, audit: Audit | None = None) -> NetGate | None:
    """Return what asks a policy about the hosts of a request; None where any host is permitted."""
    return None if not policy.net and audit is None else NetGate(policy, job, function, audit)
