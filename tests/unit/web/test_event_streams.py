"""How many streams there may be, of whom, and that they end with their server."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from spyweb.web.access.principal import PRINCIPAL, Principal
from spyweb.web.event_streams import StreamCounter, TooManyStreams


def request_of(peer: object) -> web.Request:
    transport = SimpleNamespace(get_extra_info=lambda _name: peer)
    return cast(web.Request, SimpleNamespace(transport=transport, get=lambda _key: None))


def of_key(name: str, address: str = "127.0.0.1") -> web.Request:
    principal = Principal(name=name, rights=frozenset(), source="key")
    transport = SimpleNamespace(get_extra_info=lambda _name: (address, 1))
    return cast(web.Request, SimpleNamespace(transport=transport, get={PRINCIPAL: principal}.get))


def from_address(address: str) -> web.Request:
    return request_of((address, 1234))


def test_so_many_are_let_in_and_the_next_is_refused_until_one_has_left() -> None:
    streams = StreamCounter(3, 3)
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        for place in (first, stack, stack):
            place.enter_context(streams.one(from_address("127.0.0.1")))
        with (
            pytest.raises(web.HTTPServiceUnavailable, match="Service Unavailable") as caught,
            streams.one(from_address("127.0.0.1")),
        ):
            pass
        assert caught.value.text == "3 streams are open already: end one of them"
        assert "Retry-After" in caught.value.headers
        first.close()
        with streams.one(from_address("127.0.0.1")):
            pass


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("192.0.2.1", "192.0.2.2"),
        ("::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8:0:1::1"),
    ],
)
def test_one_address_has_only_some_of_them(one: str, other: str) -> None:
    streams = StreamCounter(10, 2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(streams.one(from_address(one)))
        with pytest.raises(web.HTTPServiceUnavailable), streams.one(from_address(one)):
            pass
        stack.enter_context(streams.one(from_address(other)))


@pytest.mark.parametrize(
    "peer", [("127.0.0.1", 1), ("127.9.9.9", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1), "", None]
)
def test_this_machine_may_have_them_all_since_a_proxy_speaks_for_many(peer: object) -> None:
    streams = StreamCounter(5, 1)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(streams.one(request_of(peer)))


def test_one_key_has_only_a_quarter_from_wherever_it_asks() -> None:
    streams = StreamCounter(8, 8)
    with ExitStack() as stack:
        for number in range(2):
            stack.enter_context(streams.one(of_key("reader", f"192.0.2.{number}")))
        with pytest.raises(TooManyStreams, match="Unavailable"), streams.one(of_key("reader")):
            pass
        for name in ("other", "other"):
            stack.enter_context(streams.one(of_key(name)))


def test_those_whose_client_is_gone_do_not_count() -> None:
    streams = StreamCounter(1, 1)
    gone = cast(web.Request, SimpleNamespace(transport=None, get=lambda _key: None))
    with streams.one(gone), streams.one(from_address("127.0.0.1")):
        pass


async def test_all_are_ended_with_their_server() -> None:
    streams = StreamCounter(10, 10)
    with ExitStack() as stack:
        opened = [stack.enter_context(streams.one(from_address("127.0.0.1"))) for _ in range(3)]
        await streams.end_all(web.Application())
    assert all(stream.over.is_set() for stream in opened)
