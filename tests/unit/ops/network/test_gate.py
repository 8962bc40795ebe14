"""The policy of a job at each host and address on the way of a request."""

from __future__ import annotations

import pytest
from yarl import URL

from spyweb.errors import NotPermitted
from spyweb.ops.network.gate import NetGate
from spyweb.permissions.audit import Audit
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Grants, policy_of
from tests.fakes.ops import PRICES


def gate(*items: str, audit: Audit | None = None) -> NetGate:
    return NetGate(policy_of(Grants(net=read_net(items))), PRICES, "http_get", audit)


@pytest.mark.parametrize(
    ("url", "proxy", "claimed"),
    [
        ("http://b.test/", None, None),
        ("http://a.test/", "http://b.test:3128", None),
        ("http://a.test/", "socks5://b.test", None),
        ("http://a.test/", None, "b.test"),
        ("http://a.test/", None, "b.test:80"),
        ("http://0x7f.1/", None, None),
        ("http://[::1]/", None, None),
    ],
)
def test_every_host_that_a_request_names_is_checked(url: str, proxy: str | None, claimed: str | None) -> None:
    with pytest.raises(NotPermitted, match="http_get: 'prices' may not reach") as raised:
        gate("a.test").check_request(URL(url), proxy and URL(proxy), claimed)  # type: ignore[arg-type]
    assert raised.value.kind == "permission"


@pytest.mark.parametrize("claimed", [None, "a.test", "A.test:80"])
def test_a_request_to_permitted_hosts_passes(claimed: str | None) -> None:
    gate("a.test", "proxy.test:1080").check_request(URL("http://a.test/"), URL("socks5h://proxy.test"), claimed)


def test_a_proxy_gets_no_name_that_only_a_network_could_permit() -> None:
    inside, proxy = gate("10.0.0.0/8", "proxy.test"), URL("http://proxy.test")
    inside.check_request(URL("http://in.test/"), None)
    inside.check_request(URL("http://10.0.0.1/"), proxy)
    with pytest.raises(NotPermitted, match=r"reach in\.test:80: add"):
        inside.check_request(URL("http://in.test/"), proxy)


def test_a_header_claims_no_name_that_only_a_network_could_permit() -> None:
    """Nobody connects to what the header names, so no address can tell whether it is permitted."""
    inside = gate("10.0.0.0/8", "b.test")
    for url, claimed in [
        ("http://in.test/", "IN.test."),
        ("http://10.0.0.1/", "10.0.0.2"),
        ("http://10.0.0.1/", "b.test"),
    ]:
        inside.check_request(URL(url), None, claimed)
    with pytest.raises(NotPermitted, match=r"reach out\.test:80: add"):
        inside.check_request(URL("http://10.0.0.1/"), None, "out.test")


def test_what_passes_is_noted() -> None:
    audit = Audit()
    gate("a.test", audit=audit).check("a.test", 443)
    assert 'net = ["a.test:443"]' in audit.block("x")
