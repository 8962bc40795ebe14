"""Hosts and addresses against the items of `net`."""

from __future__ import annotations

import pytest
from yarl import URL

from spyweb.permissions.hosts import NO_ADDRESS, NetRule, address_text, read_host, read_net


def rule(*items: str) -> NetRule:
    found = read_net(items)
    assert found is not None
    return found


def permits(items: list[str], host: str, port: int = 443) -> bool | None:
    return rule(*items).permits(read_host(host), port)


@pytest.mark.parametrize(
    ("item", "host", "port", "expected"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "EXAMPLE.com.", 80, True),
        ("example.com", "api.example.com", 443, False),
        ("example.com", "example.com.evil.test", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("*.example.com", "api.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", ".example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("*.example.com:8443", "a.example.com", 8443, True),
        ("*.example.com:8443", "a.example.com", 443, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.0.0.0/8", "internal.test", 443, None),
        ("10.1.2.3:80", "10.1.2.3", 80, True),
        ("10.1.2.3:80", "10.1.2.3", 443, False),
        ("2001:db8::/32", "2001:db8::1", 443, True),
        ("[2001:db8::1]:443", "[2001:db8::1]", 443, True),
        ("2001:db8::1", "2001:db8::2", 443, False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", 443, True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", 443, True),
        ("::/0", "10.1.2.3", 443, False),
        ("0.0.0.0/0", "2001:db8::1", 443, False),
    ],
)
def test_an_item_permits_what_it_names_and_nothing_beside_it(
    item: str, host: str, port: int, expected: bool | None
) -> None:
    assert permits([item], host, port) is expected


@pytest.mark.parametrize(
    ("spelling", "address"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("0177.0.0.01", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1.", "127.0.0.1"),
        ("[::ffff:7f00:1]", "127.0.0.1"),
        ("010.0.0.1", "8.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_a_numeric_spelling_is_the_address_that_the_system_reads(spelling: str, address: str) -> None:
    found = read_host(spelling).address
    assert found is not None
    assert address_text(found) == address


@pytest.mark.parametrize("spelling", ["1.2.3.4.5", "256.1.1.1", "4294967296", "1.2.3.256", "0x", "08.1.1.1", "1:2:3"])
def test_a_number_that_is_no_address_is_no_name_either(spelling: str) -> None:
    """No list can name it, and no other list permits it."""
    with pytest.raises(ValueError, match=r"no host|a port"):
        read_net([spelling])
    assert permits(["0.0.0.0/0", "::/0", "*.1", "example.com"][:2], spelling) is False


def test_everything_is_no_rule_and_lists_nothing_by_name() -> None:
    assert read_net(["*"]) is None
    found, inside = rule("*", "10.0.0.0/8", "localhost:80"), read_host("10.1.2.3").address
    assert found.permits(read_host("example.com"), 443) is True
    assert inside
    assert found.lists(read_host("a.test"), 80, inside)
    assert not found.lists(read_host("example.com"), 443, read_host("1.1.1.1").address or NO_ADDRESS)
    assert [found.lists_with_port(read_host("localhost"), port) for port in (80, 443)] == [True, False]
    assert found.items() == ["*", "localhost:80", "10.0.0.0/8"]


@pytest.mark.parametrize("host", ["straße.de", "bücher.example", "faß.de", "STRASSE.de"])
def test_a_name_is_taken_as_the_client_asks_for_it(host: str) -> None:
    asked = URL(f"http://{host}/").raw_host or ""
    assert permits([host], asked) is True
    assert permits([f"*.{host}"], f"www.{asked}") is True
    assert permits([host], "strasse.de") is (host == "STRASSE.de")


def test_nothing_permits_nothing() -> None:
    assert permits([], "example.com") is False
    assert permits([], "10.0.0.1") is False


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("", "is no host"),
        ("https://example.com", "is no network"),
        ("example.com/path", "is no network"),
        ("10.0.0.1/8", "has host bits set"),
        ("exa mple.com", "is no host"),
        ("*example.com", "is no host"),
        ("api.*.com", "is no host"),
        ("**.example.com", "is no host"),
        ("example.com:0", "a port from 1"),
        ("example.com:65536", "a port from 1"),
        ("example.com:http", "a port from 1"),
        ("user@example.com", "is no host"),
        ("a" * 64 + ".é" * 200, "is no host"),
    ],
)
def test_what_is_no_host_is_refused_with_a_reason(item: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_net([item])
