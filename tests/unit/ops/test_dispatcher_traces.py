"""The spans of a run's ops, and what their requests send."""

from __future__ import annotations

import asyncio

import pytest

from spyweb.errors import OpError
from spyweb.ops import catalog  # noqa: F401 - it fills the catalogue
from spyweb.ops.dispatcher import OpDispatcher
from tests.fakes.ops import FakeHttp, make_call, make_world
from tests.fakes.spans import FakeSpan


def traced(http: FakeHttp | None = None) -> tuple[OpDispatcher, FakeSpan]:
    span = FakeSpan("run")
    world = make_world(http=http) if http else make_world()
    return OpDispatcher(make_call(world, trace=span)), span


async def test_each_op_is_a_part_of_its_run() -> None:
    host, span = traced()
    await host.op("store_set", [b"k", b"1"])
    await host.op("sleep", [0])
    with pytest.raises(OpError):
        await host.op("store_set", [5])
    await asyncio.sleep(0)
    assert span.ended[:2] == ["run/store_set", "run/sleep"]
    assert span.ended[2].startswith("run/store_set: bad argument #2")


async def test_an_op_that_there_is_not_has_no_span() -> None:
    host, span = traced()
    with pytest.raises(OpError):
        await host.op("nothing", [])
    assert span.ended == []


@pytest.mark.parametrize(("headers", "sent"), [({}, f"00-{'a' * 32}-{2:016x}-01"), ({b"TraceParent": b"own"}, "own")])
async def test_a_request_of_a_traced_run_says_which_trace_it_belongs_to(headers: dict[bytes, bytes], sent: str) -> None:
    http = FakeHttp()
    host, _ = traced(http)
    await host.op("http_get", [b"http://example.org/", headers])
    (fetch,) = http.asked
    assert {name.lower(): value for name, value in fetch.headers.items()}["traceparent"] == sent


async def test_a_run_that_is_not_traced_sends_no_header() -> None:
    http = FakeHttp()
    await OpDispatcher(make_call(make_world(http=http))).op("http_get", [b"http://example.org/"])
    (fetch,) = http.asked
    assert "traceparent" not in fetch.headers
