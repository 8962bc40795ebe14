from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NoReturn

import pytest

from spyweb.errors import FetchError
from spyweb.ops.network.address_check import AddressCheck, OwnSockets
from spyweb.ops.network.probing import Prober
from spyweb.ops.network.request import Probe
from spyweb.ops.network.resolver import Address, Lookup, Resolver
from tests.fakes.clock import FakeClock

Make = Callable[..., Prober]


class FakeNetwork:
    """Takes the place of the loop's own connecting: every address refuses."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def connect(self, _wire: socket.socket, place: tuple[str, int]) -> NoReturn:
        self.asked.append(place[0])
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")


def named(*addresses: str) -> Lookup:
    return lambda _host: tuple(Address(socket.AF_INET, address) for address in addresses)


def unknown(_host: str) -> NoReturn:
    raise OSError("no such host")


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    network = FakeNetwork()
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", network.connect)
    return network


@pytest.fixture
async def probe() -> AsyncIterator[Make]:
    resolvers = []

    def make(lookup: Lookup = unknown, *, deny_private: bool = False) -> Prober:
        resolvers.append(Resolver(FakeClock(), lookup))
        check = partial(AddressCheck, own=OwnSockets(), deny_private=deny_private)
        return Prober(resolvers[-1], FakeClock(), check, None)

    yield make
    for resolver in resolvers:
        await resolver.close()


async def failure(prober: Prober, host: str) -> tuple[str, str]:
    with pytest.raises(FetchError) as refused:
        await prober.probe(Probe(function="tls_probe", host=host, port=443, timeout=5))
    return refused.value.kind, str(refused.value)


async def test_each_address_is_tried_before_it_fails(network: FakeNetwork, probe: Make) -> None:
    kind, reason = await failure(probe(named("192.0.2.1", "192.0.2.2")), "a.test")

    assert network.asked == ["192.0.2.1", "192.0.2.2"]
    assert (kind, reason) == ("connect", "could not connect to a.test:443: Connection refused")


async def test_a_name_that_does_not_exist_is_a_failure_of_dns(network: FakeNetwork, probe: Make) -> None:
    assert await failure(probe(), "a.test") == ("dns", "could not resolve a.test: no such host")
    assert network.asked == []


async def test_where_private_addresses_are_denied_only_public_ones_are_tried(network: FakeNetwork, probe: Make) -> None:
    prober = probe(named("10.0.0.1", "93.184.215.14", "127.0.0.1"), deny_private=True)

    kind, reason = await failure(prober, "a.test")

    assert network.asked == ["93.184.215.14"]
    assert kind == "connect"
    assert "127.0.0.1" in reason
