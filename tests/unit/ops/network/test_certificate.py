from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import NoReturn

import pytest

from spyweb.errors import FetchError
from spyweb.ops.network.address_check import OwnSockets
from spyweb.ops.network.certificate import DAY_MS, Prober, colons, read_certificate, trusting_context
from spyweb.ops.network.resolver import Address, Lookup, Resolver
from tests.fakes.certificates import ENDS, der
from tests.fakes.clock import FakeClock


def at(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_everything_that_is_told_of_a_certificate() -> None:
    found = read_certificate(der(), at(ENDS - timedelta(days=30, hours=5)))
    assert (found["subject"], found["issuer"]) == ("CN=example.com", "CN=WE1,O=A\\, B,C=US")
    assert (found["not_before"], found["not_after"]) == ("2026-06-24T22:54:36Z", "2026-09-22T23:54:29Z")
    assert found["serial"] == "2F:70:D5"
    assert found["days_left"] == 30


@pytest.mark.parametrize(
    ("left", "days"), [(timedelta(days=1), 1), (timedelta(hours=23), 0), (timedelta(0), 0), (timedelta(hours=-1), -1)]
)
def test_days_left_are_whole_and_below_zero_once_it_is_over(left: timedelta, days: int) -> None:
    assert read_certificate(der(), at(ENDS - left))["days_left"] == days


def test_the_fingerprint_is_that_of_these_very_bytes() -> None:
    one, other = der(), der()
    first = read_certificate(one, DAY_MS)["fingerprint"]
    assert first == read_certificate(one, 0)["fingerprint"] != read_certificate(other, 0)["fingerprint"]
    assert re.fullmatch(r"XXH3:[0-9a-f]{16}", str(first))


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "01"), (0, "00"), (0x80, "80"), (0x102, "01:02"), (1 << 159, "80" + ":00" * 19), (-5, "-05")],
)
def test_a_serial_number_is_shown_byte_by_byte(number: int, text: str) -> None:
    assert colons(number) == text


def test_what_is_no_certificate_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="parsing"):
        read_certificate(b"\x30\x03\x02\x01\x01", 0)


def test_nobody_is_refused_for_what_vouches_for_it() -> None:
    context = trusting_context()
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


Probe = Callable[..., Prober]


class FakeNetwork:
    """Takes the place of asyncio.open_connection: every address refuses."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def connect(self, address: str, _port: int) -> NoReturn:
        self.asked.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")


def named(*addresses: str) -> Lookup:
    return lambda _host: tuple(Address(socket.AF_INET, address) for address in addresses)


def unknown(_host: str) -> NoReturn:
    raise OSError("no such host")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    network = FakeNetwork()
    monkeypatch.setattr(asyncio, "open_connection", network.connect)
    return network


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    resolvers = []

    def make(lookup: Lookup = unknown, *, deny_private: bool = False) -> Prober:
        resolvers.append(Resolver(FakeClock(), lookup))
        return Prober(resolvers[-1], OwnSockets(), deny_private=deny_private)

    yield make
    for resolver in resolvers:
        await resolver.close()


async def failure(prober: Prober, host: str) -> tuple[str, str]:
    with pytest.raises(FetchError) as refused:
        await prober.certificate(host, 443)
    return refused.value.kind, str(refused.value)


async def test_each_address_is_tried_before_it_fails(network: FakeNetwork, probe: Probe) -> None:
    kind, reason = await failure(probe(named("192.0.2.1", "192.0.2.2")), "a.test")

    assert network.asked == ["192.0.2.1", "192.0.2.2"]
    assert (kind, reason) == ("connect", "could not connect to a.test:443: Connection refused")


async def test_an_address_needs_no_lookup(network: FakeNetwork, probe: Probe) -> None:
    assert (await failure(probe(), "192.0.2.7"))[0] == "connect"
    assert network.asked == ["192.0.2.7"]


async def test_a_name_that_does_not_exist_is_a_failure_of_dns(network: FakeNetwork, probe: Probe) -> None:
    assert await failure(probe(), "a.test") == ("dns", "could not resolve a.test: no such host")
    assert network.asked == []


async def test_where_private_addresses_are_denied_only_public_ones_are_tried(
    network: FakeNetwork, probe: Probe
) -> None:
    prober = probe(named("10.0.0.1", "93.184.215.14", "127.0.0.1"), deny_private=True)

    kind, reason = await failure(prober, "a.test")

    assert network.asked == ["93.184.215.14"]
    assert kind == "connect"
    assert "127.0.0.1" in reason
