"""Messages over the network of this machine, each attempt with the real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from spyweb.clock import RealClock
from spyweb.model import JobId, Webhook
from spyweb.ops.network import client
from spyweb.ops.network.client import open_client
from spyweb.outbox import send as outbox_send
from spyweb.outbox.send import MessageTransport, webhook_message
from spyweb.settings.sections import HttpSettings
from spyweb.store.model.messages import QueuedMessage
from tests.fakes.alerts import make_transport
from tests.fakes.findings import kept
from tests.fakes.hook import open_hook
from tests.fakes.web_server import WebServer, open_raw_server


@pytest.fixture
async def channels() -> AsyncIterator[MessageTransport]:
    clock = RealClock()
    async with open_client(HttpSettings(), clock) as http:
        yield make_transport(http=http, clock=clock)


def message_to(url: str, body: bytes = b'{"a":"\xc3\xa4"}') -> QueuedMessage:
    new = webhook_message(JobId("prices"), Webhook(url=url, headers=(("Authorization", "Bearer x"),)), body)
    return kept(new)


async def test_a_body_arrives_byte_for_byte_with_its_headers(channels: MessageTransport) -> None:
    with open_hook() as hook:
        assert await channels.send(message_to(hook.url)) is None

    assert (hook.bodies, hook.deliveries) == (['{"a":"ä"}'], ["d1"])


async def test_a_redirect_is_not_followed(channels: MessageTransport, server: WebServer) -> None:
    trouble = await channels.send(message_to(server.url("/redirect/2")))

    assert trouble is not None
    assert trouble.reason == "answered 302"
    assert server.story == ["POST /redirect/2"]


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100\r\n\r\nabc",
        b"Content-Length: 31457280\r\n\r\n" + b"x" * 100_000,
        b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"Content-Encoding: odd\r\nContent-Length: 3\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
    ids=["cut off", "huge", "no gzip", "unknown encoding", "no last chunk"],
)
async def test_what_is_odd_in_the_body_of_a_2xx_does_not_matter(channels: MessageTransport, rest: bytes) -> None:
    async with open_raw_server(b"HTTP/1.1 200 OK\r\n" + rest) as raw:
        assert await channels.send(message_to(raw.url("/"))) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"204 No Content\r\n\r\nok",
        b"204 No Content\r\nContent-Length: 2\r\n\r\nok",
        b"200 OK\r\nContent-Length: 4\r\n\r\ncaf\xc3\xa9",
        b"200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok\r\nok",
    ],
    ids=["204 with a body", "204 with a length", "characters counted, not bytes", "last answer"],
)
async def test_what_comes_behind_the_end_of_a_2xx_does_not_matter(channels: MessageTransport, answer: bytes) -> None:
    async with open_raw_server(b"HTTP/1.1 " + answer) as raw:
        assert await channels.send(message_to(raw.url("/"))) is None


async def test_a_body_that_drips_takes_a_moment_and_not_the_timeout(
    channels: MessageTransport, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "AT_HAND_S", 0.1)
    assert await channels.send(message_to(server.url("/drip"))) is None


async def test_a_2xx_counts_though_the_timeout_passes_while_its_body_drips(
    channels: MessageTransport, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_send, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(client, "AT_HAND_S", 0.6)
    assert await channels.send(message_to(server.url("/drip"))) is None


async def test_a_failure_is_told_with_what_came_of_its_body(channels: MessageTransport) -> None:
    async with open_raw_server(b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nno room left") as raw:
        trouble = await channels.send(message_to(raw.url("/")))

    assert trouble is not None
    assert trouble.reason == "answered 500: no room left"


async def test_nobody_there_and_no_answer_are_the_targets_trouble(
    channels: MessageTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_send, "TIMEOUT_S", 0.1)
    with open_hook(hangs=True) as hook:
        hung = await channels.send(message_to(hook.url))
    gone = await channels.send(message_to(hook.url))

    assert hung is not None
    assert gone is not None
    assert (hung.holds, gone.holds) == (True, True)
    assert hung.reason.startswith("timeout: no complete response within 0.1 s")
    assert gone.reason.startswith("connect: could not connect")


async def test_many_targets_are_served_at_once_while_one_hangs(channels: MessageTransport) -> None:
    with open_hook(hangs=True) as hung, open_hook() as fine:
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            hanging = tasks.create_task(channels.send(message_to(hung.url)))
            sent = [tasks.create_task(channels.send(message_to(f"{fine.url}/{n}", b"%d" % n))) for n in range(20)]
            await asyncio.wait(sent)
            assert not hanging.done()
            hung.over.set()

    assert sorted(map(int, fine.bodies)) == list(range(20))
