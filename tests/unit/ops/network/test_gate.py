"""The policy of a job at each host and address on the way of a request."""

from __future__ import annotations

import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from spyweb.errors import NotPermitted
from spyweb.ops.network.gate import AddressRefused, NetGate, gate_of
from spyweb.ops.network.resolver import RuledResolver
from spyweb.permissions.audit import Audit
from spyweb.permissions.hosts import NetRule, read_net
from spyweb.permissions.policy import ANYTHING, Grants, policy_of
from tests.fakes.ops import PRICES


def gate(*items: str, audit: Audit | None = None) -> NetGate:
    return NetGate(policy_of(Grants(net=read_net(items))), PRICES, "http_get", audit)


def rules(*items: str) -> tuple[NetRule, ...]:
    return gate(*items).policy.net


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


def test_an_open_policy_has_no_gate_unless_somebody_notes() -> None:
    assert gate_of(ANYTHING, PRICES, "http_get") is None
    assert gate_of(ANYTHING, PRICES, "http_get", Audit()) is not None


def test_only_networks_keep_connections_apart() -> None:
    assert gate("a.test").rules == ()
    assert gate("10.0.0.1").rules == ()
    assert gate("a.test", "10.0.0.0/8").rules == rules("a.test", "10.0.0.0/8")


class Table(AbstractResolver):
    def __init__(self, **found: list[str]) -> None:
        self._found = {name.replace("_", "."): addresses for name, addresses in found.items()}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=each, port=port, family=family, proto=0, flags=0)
            for each in self._found[host]
        ]

    async def close(self) -> None: ...


async def test_addresses_outside_the_networks_are_left_out() -> None:
    resolver = RuledResolver(Table(in_test=["192.0.2.1", "10.0.0.1"]), rules("10.0.0.0/8"))
    assert [each["host"] for each in await resolver.resolve("in.test", 80)] == ["10.0.0.1"]


async def test_a_host_that_only_leads_elsewhere_is_refused() -> None:
    resolver = RuledResolver(Table(out_test=["192.0.2.1"], a_test=["192.0.2.1"]), rules("10.0.0.0/8", "a.test"))
    with pytest.raises(AddressRefused) as raised:
        await resolver.resolve("out.test", 80)
    explained = gate("10.0.0.0/8").explained(raised.value)
    assert "reach out.test:80, which is 192.0.2.1: add" in str(explained)
    assert [each["host"] for each in await resolver.resolve("a.test", 80)] == ["192.0.2.1"]


def test_what_passes_is_noted() -> None:
    audit = Audit()
    gate("a.test", audit=audit).check("a.test", 443)
    assert 'net = ["a.test:443"]' in audit.block("x")
