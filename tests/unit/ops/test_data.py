from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.extraction.extractor import open_extractor
from spyweb.lua import wire
from spyweb.lua.channel import pack
from spyweb.ops.data import LARGEST
from spyweb.ops.world import Call
from tests.fakes.ops import ask, make_call


@pytest.fixture
async def call() -> AsyncIterator[Call]:
    async with open_extractor(RealClock()) as extractor:
        call = make_call()
        yield structs.replace(call, world=replace(call.world, extractor=extractor))


async def parsed(call: Call, text: bytes) -> list[object]:
    return wire.unpack(pack(await ask(call, "data.parse_yaml", text)))


async def test_a_process_parses_it(call: Call) -> None:
    assert await parsed(call, b"a: [1, x, null]\nb: {c: true}") == [{b"a": [1, b"x", None], b"b": {b"c": True}}, None]
    long = b"".join(b"key%d: %s\n" % (n, b"x" * 40) for n in range(20_000))
    found, problem = await parsed(call, long)
    assert problem is None
    assert isinstance(found, dict)
    assert len(found) == 20_000


async def test_what_is_not_yaml_is_nil_and_a_message(call: Call) -> None:
    assert await parsed(call, b"a: b: c") == [None, "line 1: mapping values are not allowed in this context"]
    assert await parsed(call, b"[" * 50_000) == [None, "line 1: more than 100 levels"]
    assert await parsed(call, b"a: 1") == [{b"a": 1}, None]


async def test_a_longer_text_is_refused(call: Call) -> None:
    assert await parsed(call, b"x" * (LARGEST + 1)) == [
        None,
        "the YAML text has 1048577 bytes, at most 1048576 are allowed",
    ]
