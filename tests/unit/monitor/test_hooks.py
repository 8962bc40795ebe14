"""What a hook returned reaches the cycle, or the reason why it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import msgspec
import pytest

from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_OP
from spyweb.lua.session import Lineage
from spyweb.monitor.hooks import HookChannel, HookResult, SharedVm
from tests.fakes.clock import FakeClock


class NoHost:
    def end_branch(self, lineage: Lineage) -> None: ...

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Sequence[object]]:
        raise AssertionError(name)

    def log(self, level: str, text: bytes) -> None:
        raise AssertionError(text)


async def report_of(hook: str, value: object) -> HookResult[object]:
    """As it is when the VM tells this of the hook that it was asked for."""
    channel = HookChannel(SharedVm(), NoHost(), FakeClock())
    asked = channel.op(HOOK_OP, [0, 1024])
    called = asyncio.ensure_future(channel.call(hook))
    await asked
    channel.op(HOOK_OP, [0, 1024, b"ok", value])
    return await called


def packed(value: object, elements: int) -> wire.Packed:
    return wire.Packed(msgspec.Raw(wire.pack(value)), elements)


@pytest.mark.parametrize("value", [[{b"title": b"a"}, {b"title": b"b"}], {b"title": b"a"}, []])
async def test_what_was_left_packed_is_unpacked(value: object) -> None:
    report = await report_of("after_extract", packed(value, 2_000_000))

    assert (report.value, report.error) == (value, None)


async def test_only_hooks_about_items_may_return_very_many_values() -> None:
    report = await report_of("before_fetch", packed({b"url": b"u"}, 200_001))

    assert (report.value, report.error) == (None, "what it returned has 200001 values, at most 200000 are allowed")


async def test_what_python_cannot_hold_is_the_hook_s_error() -> None:
    report = await report_of("after_extract", wire.Packed(msgspec.Raw(b"\x91\x81\x81\x01\x02\x03"), 3))

    assert report.error is not None
    assert report.error.startswith("what it returned can't leave the script: ")
