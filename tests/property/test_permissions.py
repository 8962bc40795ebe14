"""Laws of hosts, addresses and lists: no spelling of an address is a name, and two lists never permit more than one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from hypothesis import assume, example, given
from hypothesis import strategies as st

from spyweb.permissions.hosts import NetRule, address_text, read_host, read_net
from spyweb.permissions.policy import Grants, policy_of, read_state
from spyweb.settings.permissions import take_grants
from spyweb.settings.reading import Reading
from spyweb.settings.tables import TomlTable

LABEL = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z]", fullmatch=True)
NAMES = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
PORTS = st.integers(1, 65_535)
V4 = st.integers(0, 2**32 - 1).map(IPv4Address)
V6 = st.integers(0, 2**128 - 1).map(IPv6Address)
NETWORKS: st.SearchStrategy[IPv4Network | IPv6Network] = st.one_of(
    st.tuples(V4, st.integers(0, 32)).map(lambda pair: IPv4Network(pair, strict=False)),
    st.tuples(V6, st.integers(0, 128)).map(lambda pair: IPv6Network(pair, strict=False)),
)
NUMBER = st.integers(0, 2**32 + 5)
SPELLINGS: list[Callable[[int], str]] = [str, hex, lambda number: f"0{number:o}", lambda number: f"0X{number:X}"]
SPELT = st.sampled_from(SPELLINGS)
NUMERIC = st.lists(st.tuples(SPELT, st.one_of(st.integers(0, 300), NUMBER)), min_size=1, max_size=5).map(
    lambda parts: ".".join(spell(number) for spell, number in parts)
)
ITEMS = st.one_of(
    NAMES,
    NAMES.map(lambda name: f"*.{name}"),
    st.tuples(NAMES, PORTS).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    NETWORKS.map(str),
    V4.map(str),
    V6.map(str),
)


def rule_of(*items: str) -> NetRule:
    found = read_net(items)
    assert found is not None
    return found


@given(st.one_of(V4, V6), NETWORKS)
def test_a_network_has_the_addresses_that_it_has(
    address: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network
) -> None:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    expected = (mapped or address) in network
    assume(not (isinstance(network, IPv6Network) and network.overlaps(IPv6Network("::ffff:0:0/96"))))
    assert rule_of(str(network)).permits(read_host(str(address)), 80) is expected


@given(V4)
def test_an_address_within_ipv6_is_the_one_within(address: IPv4Address) -> None:
    mapped = read_host(f"[::ffff:{address}]").address
    assert mapped == read_host(str(address)).address
    assert mapped is not None
    assert address_text(mapped) == str(address)


@given(NAMES, NAMES, PORTS)
def test_a_name_permits_itself_alone_and_a_wildcard_what_is_below(name: str, other: str, port: int) -> None:
    assert rule_of(name).permits(read_host(f"{name.upper()}."), port) is True
    assert rule_of(name).permits(read_host(other), port) is (name == other)
    wildcard = rule_of(f"*.{name}")
    assert wildcard.permits(read_host(f"{other}.{name}"), port) is True
    assert wildcard.permits(read_host(other), port) is other.endswith(f".{name}")


@given(NAMES, PORTS, PORTS)
def test_a_port_permits_that_port_alone(name: str, port: int, other: int) -> None:
    assert rule_of(f"{name}:{port}").permits(read_host(name), other) is (port == other)


@given(st.lists(NAMES.map(lambda name: f"*.{name}")), NUMERIC)
def test_names_never_permit_a_number(items: list[str], number: str) -> None:
    rule = rule_of(*items)
    assert rule.permits(read_host(number), 80) is False
    assert policy_of(Grants(net=rule)).address(number, 80, "127.0.0.1")


@given(st.lists(ITEMS, max_size=4), st.lists(ITEMS, max_size=4), st.one_of(NAMES, NUMERIC, V4.map(str)), V4, PORTS)
def test_two_lists_permit_what_both_permit(
    first: list[str], second: list[str], host: str, at: IPv4Address, port: int
) -> None:
    one, other = Grants(net=read_net(first)), Grants(net=read_net(second))
    both = policy_of(one, other)
    for proxied in (False, True):
        alone = [policy_of(each).host(host, port, proxied=proxied) for each in (one, other)]
        assert (both.host(host, port, proxied=proxied) is None) == (alone == [None, None])
    alone = [policy_of(each).address(host, port, str(at)) for each in (one, other)]
    assert (both.address(host, port, str(at)) is None) == (alone == [None, None])


@given(st.lists(ITEMS), st.one_of(NAMES, V4.map(str)), PORTS)
def test_what_a_rule_shows_is_the_same_rule(items: list[str], host: str, port: int) -> None:
    rule = rule_of(*items)
    assert rule_of(*rule.items()).permits(read_host(host), port) == rule.permits(read_host(host), port)


@given(st.text(max_size=80))
def test_no_item_is_anything_but_read_or_refused_with_a_reason(item: str) -> None:
    with contextlib.suppress(ValueError):
        read_net([item])


@example("\n", "")
@given(st.text(max_size=80), st.one_of(NAMES, st.text(max_size=40)))
def test_any_text_may_be_asked_for(host: str, other: str) -> None:
    policy = policy_of(Grants(net=rule_of("a.test", "10.0.0.0/8")))
    for each in (host, f"[{other}]", f"{host}:{other}"):
        refusal = policy.host(each, 80)
        assert refusal is None or "\n" not in refusal.text("http_get", "x")


SCOPES = st.sampled_from(["orders", "prices", "agent:local", "agent:web", "*"])


@given(st.lists(st.tuples(SCOPES, st.booleans())), SCOPES.filter(lambda scope: scope != "*"))
def test_whoever_may_write_may_read(items: list[tuple[str, bool]], scope: str) -> None:
    rule = read_state(items)
    policy = policy_of(Grants(state=rule))
    namespace = {"agent:local": "state", "agent:web": "state@web"}.get(scope, f"scope:{scope}")
    may_write = ("*", False) in items or (scope, False) in items
    may_read = may_write or ("*", True) in items or (scope, True) in items
    assert (policy.state(namespace, True) is None) == may_write
    assert (policy.state(namespace, False) is None) == may_read


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["*", "job", "/bin/x", "a.test"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["net", "exec", "files", "env", "db", "global_store", "notify", "state"]), VALUES)
)
def test_no_table_of_permissions_is_more_than_a_problem(values: dict[str, object]) -> None:
    problems: list[object] = []
    table = TomlTable(values={"permissions": values}, file="config.toml").table("permissions")
    take_grants(Reading([table], problems), Grants())  # type: ignore[arg-type]
