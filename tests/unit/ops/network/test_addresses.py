from __future__ import annotations

import pytest

from spyweb.ops.network.addresses import is_public


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
