"""The order in which the addresses of one request are judged; real requests are in integration/test_http_own.py."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest
from yarl import URL

from spyweb.errors import NotPermitted
from spyweb.ops.network.address_check import AddressCheck, NetGate, OwnSockets, is_public
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Audit, Grants, policy_of
from tests.fakes.ops import PRICES


@pytest.fixture
def own() -> Iterator[OwnSockets]:
    own = OwnSockets()
    with own.listening([7979]):
        yield own


def check_of(own: OwnSockets, *items: str, deny_private: bool = False) -> AddressCheck:
    gate = NetGate(policy_of(Grants(net=read_net(items or ["*"]))), PRICES, "http_get")
    return AddressCheck(own=own, deny_private=deny_private, gate=gate)


def refusal(check: AddressCheck, address: str, port: int) -> str:
    try:
        check.check(address, port)
    except OSError:
        return str(check.refusal)
    return ""


@pytest.mark.parametrize(
    ("items", "refused"),
    [
        (["*"], 'add "*", "localhost:7979" to [jobs.prices.permissions] net in config.toml'),
        (["localhost"], 'add "localhost:7979" to'),
        (["*", "127.0.0.1:7979"], 'add "localhost:7979" to'),
        (["127.0.0.0/8"], 'add "localhost:7979" to'),
        (["*", "localhost:7979"], ""),
        (["localhost:7979"], ""),
    ],
)
def test_the_daemon_is_reached_only_where_net_names_it_with_its_port(
    own: OwnSockets, items: list[str], refused: str
) -> None:
    check = check_of(own, *items)
    check.begin_hop("localhost", 7979)
    found = refusal(check, "127.0.0.1", 7979)
    assert refused in found
    assert bool(found) is bool(refused)


def test_what_the_job_s_own_settings_name_does_not_open_the_daemon(own: OwnSockets) -> None:
    policy = policy_of(Grants(), Grants(net=read_net(["localhost:7979"])))
    check = AddressCheck(own=own, deny_private=False, gate=NetGate(policy, PRICES, "http_get"))
    check.begin_hop("localhost", 7979)
    assert "which is this daemon" in refusal(check, "127.0.0.1", 7979)


@pytest.mark.parametrize(
    ("items", "is_refused"),
    [(["*"], True), (["*", "10.0.0.5"], True), (["*", "in.test"], False), (["*", "10.0.0.0/8"], False)],
)
def test_a_public_host_redirects_inside_only_where_net_names_the_host(
    own: OwnSockets, items: list[str], is_refused: bool
) -> None:
    check = check_of(own, *items)
    check.begin_hop("in.test", 80)
    assert refusal(check, "10.0.0.5", 80) == ""
    check.begin_hop("out.test", 80)
    assert refusal(check, "93.184.215.14", 80) == ""
    for _ in range(2):  # however many hops later
        check.begin_hop("in.test", 80)
        found = refusal(check, "10.0.0.5", 80)
        assert ("may not be redirected by a public host to in.test:80, which is 10.0.0.5" in found) is is_refused


def test_through_a_proxy_names_are_judged(own: OwnSockets) -> None:
    check = check_of(own)
    check.begin_hop("127.0.0.1", 3128, is_proxied=True)
    check.check_behind_proxy("out.test", 80, [])
    check.check("127.0.0.1", 3128)  # the proxy itself may be private
    check.begin_hop("127.0.0.1", 3128, is_proxied=True)
    with pytest.raises(NotPermitted, match=r"redirected by a public host to 10\.0\.0\.5:80"):
        check.check_behind_proxy("10.0.0.5", 80, [])
    with pytest.raises(NotPermitted, match=r"reach me\.test:7979, which is this daemon"):
        check.check_behind_proxy("me.test", 7979, ["192.0.2.1", "127.0.0.1"])


def test_an_address_that_was_permitted_decides_what_is_said(own: OwnSockets) -> None:
    check = check_of(own, "10.0.0.0/8")
    check.begin_hop("in.test", 80)
    assert "which is 192.0.2.1" in refusal(check, "192.0.2.1", 80)
    check.check("10.0.0.1", 80)
    assert check.refusal is None
    assert refusal(check, "192.0.2.1", 80) == "None"


def test_deny_private_stands_above_what_is_named(own: OwnSockets) -> None:
    check = check_of(own, "localhost:7979", deny_private=True)
    check.begin_hop("localhost", 7979)
    with pytest.raises(OSError, match="is a private address, and"):
        check.check("127.0.0.1", 7979)
    assert check.refusal is None


def test_a_request_of_no_job_is_refused_in_words_of_its_own(own: OwnSockets) -> None:
    check = AddressCheck(own=own, deny_private=False, gate=None, host="localhost", port=7979)
    assert refusal(check, "127.0.0.1", 7979) == "may not reach localhost:7979, which is this daemon"


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
    ],
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "169.254.169.254",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
    ],
)
def test_all_others_are_not(address: str) -> None:
    assert not is_public(address)
    assert not is_public(f"::ffff:{address}")
    assert not is_public(f"64:ff9b::{address}")
    assert not is_public(f"::{address}")


@pytest.mark.parametrize(
    "address",
    [
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "100::1",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    ],
)
def test_nor_are_these_of_the_newer_kind(address: str) -> None:
    assert not is_public(address)


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


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", True),
        ("::1", True),
        ("::", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
    ],
)
def test_every_address_of_this_machine_leads_to_a_listener(address: str, is_own: bool) -> None:
    own = OwnSockets()
    with own.listening([7979]), own.listening([7979, 8080]):
        assert own.is_listener(address, 7979) is is_own
        assert not own.is_listener(address, 80)
    assert not own.is_listener(address, 7979)


def test_an_address_that_can_not_be_tried_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    own = OwnSockets()
    monkeypatch.setattr(socket, "socket", refuse)
    with own.listening([7979]):
        assert own.is_listener("192.0.2.1", 7979)


def test_the_client_s_own_connection_is_recognised_until_it_is_closed() -> None:
    own = OwnSockets()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as other:
        opened = socket.socket()
        own.opened.add(opened)
        opened.connect(server.getsockname())
        other.connect(server.getsockname())
        for connected, is_own in ((opened, True), (other, False)):
            accepted, peer = server.accept()
            accepted.close()
            assert peer == connected.getsockname()
            assert own.has_opened(peer) is is_own
            assert own.has_opened((f"::ffff:{peer[0]}", peer[1], 0, 0)) is is_own
        peer = opened.getsockname()
        opened.close()
        assert not own.has_opened(peer)
    assert not own.has_opened("")
    assert not own.has_opened(None)
