"""What each stage of a cycle came to."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_OP
from spyweb.monitor.context import STAGES, HookChannel, HookResult, SharedVm, Stage, Telemetry
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import SilentHost


def unpacked(telemetry: Telemetry) -> dict[str, object]:
    return cast("dict[str, object]", wire.unpack(telemetry.packed())[0])


def test_all_stages_are_told_and_those_that_have_not_run_are_inactive() -> None:
    clock = FakeClock()
    telemetry = Telemetry("Shop", clock)
    with telemetry.timed("fetch"):
        clock.advance(0.25)
    told = unpacked(telemetry)
    assert (told["job_name"], told["start_time"], told["total_duration_ms"]) == ("Shop", START_MS // 1000, 250.0)
    stages = cast("list[dict[str, object]]", told["stages"])
    assert [stage["name"] for stage in stages] == list(STAGES)
    assert {stage["status"] for stage in stages if stage["name"] != "fetch"} == {"inactive"}
    assert stages[2] == {
        "name": "fetch",
        "status": "success",
        "type": "internal",
        "duration_ms": 250.0,
        "lua_mem_bytes": 0,
        "mem_delta_bytes": 0,
        "browsers": 0,
    }


def test_a_stage_that_raises_has_an_error() -> None:
    telemetry = Telemetry("Shop", FakeClock())
    with pytest.raises(ValueError, match="boom"), telemetry.timed("extract"):
        raise ValueError("boom")
    assert telemetry.stages()[5] == Stage("extract", duration_ms=0.0, error="boom")


def test_a_built_in_stage_leaves_the_memory_of_the_vm_as_it_was() -> None:
    telemetry = Telemetry("Shop", FakeClock(), memory=70_000)
    with telemetry.timed("fetch"):
        pass
    telemetry.note(Stage("after_fetch", duration_ms=1.0, memory=90_000, memory_delta=20_000))
    with telemetry.timed("extract"):
        pass
    told = {stage.name: (stage.memory, stage.memory_delta) for stage in telemetry.stages() if stage.memory}
    assert told == {"fetch": (70_000, 0), "after_fetch": (90_000, 20_000), "extract": (90_000, 0)}


async def report_of(hook: str, value: object) -> HookResult[object]:
    """As it is when the VM tells this of the hook that it was asked for."""
    channel = HookChannel(SharedVm(), SilentHost(), FakeClock())
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
