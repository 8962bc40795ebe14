"""Ask the policy of a job about each host, and each address, on the way of one request."""

from __future__ import annotations

from msgspec import Struct
from yarl import URL

from spyweb.errors import NotPermitted
from spyweb.model import JobId
from spyweb.permissions.audit import Audit
from spyweb.permissions.hosts import read_host
from spyweb.permissions.policy import Policy, Refusal

SOCKS_PORT = 1080


class NetGate(Struct, frozen=True):
    """The policy of one job, asked for one of its functions."""

    policy: Policy
    job: JobId
    function: str
    audit: Audit | None = None

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

    def refused(self, refusal: Refusal) -> NotPermitted:
        return NotPermitted(refusal.text(self.function, self.job))
